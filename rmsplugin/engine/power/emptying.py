"""Emptying: finds, in a cycle that has nothing else to do, a node that is little used and worth to be emptied.

Its VMs leave by the cycle's own plan, one node of a group at a time. Then it is an idle node as any other, and is
switched off as such (``powering``). Nothing is remembered but when to look again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from rmsplugin.adapters.power.base import PowerDriver
from rmsplugin.energy.emptying import Emptying, expected_rest_s, idle_after_s, may_pay
from rmsplugin.energy.power import PowerClass
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.decide.deciding import Proposes
from rmsplugin.engine.decide.emptying import Emptied, emptied_node, instead
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import next_reservation
from rmsplugin.engine.power.classes import PowerClasses, power_class
from rmsplugin.engine.power.idle import stays_on, switchable, with_files
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.forming import Formed
from rmsplugin.groups.splitting import split
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.prepared import Prepared, prepare
from rmsplugin.proposing.proposal import NoProposal
from rmsplugin.proposing.terms import Terms
from rmsplugin.settings import Settings

#: After a look in vain the next one comes after this time, then after twice as long each time, up to ``_MOST_S``.
_FIRST_S, _MOST_S = 30.0, 600.0


class Emptier:
    """Implements ``engine.decide.emptying.Empties``."""

    def __init__(
        self, settings: Settings, ledger: Ledger, clock: Clock, driver: PowerDriver, proposes: Proposes
    ) -> None:
        """Look at these; nothing was looked at yet. ``proposes`` finds plans, in processes of its own."""
        self._settings = settings
        self._empties = settings.planning.objective == "energy"
        self._ledger = ledger
        self._clock = clock
        self._driver = driver
        self._classes = PowerClasses(settings, ledger.power)
        self._proposes = proposes
        self._again_s, self._rests_s = 0.0, _FIRST_S
        self._known: tuple[str, ...] = ()  # the vjobs of the last cycle
        self._vain = False  # whether the last look was
        self._turn = self._next = 0  # the group of which a plan is asked for, and the one after it

    def find(
        self, seen: Observation, source: Configuration, prepared: Prepared, formed: Formed, at: Mapping[str, Assigned]
    ) -> Emptied | None:
        """See ``Empties``."""
        self._next, self._vain = self._turn, False
        if not self._may_look(source, prepared):
            return None
        parts, busy = list(_parts(source, formed, at)), self._busy()
        for turn in range(self._turn, len(parts)):
            part = parts[turn]
            if busy.isdisjoint(part.node_by_name) and not _waits(part) and (terms := self._terms(seen, part)).idle_s:
                found = self._in_part(source, prepared, part, terms)
                # One group a cycle is asked for a plan, which may take seconds.
                self._next = turn if found else (turn + 1) % len(parts)
                self._vain = found is None and self._next == 0
                return found
        self._next, self._vain = 0, True
        return None

    def looked(self, source: Configuration, found: Emptied | None) -> None:
        """See ``Empties``."""
        self._turn = self._next
        if not self._empties:
            return
        names = _names(source)
        if found is not None or names != self._known:
            self._rests_s, self._again_s = _FIRST_S, 0.0
        elif self._vain:
            self._again_s, self._rests_s = self._clock.now() + self._rests_s, min(_MOST_S, 2 * self._rests_s)
        self._known = names

    # -- inside --------------------------------------------------------------------------------------------------

    def _may_look(self, source: Configuration, prepared: Prepared) -> bool:
        """Whether the decision does nothing, so that a node may be emptied, and it is time to look."""
        proposal = prepared.proposal
        if not self._empties or proposal is None or prepared.fault:
            return False
        if prepared.parameters.quiet is not None or any(proposal.plan.actions()):
            return False
        remedy = proposal.remedy
        if remedy is not None and (remedy.reservations.held or remedy.waiting):
            return False
        on = self._ledger.power.idle_since().keys() - self._ledger.power.switches().keys()
        if len(on) < self._settings.power.reserve:
            return False  # the node would be one of those that stay on
        return _names(source) != self._known or self._clock.now() >= self._again_s

    def _busy(self) -> set[str]:
        """The nodes where a vjob has an operation under way, or a step before it."""
        found = {node for step in self._ledger.plans.open_steps() for node in step.hosts.values()}
        for operation in self._ledger.running_operations():
            for vm in self._ledger.vms(operation.job_id):
                found.update((vm.host, vm.destination, vm.image_node))
        return found

    def _in_part(self, source: Configuration, prepared: Prepared, part: Configuration, terms: Terms) -> Emptied | None:
        found = self._proposes.propose(part, replace(prepared.parameters, terms=terms)).found
        if isinstance(found, NoProposal):
            return None
        node, own = emptied_node(part, found), prepare(part, prepared.parameters, lambda source, parameters: found)
        if node is None or own.proposal is None or own.fault:
            return None
        return instead(source, prepared, own, node, _sentence(part, node, terms.idle_s[node]))

    def _terms(self, seen: Observation, part: Configuration) -> Terms:
        power = self._settings.power
        rests_s, emptying = _rests_s(part), Emptying(power.underload, power.repaid_s)
        idle_s = {name: self._idle_s(seen, name, rests_s[name]) for name in self._candidates(seen) if name in rests_s}
        worth = {name: s for name, s in idle_s.items() if may_pay(emptying, self._classes.of(name)[1], s)}
        return Terms(emptying, {node.name: self._watts(node.name) for node in part.nodes}, worth)

    def _watts(self, node: str) -> PowerClass:
        """The node's class; of one without a class the most that a busy CPU takes here."""
        name, power = self._classes.of(node)
        if name or not self._settings.power.classes:
            return power
        return power_class(max(self._settings.power.classes, key=lambda each: each.busy_w - each.idle_w))

    def _candidates(self, seen: Observation) -> list[str]:
        """The nodes that could be switched off if their VMs were elsewhere."""
        kept = with_files(self._settings, self._ledger)
        found = []
        for node in switchable(self._settings, self._driver, seen):
            power = self._classes.of(node)[1]
            period_s = power.threshold_s + power.on_s
            if node not in kept and not stays_on(self._settings, self._ledger, seen, node, period_s):
                found.append(node)
        return found

    def _idle_s(self, seen: Observation, node: str, rests_s: Collection[float]) -> float:
        """How much longer it has nothing, if it is emptied now."""
        name, power = self._classes.of(node)
        book = self._ledger.power
        alike = [since for each, since in book.idle_since().items() if self._classes.of(each)[1] == power]
        longest_s = max((seen.taken - since for since in alike), default=0.0)
        needed_s = next_reservation(self._settings, seen.rms, node, seen.taken) - seen.taken
        return idle_after_s(rests_s, book.averages().get(name), longest_s, needed_s)


