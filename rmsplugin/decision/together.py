"""Together: what of a vjob lies on one node. A node saves and restores states at the rate of its storage. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VJob


def with_what_lies_together(configuration: Configuration) -> Configuration:
    """The same configuration, whose vjobs know how much of their memory is on one node at most (docs/decisions/0153).

    Of a vjob that has not begun nobody knows; nor where states will be restored that lie on storage of all nodes.
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
