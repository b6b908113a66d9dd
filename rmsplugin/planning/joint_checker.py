"""Joint checker: rules about VMs beside each other, whatever the durations and failures of actions.

A VM may be at an end of one of its actions while an arrival begins, unless the arrival waits until it has left it, or
the VM itself comes there only after the arrival. At all these places no rule may be broken by the arrival.

Like ``rmsplugin.planning.order_checker``, of which it is a part, it shares nothing with the planner but the model's
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, VMState
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Within
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
    concerning = source.concerning_steps
    if not concerning.rules:
        return
    there = _There(source.locations, actions)
    elsewhere: dict[int, tuple[list[Held], list[_Stay]]] = {}  # by the rule's identity; of those that are asked
    for index, action in enumerate(actions):
        after = outcome_of(action)
        if after.state not in _IN_MEMORY or action.kind in _IN_PLACE or after.node is None:
            continue
        came = (action.vm.name, after.node)
        own = (*there.of[action.vm.name], *there.passing.get(after.node, ()))
        here = [came, *there.lasting.get(after.node, ()), *_may_last(own, index, waits)]
        for rule in concerning.of(action.vm.name):
            if _is_aside(rule, came, there):
                continue
            if id(rule) not in elsewhere:
                elsewhere[id(rule)] = _elsewhere(rule, there)
            always, others = elsewhere[id(rule)]
            broken = rule.broken([*here, *always, *_may_last(others, index, waits)], [came])
            if broken is not None:
                sentence = f"{broken}, if those that it does not wait for are slow, or fail"
                yield Violation(Rule.DESTINATION, None, action, sentence)


class _There:
    """The stays of VMs by node, those for ever (``lasting``) and the others (``passing``); and by VM (``of``)."""

    def __init__(self, locations: Mapping[str, Location], actions: Sequence[Action]) -> None:
        self.lasting: dict[str, list[Held]] = {}
        self.passing: dict[str, list[_Stay]] = {}
        self.of: dict[str, list[_Stay]] = {}
        self._nodes: dict[int, set[str]] = {}
        for stay in _stays(locations, actions):
            self.of.setdefault(stay.vm, []).append(stay)
            if _is_lasting(stay):
                self.lasting.setdefault(stay.node, []).append((stay.vm, stay.node))
            else:
                self.passing.setdefault(stay.node, []).append(stay)

    def nodes_of(self, rule: Lonely) -> set[str]:
        """All nodes where one of the rule's own VMs ever is."""
        if id(rule) not in self._nodes:
            self._nodes[id(rule)] = {stay.node for vm in rule.vms for stay in self.of.get(vm, ())}
        return self._nodes[id(rule)]


def _is_aside(rule: Joint, came: Held, there: _There) -> bool:
    """Whether an arrival cannot break a rule, whoever is there: most arrivals, of rules that are about all VMs."""
    vm, node = came
    if isinstance(rule, Online):
        return node not in rule.nodes or node in there.lasting
    if isinstance(rule, Lonely):
        return vm not in rule.vms and node not in there.nodes_of(rule)
    return isinstance(rule, Capacity) and node not in rule.nodes


def _elsewhere(rule: Joint, there: _There) -> tuple[list[Held], list[_Stay]]:
    """The stays on other nodes than that of an arrival that matter to a rule: those for ever, and the others."""
    if isinstance(rule, Online):  # one VM that never leaves is enough for a node to host some
        always = [there.lasting[node][0] for node in rule.nodes if node in there.lasting]
        return always, [
            stay for node in rule.nodes if node not in there.lasting for stay in there.passing.get(node, ())
        ]
    found: list[_Stay] = []
    if isinstance(rule, (Gather, Capacity, Within)):
        found = [stay for vm in rule.vms for stay in there.of.get(vm, ())]
    always = [(stay.vm, stay.node) for stay in found if _is_lasting(stay)]
    return always, [stay for stay in found if not _is_lasting(stay)]


def _is_lasting(stay: _Stay) -> bool:
    """Whether a VM is there from the start to the end."""
    return (stay.since, stay.until) == (-1, -1)


def _may_last(stays: Iterable[_Stay], index: int, waits: Sequence[int]) -> Iterator[Held]:
    """The places where VMs may be while an action begins, of their stays."""
    for stay in stays:
        has_left = stay.until >= 0 and waits[index] >> stay.until & 1
        comes_later = stay.since >= 0 and (stay.since == index or waits[stay.since] >> index & 1)
        if not has_left and not comes_later:
            yield stay.vm, stay.node


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