def _parts(source: Configuration, formed: Formed, at: Mapping[str, Assigned]) -> Iterator[Configuration]:
    """The part of each group."""
    if len(formed.groups) <= 1:
        yield source
    else:
        yield from (part.configuration for part in split(source, formed.groups, at))


def _waits(part: Configuration) -> bool:
    """Whether a vjob waits for room: it may come to the node, or take what the VMs of the node would have."""
    return any(not vjob.in_transit and part.state(vjob) is not VJobState.RUNNING for vjob in part.vjobs)


def _names(source: Configuration) -> tuple[str, ...]:
    return tuple(vjob.name for vjob in source.vjobs)


def _rests_s(part: Configuration) -> Mapping[str, list[float]]:
    """By node, how long each vjob that has VMs there is expected to run on."""
    found: dict[str, list[float]] = {}
    for vjob in part.vjobs:
        rest_s = expected_rest_s(vjob.ran_s, vjob.time_limit_s)
        for node in dict.fromkeys(part.locations[vm.name].node for vm in vjob.vms):
            if node is not None:
                found.setdefault(node, []).append(rest_s)
    return found


def _sentence(part: Configuration, node: str, idle_s: float) -> str:
    used, size = part.used[node], part.node_by_name[node].capacity
    cpus, memory = (100 * used.cpus / max(1, size.cpus), 100 * used.memory_mib / max(1, size.memory_mib))
    use = f"{cpus:.0f} % of its CPUs and {memory:.0f} % of its memory are used"
    until = f"it will probably have nothing for {idle_s:.0f} s"
    return f"{node} is emptied, so that it can be switched off: {use}, and {until}"
