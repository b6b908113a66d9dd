"""Transfers: the actions under way, and the end of each, from the duration of each kind of action by itself.

An action is a constant time, then (migrate, suspend, resume) a transfer whose time grows with the VM's memory
(RR-6929 section 2.3). Transfers that use one node at the same time share its bandwidth equally; one that uses two nodes
(migrate, remote resume) goes on at the pace of the slower.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.elements import SHARED
from rmsplugin.model.node_action import NodeAction, NodeActionKind


@dataclass(frozen=True, slots=True)
class Duration:
    """The duration of one kind of action by itself: ``constant_s``, and ``s_per_mib`` for each MiB of memory."""

    constant_s: float
    s_per_mib: float = 0.0

    def seconds(self, memory_mib: int) -> float:
        """The duration for a VM with so much memory, in seconds."""
        return self.constant_s + self.s_per_mib * memory_mib


def _grows(values: Mapping[str, float], name: str) -> Duration:
    return Duration(values[f"{name}_s"], values[f"{name}_s_per_mib"])


@dataclass(frozen=True, slots=True)
class Durations:
    """The duration of each kind of action by itself; the defaults are ``rmsplugin.model.durations.DEFAULTS``."""

    run: Duration = Duration(DEFAULTS["run_s"])
    stop: Duration = Duration(DEFAULTS["stop_s"])
    migrate: Duration = Duration(DEFAULTS["migrate_s"], DEFAULTS["migrate_s_per_mib"])
    suspend: Duration = Duration(DEFAULTS["suspend_s"], DEFAULTS["suspend_s_per_mib"])
    resume_local: Duration = Duration(DEFAULTS["resume_s"], DEFAULTS["resume_s_per_mib"])
    resume_remote: Duration = Duration(DEFAULTS["remote_resume_s"], DEFAULTS["remote_resume_s_per_mib"])
    pipeline_s: float = DEFAULTS["pipeline_s"]  # between the beginnings of two suspends, or resumes, of one vjob
    pause: Duration = Duration(DEFAULTS["pause_s"])
    unpause: Duration = Duration(DEFAULTS["unpause_s"])
    power_off: Duration = Duration(30.0)  # of nodes: the same everywhere, until a site can set it
    power_on: Duration = Duration(120.0)

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
            Duration(values["pause_s"]),
            Duration(values["unpause_s"]),
        )

    def of(self, action: Action) -> Duration:
        """The duration of an action by itself."""
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
            case ActionKind.PAUSE:
                return self.pause
            case ActionKind.UNPAUSE:
                return self.unpause

    def of_node(self, action: NodeAction) -> Duration:
        """The duration of an action on a node."""
        return self.power_off if action.kind is NodeActionKind.POWER_OFF else self.power_on


@dataclass(slots=True)
class _Transfer:
    """One action; its work is counted in seconds of a transfer that is alone on its nodes."""

    nodes: tuple[str, ...]
    work_s: float
    transferring: bool = False
    rate: float = 0.0
    since: float = 0.0
    version: int = 0  # of the forecast of its next event; older ones are void


class Transfers:
    """Transfers as flows that share the bandwidth of nodes, from event to event."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._all: dict[int, _Transfer] = {}
        self._on: dict[str, set[int]] = {}  # the actions that transfer now, by node
        self._events: list[tuple[float, int, int]] = []

    def begin(self, number: int, action: Action, at_s: float) -> None:
        """Begin an action, now or later.

        Args:
            number: the action's number in ``next_end``; used once.
            action: the action.
            at_s: the time; not before the last event.
        """
        duration = self._durations.of(action)
        nodes = tuple(dict.fromkeys(node for node in (action.source, action.destination) if node and node != SHARED))
        self._all[number] = _Transfer(nodes, duration.s_per_mib * action.vm.demand.memory_mib)
        self._forecast(number, at_s + duration.constant_s)

    @property
    def next_event_s(self) -> float:
        """The time before which no action ends; infinite if none is under way."""
        events = self._events
        while events and self._is_void(events[0]):
            heapq.heappop(events)
        return events[0][0] if events else math.inf

    def next_end(self, until_s: float = math.inf) -> tuple[int, float] | None:
        """The next action that ends until then, with its time; None if none does."""
        while self.next_event_s <= until_s and self._events:
            now, number, _ = heapq.heappop(self._events)
            transfer = self._all[number]
            if not transfer.transferring and transfer.work_s > 0:
                self._join(number, now)
                continue
            del self._all[number]
            if transfer.transferring:
                for node in transfer.nodes:
                    self._on[node].remove(number)
                self._share(transfer.nodes, now)
            return number, now
        return None

    def _is_void(self, event: tuple[float, int, int]) -> bool:
        transfer = self._all.get(event[1])
        return transfer is None or transfer.version != event[2]

    def _forecast(self, number: int, when_s: float) -> None:
        transfer = self._all[number]
        transfer.version += 1
        heapq.heappush(self._events, (when_s, number, transfer.version))

    def _join(self, number: int, now: float) -> None:
        transfer = self._all[number]
        transfer.transferring, transfer.since = True, now
        for node in transfer.nodes:
            self._on.setdefault(node, set()).add(number)
        if transfer.nodes:
            self._share(transfer.nodes, now)
        else:  # from a shared store to nowhere: no other action shares with it
            transfer.rate = 1.0
            self._forecast(number, now + transfer.work_s)

    def _share(self, nodes: tuple[str, ...], now: float) -> None:
        """Divide the bandwidth of nodes anew, and forecast when their transfers end."""
        for number in sorted(set().union(*(self._on[node] for node in nodes))):
            transfer = self._all[number]
            rate = min(1 / len(self._on[node]) for node in transfer.nodes)
            if rate != transfer.rate:
                transfer.work_s = max(0.0, transfer.work_s - (now - transfer.since) * transfer.rate)
                transfer.since, transfer.rate = now, rate
                self._forecast(number, now + transfer.work_s / rate)
