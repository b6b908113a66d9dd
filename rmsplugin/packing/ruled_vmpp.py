"""Ruled VMPP: the fewest nodes for VMs with rules about VMs beside each other.

The packing in classes of equal VMs comes first, as if there were no such rules: its bound is one in any case. If its
answer breaks a rule, VMs are placed by First Fit Decreasing that asks the rules; few VMs by an integer program, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rmsplugin.model.elements import Node
from rmsplugin.model.joint import Concerning, Joint
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit, obeys
from rmsplugin.packing.ruled_program import Answer, Wish, solve
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, Packing, pack

#: The part of the limits for the packing without these rules.
_SHARE = 0.5


def pack_by_rules(
    items: Sequence[Item],
    nodes: Sequence[Node],
    rules: Sequence[Joint],
    homes: Mapping[str, str],
    search: Search,
    current: Mapping[str, str],
) -> Packing | NoPacking:
    """Host all VMs on few nodes, as ``pack`` does, so that they obey all rules.

    Args:
        items: see ``pack``.
        nodes: see ``pack``.
        rules: all rules about VMs beside each other.
        homes: the node of each VM that has memory at present.
        search: see ``pack``.
        current: see ``pack``.
    """
    relaxed = pack(items, nodes, search.part(_SHARE), current)
    if isinstance(relaxed, NoPacking) or not items:
        return relaxed
    first = _first_fit(items, nodes, rules, homes)
    ffd = None if first is None else len(set(first.values()))
    if obeys(Concerning(rules), homes, relaxed.assignment):
        return replace(relaxed, ffd_nodes_used=ffd)
    wish = Wish(a_node=1, hint=first or {})
    found = solve(items, nodes, rules, homes, {}, wish, Budget(search.part(1 - _SHARE)))
    if found is not None and found.bound is None:
        return NoPacking(f"the {len(rules)} rules and the room on nodes leave no place for all VMs together", True)
    best = _fewest(first, found)
    if best is None:
        return NoPacking(f"no packing of {len(items)} VMs that obeys all rules was found within the limits", False)
    used = len(set(best.values()))
    proven = relaxed.lower_bound if found is None else max(relaxed.lower_bound, found.bound or 0)
    return Packing(best, used, min(used, proven), ffd)


def _first_fit(
    items: Sequence[Item], nodes: Sequence[Node], rules: Sequence[Joint], homes: Mapping[str, str]
) -> dict[str, str] | None:
    found = RuledFit(nodes, Concerning(rules), homes, [item.vm for item in items]).place(items, {})
    return None if isinstance(found, Obstacle) else found


def _fewest(first: dict[str, str] | None, found: Answer | None) -> dict[str, str] | None:
    answers = [each for each in (first, None if found is None else found.hosts) if each is not None]
    return min(answers, key=lambda hosts: len(set(hosts.values())), default=None)
