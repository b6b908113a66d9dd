"""Given rules: rules about named VMs, as the rules of the vjobs that have these VMs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from rmsplugin.model.elements import VJob
from rmsplugin.model.joint import Part
from rmsplugin.model.rules import Ban, Fence, Rule

#: A rule, and the names of the VMs that it is about; None: those of all vjobs.
About = tuple[Rule, Collection[str] | None]


def given_rules(vjobs: Sequence[VJob], rules: Iterable[About]) -> list[VJob]:
    """The vjobs, each with the rules about its VMs, in their order.

    A fence or a ban for all VMs of a vjob is a rule of the vjob; one for some of them is a ``Part``.
    """
    vjob_of = {vm.name: number for number, vjob in enumerate(vjobs) for vm in vjob.vms}
    more: list[list[Rule]] = [[] for _ in vjobs]
    for rule, names in rules:
        for number in range(len(vjobs)) if names is None else _vjobs_of(names, vjob_of):
            more[number].append(_for(vjobs[number], rule, names))
    shared: dict[tuple[Rule, ...], tuple[Rule, ...]] = {}  # equal ones are one object: they are compared fast
    found = []
    for vjob, own in zip(vjobs, more, strict=True):
        whole = (*vjob.rules, *own)
        found.append(replace(vjob, rules=shared.setdefault(whole, whole)) if own else vjob)
    return found


def _vjobs_of(vms: Iterable[str], vjob_of: Mapping[str, int]) -> dict[int, None]:
    return dict.fromkeys(vjob_of[vm] for vm in vms)


def _for(vjob: VJob, rule: Rule, names: Collection[str] | None) -> Rule:
    if names is None or not isinstance(rule, (Fence, Ban)):
        return rule
    own = frozenset(names).intersection(vm.name for vm in vjob.vms)
    return rule if len(own) == len(vjob.vms) else Part(own, rule)
