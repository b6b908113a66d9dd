"""The shield between the engine and its adapters: which arguments it takes for names of nodes."""

from __future__ import annotations

import inspect

import pytest

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.engine.context import shield

#: Names of parameters that are nodes, in the protocols.
OF_NODES = {"node", "source", "destination", "to", "other"}
METHODS = [
    pytest.param(name, list(inspect.signature(method).parameters)[1:], id=f"{protocol.__name__}.{name}")
    for protocol in (Platform, Nodes)
    for name, method in inspect.getmembers(protocol, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize(("name", "parameters"), METHODS)
def test_all_names_of_nodes_are_looked_at_and_nothing_else(name: str, parameters: list[str]) -> None:
    """Seen: a function that was to be called was taken for a node of another group, and no engine of a group ran."""
    looked_at = parameters[shield._NODES.get(name, slice(0, 1))]
    assert looked_at == [each for each in parameters if each in OF_NODES]
