"""Standing: the vjobs' standing in a decision by counting: which goes first, which makes way last. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from rmsplugin.decision.expansion import expansion, overdue, part_of, protected, still_expected_s
from rmsplugin.decision.parameters import ActionDuration, Parameters
from rmsplugin.decision.shares import beyond
from rmsplugin.decision.switching import SHARED_SWITCHES
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.simulation.counted import Held
from rmsplugin.simulation.vjob import SimulatedVJob


@dataclass
class Moved:
    """The vjobs whose state a decision changes, so far."""

    starts: list[SimulatedVJob] = field(default_factory=list)
    goes: list[SimulatedVJob] = field(default_factory=list)
    ever: set[SimulatedVJob] = field(default_factory=set)  # whether they still are changed, or are not any more

    def copy(self) -> Moved:
        """An independent copy."""
        return Moved(list(self.starts), list(self.goes), set(self.ever))

    def goes_on(self, vjob: SimulatedVJob) -> None:
        """Record that a vjob runs: it starts, or it does not make way after all."""
        self.ever.add(vjob)
        if vjob in self.goes:
            self.goes.remove(vjob)
        else:
            self.starts.append(vjob)

    def go(self, vjobs: Collection[SimulatedVJob]) -> None:
        """Record that these make way."""
        self.ever.update(vjobs)
        self.goes += vjobs

    def runs(self, vjob: SimulatedVJob) -> bool:
        """Whether a vjob then runs."""
        if vjob not in self.ever:
            return vjob.state is VJobState.RUNNING
        return vjob in self.starts or (vjob.state is VJobState.RUNNING and vjob not in self.goes)


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """The standing of one vjob.

    Attributes:
        due: whether it is protected because it is overdue.
        beyond: whether its user has more than his share with it.
        rank: the order of ready vjobs; a smaller one goes first.
        stays: the order of running vjobs; a smaller one makes way later.
    """

    vjob: SimulatedVJob
    places: int
    demand: Resources
    expansion: float
    waited_s: float
    needed_s: float
    due: bool
    beyond: bool
    rank: tuple[bool, bool, float, int]
    stays: tuple[bool, float, int]

    @property
    def user(self) -> str:
        """The user of the vjob."""
        return self.vjob.job.user


@dataclass(frozen=True, slots=True)
class _Times:
    vjob: SimulatedVJob
    runs: bool
    ran_s: float
    waited_s: float
    needed_s: float
    expansion: float
    demand: Resources


def standings(
    vjobs: Iterable[SimulatedVJob], now: float, then: Moved, held: Held, parameters: Parameters, whole: Resources
) -> dict[SimulatedVJob, Standing]:
    """The standing of these vjobs, by ``rmsplugin.decision.slowdown``.

    Args:
        vjobs: the vjobs about which something is decided.
        now: the time.
        then: the decisions so far.
        held: the holdings of the other vjobs.
        parameters: the parameters of the decision.
        whole: the resources of all nodes together.
    """
    times = [_times(vjob, now, then) for vjob in vjobs]
    over = _beyond(times, held, parameters.slowdown.user_share, whole)
    due = _due([each for each in times if each.vjob not in over], now, then, parameters, whole)
    by_queue = parameters.slowdown.slurm_priority == "order"
    found = {}
    for each in times:
        vjob = each.vjob
        is_due, is_over = vjob in due, vjob in over
        rank = (is_over, not is_due, 0.0 if by_queue else -each.expansion, vjob.number)
        stays = (is_over, -each.ran_s, vjob.number)
        places, its = len(vjob.names), each.expansion
        found[vjob] = Standing(
            vjob, places, each.demand, its, each.waited_s, each.needed_s, is_due, is_over, rank, stays
        )
    return found


def exempt_for_s(vjob: SimulatedVJob, now: float, parameters: Parameters) -> float:
    """The seconds for which a running vjob is not suspended, because it was started or resumed just now."""
    durations, memory_mib = parameters.durations, vjob.requested.memory_mib
    least_s = sum(each.constant_s + each.s_per_mib * memory_mib for each in (durations.suspend, durations.resume))
    exempt_s = max(parameters.exempt_s, parameters.slowdown.switches * least_s)
    exempt_s = max(exempt_s, SHARED_SWITCHES * switch_s(vjob, parameters))
    return max(0.0, exempt_s - (now - vjob.since_s))


def switch_s(vjob: SimulatedVJob, parameters: Parameters) -> float:
    """The seconds that it takes to suspend a vjob, and to resume it."""
    durations = parameters.durations
    return takes_s(durations.suspend, vjob) + takes_s(durations.resume, vjob)


def takes_s(duration: ActionDuration, vjob: SimulatedVJob) -> float:
    """The seconds of an action on all VMs of a vjob, as ``ActionDuration.of`` says: VMs of a node share its storage."""
    if not duration.s_per_mib:
        return duration.constant_s
    where = Counter((vjob.hosts or vjob.images).values())
    return duration.constant_s + duration.s_per_mib * vjob.requested.memory_mib * max(where.values(), default=1)


def _times(vjob: SimulatedVJob, now: float, then: Moved) -> _Times:
    ran_s = vjob.run_s + (now - vjob.since_s if vjob.state is VJobState.RUNNING else 0.0)
    waited_s = max(0.0, now - vjob.job.submit_s - ran_s)
    needed_s = still_expected_s(vjob.job.estimate_s, ran_s)
    vms, size = len(vjob.names), vjob.requested
    demand = Resources(size.cpus * vms, size.memory_mib * vms)
    return _Times(vjob, then.runs(vjob), ran_s, waited_s, needed_s, expansion(waited_s, needed_s), demand)


def _beyond(times: Iterable[_Times], held: Held, share: float, whole: Resources) -> frozenset[SimulatedVJob]:
    """The vjobs with which their users have more than their share."""
    if share >= 1:
        return frozenset()

    def kept(each: _Times) -> tuple[bool, float, int]:
        return not each.runs, -(each.ran_s if each.runs else each.expansion), each.vjob.number

    def all_parts() -> Iterator[tuple[SimulatedVJob | None, str, float]]:
        for user, demand in held.of_users:
            yield None, user, part_of(demand, whole)
        for each in sorted(times, key=kept):
            yield each.vjob, each.vjob.job.user, part_of(each.demand, whole)

    return frozenset(vjob for vjob in beyond(all_parts(), share) if vjob is not None)


def _due(
    times: Iterable[_Times], now: float, then: Moved, parameters: Parameters, whole: Resources
) -> Collection[SimulatedVJob]:
    """The vjobs that are protected because they are overdue."""
    late = []
    for each in times:
        vjob = each.vjob
        much = overdue(each.waited_s, vjob.job.estimate_s, each.ran_s, parameters.slowdown)
        if much > 1:
            runs_s = (0.0 if vjob in then.ever else now - vjob.since_s) if each.runs else None
            late.append((vjob, runs_s, much, part_of(each.demand, whole)))
    late.sort(key=lambda each: each[0].number)
    return frozenset(protected(late))
