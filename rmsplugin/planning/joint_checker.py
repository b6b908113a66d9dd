"""Joint checker: rules about VMs beside each other, whatever the durations and failures of actions.

A VM may be at an end of one of its actions while an arrival begins, unless the arrival waits until it has left it, or
the VM itself comes there only after the arrival. At all these places no rule may be broken by the arrival.

Like ``rmsplugin.planning.order_checker``, of which it is a part, it shares nothing with the planner but the model's
values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VMState
from rmsplugin.model.joint import Capacity, Concerning, Gather, Joint, Online
from rmsplugin.model.rules import Held
from rmsplugin.planning.violations import Rule, Violation
from rmsplugin.planning.way_checker import outcome_of

_IN_MEMORY = (VMState.RUNNING, VMState.PAUSED)
_IN_PLACE = (ActionKind.PAUSE, ActionKind.UNPAUSE)


class _Stay(NamedTuple):
    """A VM's memory on a node: after an action, until another has ended (-1: since the start, to the end)."""

    vm: str
    node: str
    since: int
    until: int


def check_joint(source: Configuration, actions: Sequence[Action], waits: Sequence[int]) -> Iterator[Violation]:
    """A violation for each arrival that could break a rule in some interleaving.

    Args:
        source: the configuration in which the order begins.
        actions: of a plan that is right pool by pool.
        waits: for each action all that it waits for, directly or not, as the bits of a number.
    """
    rules = [rule for rule in source.joint if not rule.discrete]
    if not rules:
        return
    stays = list(_stays(source.locations, actions))
    on: dict[str, list[_Stay]] = {}
    of: dict[str, list[_Stay]] = {}
    for stay in stays:
        on.setdefault(stay.node, []).append(stay)
        of.setdefault(stay.vm, []).append(stay)
    concerning, elsewhere = Concerning(rules), {rule: _elsewhere(rule, stays, on) for rule in rules}
    hosting = {node for node, there in on.items() if any(map(_is_lasting, there))}
    for index, action in enumerate(actions):
        after = outcome_of(action)
        if after.state not in _IN_MEMORY or action.kind in _IN_PLACE or after.node is None:
            continue
        came = (action.vm.name, after.node)
        own = (*of[action.vm.name], *on.get(after.node, ()))
        here = [came, *((stay.vm, stay.node) for stay in own if _may_last(stay, index, waits))]
        for rule in concerning.of(action.vm.name):
            if _counts_nothing_more(rule, after.node, hosting):
                continue
            always, others = elsewhere[rule]
            held = [*here, *always, *((stay.vm, stay.node) for stay in others if _may_last(stay, index, waits))]
            broken = rule.broken(held, [came])
            if broken is not None:
                sentence = f"{broken}, if those that it does not wait for are slow, or fail"
                yield Violation(Rule.DESTINATION, None, action, sentence)


def _counts_nothing_more(rule: Joint, node: str, hosting: Collection[str]) -> bool:
    """Whether a rule that counts has no more to count by an arrival on a node; ``hosting``: always host some VM."""
    if isinstance(rule, Online):
        return node not in rule.nodes or node in hosting
    return isinstance(rule, Capacity) and node not in rule.nodes


def _elsewhere(
    rule: Joint, stays: Iterable[_Stay], on: Mapping[str, Sequence[_Stay]]
) -> tuple[list[Held], list[_Stay]]:
    """The stays on other nodes than that of an arrival that matter to a rule: those for ever, and the others."""
    found: list[_Stay] = []
    if isinstance(rule, (Gather, Capacity)):
        found = [stay for stay in stays if stay.vm in rule.vms]
    for node in rule.nodes if isinstance(rule, Online) else ():
        lasting = [stay for stay in on.get(node, ()) if _is_lasting(stay)]
        found += lasting[:1] or on.get(node, ())  # one VM that never leaves is enough for a node to host some
    always = [(stay.vm, stay.node) for stay in found if _is_lasting(stay)]
    return always, [stay for stay in found if not _is_lasting(stay)]


def _is_lasting(stay: _Stay) -> bool:
    """Whether a VM is there from the start to the end."""
    return (stay.since, stay.until) == (-1, -1)


def _may_last(stay: _Stay, index: int, waits: Sequence[int]) -> bool:
    """Whether a VM may be there while an action begins."""
    has_left = stay.until >= 0 and waits[index] >> stay.until & 1
    comes_later = stay.since >= 0 and (stay.since == index or waits[stay.since] >> index & 1)
    return not has_left and not comes_later


def _stays(locations: Mapping[str, Location], actions: Sequence[Action]) -> Iterator[_Stay]:
    ways: dict[str, list[int]] = {}
    for index, action in enumerate(actions):
        ways.setdefault(action.vm.name, []).append(index)
    for name, at in locations.items():
        place, since = at, -1
        for step in (*ways.get(name, ()), -1):
            if place.state in _IN_MEMORY and place.node is not None:
                yield _Stay(name, place.node, since, step)
            if step >= 0:
                place, since = outcome_of(actions[step]), step
