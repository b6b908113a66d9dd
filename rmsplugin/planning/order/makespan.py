"""Makespan: how long a plan takes, estimated from how long each kind of action takes by itself.

An action is a constant time, then (migrate, suspend, resume) a transfer whose time grows with the VM's memory
(RR-6929 section 2.3). Transfers that use one node at the same time share its bandwidth equally; one that uses two nodes
(migrate, remote resume) goes on at the pace of the slower.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.elements import SHARED
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Duration:
    """How long one kind of action takes by itself: ``constant_s`` and ``s_per_mib`` for each MiB of the VM's memory."""

    constant_s: float
    s_per_mib: float = 0.0


def _grows(values: Mapping[str, float], name: str) -> Duration:
    return Duration(values[f"{name}_s"], values[f"{name}_s_per_mib"])


@dataclass(frozen=True, slots=True)
class Durations:
    """How long each kind of action takes by itself; the defaults are ``rmsplugin.model.durations.DEFAULTS``."""

    run: Duration = Duration(DEFAULTS["run_s"])
    stop: Duration = Duration(DEFAULTS["stop_s"])
    migrate: Duration = Duration(DEFAULTS["migrate_s"], DEFAULTS["migrate_s_per_mib"])
    suspend: Duration = Duration(DEFAULTS["suspend_s"], DEFAULTS["suspend_s_per_mib"])
    resume_local: Duration = Duration(DEFAULTS["resume_s"], DEFAULTS["resume_s_per_mib"])
    resume_remote: Duration = Duration(DEFAULTS["remote_resume_s"], DEFAULTS["remote_resume_s_per_mib"])
    pipeline_s: float = DEFAULTS["pipeline_s"]  # between the beginnings of two suspends, or resumes, of one vjob

    @classmethod
    def from_values(cls, values: Mapping[str, float]) -> Durations:
        """Durations from the keys and values of section [durations] of the settings (which this layer does not know).

        Raises:
            KeyError: a key is missing.
        """
        return cls(
            Duration(values["run_s"]),
            Duration(values["stop_s"]),
            _grows(values, "migrate"),
            _grows(values, "suspend"),
            _grows(values, "resume"),
            _grows(values, "remote_resume"),
            values["pipeline_s"],
        )

    def of(self, action: Action) -> Duration:
        """How long an action takes by itself."""
        match action.kind:
            case ActionKind.RUN:
                return self.run
            case ActionKind.STOP:
                return self.stop
            case ActionKind.MIGRATE:
                return self.migrate
            case ActionKind.SUSPEND:
                return self.suspend
            case ActionKind.RESUME:
                return self.resume_local if action.is_local else self.resume_remote


@dataclass(frozen=True, slots=True)
class Makespan:
    """Estimates for one plan, in seconds from its beginning."""

    by_pools_s: float  # each pool begins when the one before it has ended
    by_dependencies_s: float  # each action begins when what it waits for has ended
    ends_s: tuple[float, ...]  # by dependencies, the end of each action, in the order of ``Plan.actions``


def makespan(plan: Plan, order: Order, durations: Durations | None = None) -> Makespan:
    """Estimate how long a plan takes, pool after pool and by its dependency order."""
    durations = durations or Durations()
    offsets = {each: place * durations.pipeline_s for group in order.together for place, each in enumerate(group)}
    ends = ends_of(order.actions, order.needs, durations, offsets)
    by_pools = 0.0
    first = 0
    for pool in plan.pools:
        after = {each - first: offset for each, offset in offsets.items() if first <= each < first + len(pool)}
        by_pools += max(ends_of(pool, ((),) * len(pool), durations, after))
        first += len(pool)
    return Makespan(by_pools, max(ends, default=0.0), tuple(ends))


def ends_of(
    actions: Sequence[Action],
    needs: Sequence[Sequence[int]],
    durations: Durations,
    offsets: Mapping[int, float],
) -> list[float]:
    """When each action ends, in seconds, if it begins ``offsets`` after all that it ``needs`` have ended."""
    return _Fluid(actions, needs, durations, offsets).run()


class _Fluid:
    """Transfers as flows that share the bandwidth of nodes, from event to event.

    Work is counted in seconds of a transfer that is alone on its nodes.
    """

    def __init__(
        self,
        actions: Sequence[Action],
        needs: Sequence[Sequence[int]],
        durations: Durations,
        offsets: Mapping[int, float],
    ) -> None:
        self._constant = [durations.of(action).constant_s + offsets.get(i, 0.0) for i, action in enumerate(actions)]
        self._work = [durations.of(action).s_per_mib * action.vm.demand.memory_mib for action in actions]
        self._nodes = [
            tuple(dict.fromkeys(node for node in (action.source, action.destination) if node and node != SHARED))
            for action in actions
        ]
        self._missing = [len(set(each)) for each in needs]
        self._followers: list[list[int]] = [[] for _ in actions]
        for i, each in enumerate(needs):
            for need in set(each):
                self._followers[need].append(i)
        self._active: dict[str, set[int]] = {}
        self._rate = [0.0] * len(actions)
        self._since = [0.0] * len(actions)
        self._ends = [0.0] * len(actions)
        self._version = [0] * len(actions)  # of the forecast of an action's next event; older ones are void
        self._events: list[tuple[float, int, int]] = []

    def run(self) -> list[float]:
        """When each action ends."""
        transferring = [False] * len(self._ends)
        for i, missing in enumerate(self._missing):
            if not missing:
                self._forecast(i, self._constant[i])
        while self._events:
            now, i, version = heapq.heappop(self._events)
            if version != self._version[i]:
                continue
            if not transferring[i] and self._work[i] > 0:
                transferring[i] = True
                self._join(i, now)
                continue
            self._ends[i] = now
            if transferring[i]:
                self._leave(i, now)
            for follower in self._followers[i]:
                self._missing[follower] -= 1
                if not self._missing[follower]:
                    self._forecast(follower, now + self._constant[follower])
        return self._ends

    def _forecast(self, i: int, when: float) -> None:
        self._version[i] += 1
        heapq.heappush(self._events, (when, i, self._version[i]))

    def _join(self, i: int, now: float) -> None:
        self._since[i] = now
        for node in self._nodes[i]:
            self._active.setdefault(node, set()).add(i)
        self._share(i, now, {i})

    def _leave(self, i: int, now: float) -> None:
        for node in self._nodes[i]:
            self._active[node].remove(i)
        self._share(i, now, set())

    def _share(self, changed: int, now: float, touched: set[int]) -> None:
        """Divide the bandwidth anew on the nodes of an action, and forecast when their transfers end."""
        for node in self._nodes[changed]:
            touched |= self._active[node]
        for i in sorted(touched):
            rate = min((1 / len(self._active[node]) for node in self._nodes[i]), default=1.0)
            if rate != self._rate[i]:
                self._work[i] = max(0.0, self._work[i] - (now - self._since[i]) * self._rate[i])
                self._since[i], self._rate[i] = now, rate
                self._forecast(i, now + self._work[i] / rate)
