"""Topology file: the leaf switches, or the blocks, of a cluster, as Slurm's topology.conf names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rmsplugin.errors import WorkloadError
from rmsplugin.model.hostlist import expand

#: Keys by their small letters: Slurm looks at no case. Those without a use here are known, and passed over.
_NAMES = ("switchname", "blockname")
_KEYS = {*_NAMES, "nodes", "switches", "linkspeed", "blocksizes"}
_PAIR = re.compile(r"([A-Za-z]+)=(\S+)")


def read_switches(text: str) -> tuple[frozenset[str], ...]:
    """The nodes of each switch that has nodes, and of each block, in their order.

    Raises:
        WorkloadError: the fault, with its line; or there is no switch with nodes.
    """
    found: list[frozenset[str]] = []
    of: dict[str, str] = {}  # by node, its switch
    for line, record in _records(text):
        name = next((record[key] for key in _NAMES if key in record), "")
        if not name or "nodes" not in record:
            continue
        try:
            nodes = expand(record["nodes"])
        except ValueError as error:
            raise WorkloadError(f"line {line}: {error}") from None
        for node in nodes:
            if node in of:
                raise WorkloadError(f"line {line}: {node} is on {of[node]} already: a node has one leaf switch")
        of |= dict.fromkeys(nodes, name)
        found.append(frozenset(nodes))
    if not found:
        raise WorkloadError("has no switch with nodes: write SwitchName=NAME Nodes=LIST, as in topology.conf")
    return tuple(found)


def _records(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The number of each line that says something, and its pairs, by keys in small letters."""
    line, said = 1, ""
    for number, part in enumerate(text.split("\n"), start=1):
        line = line if said else number
        said += part.partition("#")[0].rstrip()
        if said.endswith("\\"):  # the next line goes on
            said = said[:-1] + " "
            continue
        if said.strip():
            yield line, _pairs(said, line)
        said = ""
    if said.strip():
        yield line, _pairs(said, line)


def _pairs(said: str, line: int) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for word in said.split():
        pair = _PAIR.fullmatch(word)
        key = pair[1].lower() if pair else ""
        if pair is None or key not in _KEYS:
            raise WorkloadError(f"line {line}: {word!r} is nothing that topology.conf has: SwitchName=NAME Nodes=LIST")
        found[key] = pair[2]
    return found
