"""Together: the part of a vjob on one node. A node saves and restores states at the rate of its storage. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VJob


def with_what_lies_together(configuration: Configuration) -> Configuration:
    """The same configuration; each vjob knows the most of its memory that is on one node (docs/decisions/0153).

    For a vjob that has not begun this is unknown; so it is for states on storage of all nodes, which may be restored
    anywhere.
    """
    vjobs = tuple(
        vjob if len(vjob.vms) == 1 else replace(vjob, together_mib=_together_mib(vjob, configuration))
        for vjob in configuration.vjobs
    )
    return Configuration(configuration.nodes, vjobs, configuration.locations, checked=True)


def _together_mib(vjob: VJob, configuration: Configuration) -> int:
    found: Counter[str] = Counter()
    for vm in vjob.vms:
        node = configuration.locations[vm.name].node
        if node is not None and node != SHARED:
            found[node] += vm.demand.memory_mib
    return max(found.values(), default=0)
