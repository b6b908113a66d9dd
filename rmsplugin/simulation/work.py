"""Work: which vjobs compute at what speed, until when; and how many CPUs that uses."""

from __future__ import annotations

from collections.abc import Callable

from rmsplugin.simulation.events import Events
from rmsplugin.simulation.hosts import Hosts
from rmsplugin.simulation.outcome import Usage
from rmsplugin.simulation.vjob import SimulatedVJob

#: Called with a vjob, and the time.
Told = Callable[[SimulatedVJob, float], None]


class Work:
    """The computations of all vjobs, phase by phase.

    Attributes:
        usage: the CPUs used and demanded, each time that they changed.
    """

    def __init__(self, hosts: Hosts, events: Events, begins: Told, done: Told) -> None:
        """Begin without any computation.

        Args:
            hosts: the nodes of the VMs.
            events: the events of the replay.
            begins: called when a vjob begins another phase.
            done: called when a vjob has done its last phase.
        """
        self._hosts, self._events, self._begins, self._done = hosts, events, begins, done
        self.usage: list[Usage] = []
        self._used = self._demanded = 0.0
        self._share: dict[SimulatedVJob, tuple[float, float]] = {}  # CPUs of each that computes: used, demanded

    def set_rates(self, now: float) -> None:
        """Set the vjobs' new speeds; a vjob that computes no more is not counted any more."""
        changed, crowded_vms = False, self._hosts.crowded_vms
        for vjob in [vjob for vjob in self._share if not vjob.computes]:
            changed |= self._account(vjob, None)
        for vjob in self._hosts.affected():
            rate = self._hosts.rate(vjob)
            if rate != vjob.rate or vjob not in self._share:
                vjob.count(now)
                vjob.rate = rate
                self._forecast(vjob)
                cpus = sum(vjob.cpus(index) for index in range(len(vjob.names)))
                changed |= self._account(vjob, (rate * cpus, cpus))
        if changed or crowded_vms != self._hosts.crowded_vms:
            usage = Usage(now, round(self._used, 6), round(self._demanded, 6), self._hosts.crowded_vms)
            self.usage.append(usage)

    def _account(self, vjob: SimulatedVJob, share: tuple[float, float] | None) -> bool:
        before, after = self._share.pop(vjob, (0.0, 0.0)), share or (0.0, 0.0)
        if share is not None:
            self._share[vjob] = share
        self._used += after[0] - before[0]
        self._demanded += after[1] - before[1]
        return before != after

    def _forecast(self, vjob: SimulatedVJob) -> None:
        """Forecast the end of the vjob's present phase, unless its speed changes before."""
        vjob.forecast += 1
        number = vjob.forecast

        def phase_done(now: float) -> None:
            if vjob.forecast == number and vjob.computes:
                self._phase_done(vjob, now)

        self._events.at(vjob.phase_ends_s, phase_done)

    def _phase_done(self, vjob: SimulatedVJob, now: float) -> None:
        vjob.count(now)
        self._hosts.compute(vjob, -1)
        if vjob.phase + 1 == len(vjob.activity):
            vjob.work_left_s = 0.0
            vjob.end_s = now
            self._done(vjob, now)
            return
        vjob.phase += 1
        vjob.work_left_s = vjob.activity[vjob.phase].work_s
        self._hosts.compute(vjob, 1)
        self._account(vjob, None)
        self._begins(vjob, now)
