"""Site rules: the placement rules of the settings, and the wishes of users, as rules of vjobs.

A fence or a ban leaves a vjob fewer nodes, wherever its nodes are asked for (``assess.queue.allowed_hosts``). A reserve
leaves its nodes less (``capacity.observed_memory``). All others are about VMs beside each other, and are made here. So
are those by ``sbatch --spread-job``, ``--switches``, and ``--exclusive``, alone or with ``=user`` or ``=mcs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.topology import NO_TOPOLOGY, Topology
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.given_rules import About, given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Root, Split, Spread, Within
from rmsplugin.model.vjob import Geometry
from rmsplugin.settings import Settings
from rmsplugin.settings.rules import PlacementRule, Traits, license_names

#: Kinds of rules that leave vjobs fewer nodes.
_CLOSING = ("fence", "ban")
#: Kinds of rules that leave vjobs fewer nodes, or nodes less room: none is about VMs beside each other.
_OF_NODES = (*_CLOSING, "reserve")


class Member(NamedTuple):
    """A vjob, its traits, and the names of its VMs, or of some of them."""

    vjob: str
    traits: Traits
    vms: tuple[str, ...]


def there_are_rules(settings: Settings, ledger: Ledger, seen: Observation) -> bool:
    """Whether the site has rules, or a vjob wishes; asked once a look."""
    if settings.rule:
        return True
    asked = seen.derived.wished
    if not asked:
        asked.append(any(vjob.geometry.wishing for vjob in ledger.vjobs()))
    return asked[0]


def traits_of_job(job: RmsJob, geometry: Geometry) -> Traits:
    """The traits of a vjob by its job and its request."""
    whose = job.name, job.user, job.account, job.partition, license_names(job.licenses)
    return Traits(*whose, geometry.wishes, geometry.switches, job.mcs_label)


def traits_of(seen: Observation, vjob: VJobRow) -> Traits:
    """The traits of a vjob with a row; if its job is not seen any more, account, licences and label are not known."""
    job = seen.jobs.get(vjob.job_id)
    if job is not None:
        return traits_of_job(job, vjob.geometry)
    geometry = vjob.geometry
    return Traits(vjob.job_name, vjob.user, "", vjob.partition, frozenset(), geometry.wishes, geometry.switches)


def closing_rules(rules: Mapping[str, PlacementRule], traits: Traits) -> tuple[str, ...]:
    """The names of the fences and bans that select a vjob."""
    return tuple(name for name, rule in rules.items() if rule.kind in _CLOSING and rule.selects(traits))


def open_nodes(rules: Mapping[str, PlacementRule], nodes: frozenset[str], closing: Iterable[str]) -> frozenset[str]:
    """The nodes that the fences and bans of these names leave."""
    for name in closing:
        rule = rules[name]
        nodes = nodes & rule.hosts if rule.kind == "fence" else nodes - rule.hosts
    return nodes


def ruled(
    settings: Settings, topology: Topology, configuration: Configuration, traits: Mapping[str, Traits]
) -> Configuration:
    """The configuration in which each vjob has the rules about its VMs beside others.

    Args:
        settings: with the rules.
        topology: the switches of the nodes.
        configuration: vjobs, and stand-ins for those in transit.
        traits: by the name of each vjob.

    Raises:
        UnavailableError: switches have to be known, and the RMS does not tell them.
    """
    members = []
    for vjob in configuration.vjobs:
        owner = vjob.name.partition("@")[0] if vjob.in_transit else vjob.name
        if owner in traits:
            members.append(Member(owner, traits[owner], tuple(vm.name for vm in vjob.vms)))
    nodes = frozenset(node.name for node in configuration.nodes)
    about = beside(settings.rule, members, nodes, topology)
    return replace(configuration, vjobs=tuple(given_rules(configuration.vjobs, about)), checked=True)


def beside(
    rules: Mapping[str, PlacementRule],
    members: Sequence[Member],
    nodes: frozenset[str],
    topology: Topology = NO_TOPOLOGY,
) -> list[About]:
    """The rules about VMs beside each other, each with the VMs that it is about.

    Args:
        rules: of the settings, by name.
        members: all vjobs.
        nodes: all VM hosts.
        topology: their switches.

    Raises:
        UnavailableError: switches have to be known, and the RMS does not tell them.
    """
    found: list[About] = []
    for name, rule in rules.items():
        if rule.kind not in _OF_NODES:
            found += _made(name, rule, Selected(rule, members).groups, nodes)
    return found + [(rule, rule.names) for rule in wished(members, nodes, topology)]


class Selected:
    """The VMs that a rule selects, by what it holds for by itself, while vjobs come and go."""

    def __init__(self, rule: PlacementRule, members: Iterable[Member] = ()) -> None:
        self._rule = rule
        self._vms: dict[str, dict[str, None]] = {}
        self._frozen: dict[str, frozenset[str]] = {}
        for member in members:
            self.add(member)

    def add(self, member: Member) -> None:
        """A vjob has come."""
        if self._rule.selects(member.traits):
            whose = self._whose(member)
            self._vms.setdefault(whose, {}).update(dict.fromkeys(member.vms))
            self._frozen.pop(whose, None)

    def remove(self, member: Member) -> None:
        """A vjob that had come has gone."""
        whose = self._whose(member)
        if not self._rule.selects(member.traits) or whose not in self._vms:
            return
        for vm in member.vms:
            self._vms[whose].pop(vm, None)
        if not self._vms[whose]:
            del self._vms[whose]
        self._frozen.pop(whose, None)

    @property
    def groups(self) -> dict[str, frozenset[str]]:
        """The VMs of each."""
        return {whose: self._group(whose) for whose in self._vms}

    def groups_for(self, member: Member) -> dict[str, frozenset[str]]:
        """Those groups on which it depends where the VMs of one vjob may be."""
        if self._rule.kind == "lonely":
            return self.groups
        if not self._rule.selects(member.traits):
            return {}
        whose = self._whose(member)
        return self.groups if self._rule.kind == "split" else {whose: self._group(whose)}

    def _group(self, whose: str) -> frozenset[str]:
        if whose not in self._frozen:
            self._frozen[whose] = frozenset(self._vms.get(whose, ()))
        return self._frozen[whose]

    def _whose(self, member: Member) -> str:
        if self._rule.per == "vjob":
            return member.vjob
        return "" if self._rule.per == "all" else str(getattr(member.traits, self._rule.per))


def rules_for(
    member: Member, rules: Mapping[str, PlacementRule], selected: Mapping[str, Selected], nodes: frozenset[str]
) -> Iterator[Joint]:
    """Those rules of the settings about VMs beside each other that are about a vjob's VMs.

    Args:
        member: the vjob; it is among the selected ones.
        rules: of the settings, by name.
        selected: the VMs that each selects.
        nodes: all VM hosts.
    """
    for name, rule in rules.items():
        if rule.kind not in _OF_NODES:
            yield from (about[0] for about in _made(name, rule, selected[name].groups_for(member), nodes))


def _made(
    name: str, rule: PlacementRule, groups: Mapping[str, frozenset[str]], nodes: frozenset[str]
) -> Iterator[tuple[Joint, frozenset[str] | None]]:
    """A rule of the settings for these groups of VMs."""
    if rule.kind == "online":
        assert rule.most is not None
        yield Online(rule.hosts or nodes, rule.most, rule.discrete, name), None
    elif rule.kind == "split":
        if len(groups) > 1:
            yield Split(tuple(groups.values()), rule.discrete, name), frozenset().union(*groups.values())
    else:
        least, make = _MADE[rule.kind]
        for group in groups.values():
            if len(group) >= least:
                yield make(rule, group, nodes, name), group


def wished(members: Sequence[Member], nodes: frozenset[str], topology: Topology) -> Iterator[Joint]:
    """The rules that users wish for their own VMs.

    Args:
        members: all vjobs.
        nodes: all VM hosts.
        topology: their switches.

    Raises:
        UnavailableError: switches have to be known, and the RMS does not tell them.
    """
    if not any(member.traits.wishing for member in members):
        return
    apart: dict[str, list[str]] = {}
    alone: dict[str, list[str]] = {}
    own: dict[str, _Own] = {}
    labelled: dict[str, _Own] = {}
    for member in members:
        wishes, label = member.traits.wishes, member.traits.label
        if "spread" in wishes:
            apart.setdefault(member.vjob, []).extend(member.vms)
        if "alone" in wishes:
            alone.setdefault(member.vjob, []).extend(member.vms)
        own.setdefault(member.traits.user, _Own()).add(member, "exclusive" in wishes)
        labelled.setdefault(label, _Own()).add(member, "labelled" in wishes)
    for vms in apart.values():
        if len(vms) > 1:
            yield Spread(frozenset(vms), label="--spread-job")
    for option, groups in (("--exclusive=user", own), ("--exclusive=mcs", labelled)):
        for group in groups.values():
            if group.wishing:
                yield Lonely(frozenset(group.wishing), label=option, friends=frozenset(group.friends))
    yield from _near([member for member in members if member.traits.switches], nodes, topology)
    yield from _alone([frozenset(vms) for vms in alone.values()])


@dataclass(slots=True)
class _Own:
    """The VMs of one user or label: those whose users wish no others beside them, and those that may be there."""

    wishing: list[str] = field(default_factory=list)
    friends: list[str] = field(default_factory=list)

    def add(self, member: Member, wishes: bool) -> None:
        """Add the VMs of a vjob."""
        (self.wishing if wishes else self.friends).extend(member.vms)


def _near(members: Sequence[Member], nodes: frozenset[str], topology: Topology) -> Iterator[Joint]:
    """The rules of vjobs on few switches each.

    There is none for a vjob that could not break it where it ends: it has no more VMs, or the hosts no more switches.
    """
    vms: dict[str, dict[str, None]] = {}
    most = {member.vjob: member.traits.switches for member in members}
    for member in members:
        vms.setdefault(member.vjob, {}).update(dict.fromkeys(member.vms))
    several = [vjob for vjob in vms if len(vms[vjob]) > most[vjob]]
    switches = topology.switches() if several else ()
    sets = tuple(here for switch in switches if (here := switch & nodes))
    number = len(sets) + len(nodes.difference(*sets))
    for vjob in several if sets else ():
        if number > most[vjob]:
            yield Within(sets, frozenset(vms[vjob]), most[vjob], label=f"--switches={most[vjob]}")


def _alone(groups: Sequence[frozenset[str]]) -> Iterator[Joint]:
    """The rules of vjobs each of which is beside nobody: two at most, as each is asked for each place of a VM."""
    if groups:
        yield Lonely(frozenset().union(*groups), label="--exclusive")
    if len(groups) > 1:
        yield Split(tuple(groups), label="--exclusive")


#: By kind, the fewest VMs about which it says anything, and the rule.
_MADE: dict[str, tuple[int, Callable[[PlacementRule, frozenset[str], frozenset[str], str], Joint]]] = {
    "spread": (2, lambda rule, vms, _, name: Spread(vms, rule.discrete, name)),
    "gather": (2, lambda rule, vms, _, name: Gather(vms, rule.discrete, name)),
    "lonely": (1, lambda rule, vms, _, name: Lonely(vms, rule.discrete, name)),
    "root": (1, lambda _, vms, __, name: Root(vms, label=name)),
    "capacity": (
        1,
        lambda rule, vms, nodes, name: Capacity(rule.hosts or nodes, vms, rule.most or 0, rule.discrete, name),
    ),
}
