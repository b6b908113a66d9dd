"""Joint rules of random instances, and what each means in the plainest words: shared by tests of rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from hypothesis import strategies as st

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Part, Root, Split, Spread, Within
from rmsplugin.model.rules import Ban, Fence, Held

KINDS = (Spread, Gather, Lonely, Split, Root, Capacity, Online, Part, Within)


@st.composite
def with_rules(draw: st.DrawFn, source: Configuration, most: int = 3) -> Configuration:
    """The configuration with a few rules about its VMs."""
    vms = sorted(source.vm_by_name)
    nodes = [node.name for node in source.nodes]
    rules = [draw(joint_rule(vms, nodes)) for _ in range(draw(st.integers(1, most)))]
    vjobs = []
    for vjob in source.vjobs:
        own = [rule for rule in rules if any(rule.concerns(vm.name) for vm in vjob.vms)]
        vjobs.append(replace(vjob, rules=(*vjob.rules, *own)))
    return Configuration(source.nodes, tuple(vjobs), source.locations)


@st.composite
def joint_rule(draw: st.DrawFn, vms: Sequence[str], nodes: Sequence[str]) -> Joint:
    kind = draw(st.sampled_from(KINDS))
    some = frozenset(draw(st.sets(st.sampled_from(vms), min_size=1, max_size=4)))
    where = frozenset(draw(st.sets(st.sampled_from(nodes), min_size=1)))
    discrete = draw(st.booleans())
    if kind is Root:
        return Root(some)
    if kind is Split:
        cut = draw(st.integers(0, len(some)))
        return Split((frozenset(sorted(some)[:cut]), frozenset(sorted(some)[cut:])), discrete)
    if kind is Capacity:
        return Capacity(where, some, draw(st.integers(0, 2)), discrete)
    if kind is Online:
        return Online(where, draw(st.integers(0, 2)), discrete)
    if kind is Within:
        sets = (where, frozenset(nodes) - where) if draw(st.booleans()) else (where,)
        return Within(tuple(each for each in sets if each), some, draw(st.integers(0, 2)), discrete)
    if kind is Part:
        return Part(some, draw(st.sampled_from([Fence, Ban]))(where, discrete))
    if kind is Lonely:
        return Lonely(some, discrete, friends=frozenset(draw(st.sets(st.sampled_from(vms)))) - some)
    return kind(some, discrete)


def holds(rule: Joint, held: Collection[Held], homes: dict[str, str]) -> bool:
    """Whether VMs with memory at these places obey a rule, whoever came first."""
    on: dict[str, set[str]] = {}
    for vm, node in held:
        on.setdefault(node, set()).add(vm)
    match rule:
        case Spread(vms=vms):
            return all(len(here & vms) <= 1 for here in on.values())
        case Gather(vms=vms):
            there = [(vm, node) for vm, node in held if vm in vms]
            return all(a[0] == b[0] or a[1] == b[1] for a, b in combinations(there, 2))
        case Lonely(vms=vms, friends=friends):
            return all(here <= vms | friends or not here & vms for here in on.values())
        case Split(groups=groups):
            return all(sum(bool(here & group) for group in groups) <= 1 for here in on.values())
        case Root(vms=vms):
            return all(vm not in vms or homes.get(vm, node) == node for vm, node in held)
        case Capacity(nodes=nodes, vms=vms, most=most):
            return len({vm for vm, node in held if vm in vms and node in nodes}) <= most
        case Online(nodes=nodes, most=most):
            return len(on.keys() & nodes) <= most
        case Within(sets=sets, vms=vms, most=most):
            there = {node for vm, node in held if vm in vms}
            in_none = [node for node in there if not any(node in each for each in sets)]
            return sum(not each.isdisjoint(there) for each in sets) + len(in_none) <= most
        case Part(vms=vms, rule=Fence(nodes=nodes)):
            return all(vm not in vms or node in nodes for vm, node in held)
        case Part(vms=vms, rule=Ban(nodes=nodes)):
            return all(vm not in vms or node not in nodes for vm, node in held)
    raise AssertionError(rule)


def steps(source: Configuration, pools: Sequence[Sequence[object]]) -> Iterator[set[Held]]:
    """The places of all VMs with memory while each pool is carried out: at both ends of each action."""
    from rmsplugin.model.action import Action

    locations = dict(source.locations)
    for pool in pools:
        before = {(name, at.node) for name, at in locations.items() if at.state.holds_memory and at.node}
        for action in pool:
            assert isinstance(action, Action)
            locations[action.vm.name] = action.after
        yield before | {(name, at.node) for name, at in locations.items() if at.state.holds_memory and at.node}
