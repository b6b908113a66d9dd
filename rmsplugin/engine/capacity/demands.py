"""Demands: the CPUs and memory that running VMs demand, from the readings of each cycle; kept over restarts.

The rules are ``rmsplugin.decision.cpu_demand`` and ``memory_demand``. This module says which samples count, and for
which run:

- A run begins when the VM is booted or resumed, and lasts as long as its vjob is running; migrations do not end it.
- A booted VM demands its request until its samples say otherwise. A resumed VM goes on where it was saved, so it
  demands at first the resources that it demanded then (docs/decisions/0035).
- Counters belong to a hypervisor process: on another node they begin anew, while the demand stays.
- A guest that does not say how much memory it could do without (it has no driver, or has just come) gives no sample of
  memory.
- A guest's report is some seconds old, but the size of its balloon is not: memory that it was just given back is not
  memory that it needs. Each report counts once, with the smaller of the balloon's sizes before and after it.
- A VM that waits for memory of its node needs all of its memory, because it cannot be asked.
- A guest that keeps reading pages back from storage needs all the memory that its balloon leaves it.
- A VM that boots, is saved or restored, or stands still gives no sample, because that says nothing about its work.
- A VM that is seen on two nodes gives no sample, because it is not known where it computes.

The ledger has the present demand of each VM. Memory has only the values that the next sample needs besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rmsplugin.adapters.platform.base import VMPower, VMStatistics
from rmsplugin.decision.cpu_demand import CpuDemand, CpuSample
from rmsplugin.decision.memory_demand import MemoryDemand, MemorySample
from rmsplugin.engine.context.bounds import Bounds
from rmsplugin.engine.context.demanded import Demanded
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.ledger.samples import Sample
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

#: Events start cycles early. The usage of a VM in fewer seconds is mostly chance, so such a sample is left out.
_LEAST_APART_S = 5.0
#: So many changed demands are recorded in one transaction.
_RECORDED_AT_ONCE = 500
#: Linux counts swapped memory in pages of this size.
_PAGE_KIB = 4


@made_at_once
@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a VM, and its demand as far as it is known."""

    began: tuple[str, float]  # uuid of the VM, and since when its vjob has been running
    cpu: CpuDemand
    memory: MemoryDemand
    recorded: tuple[int | None, int | None]  # both in the ledger: hundredths of a CPU, and MiB; None: the request
    node: str = ""  # of the last sample
    said: tuple[int | None, int | None] = (None, None)  # time of the guest's last report, and its KiB at the last look
    reads: tuple[float, float] | None = None  # a time, and the pages that the guest had read back from storage by then

    @property
    def demands(self) -> tuple[int, int]:
        """Hundredths of a CPU, and MiB."""
        return self.cpu.centi_cpus, self.memory.mib

    def anew(self) -> _Run:
        """The same run after a time in which nothing could be seen."""
        return replace(self, cpu=self.cpu.anew(), memory=self.memory.anew(), said=(None, None), reads=None)


class Demands:
    """The demand of each running VM."""

    def __init__(self, settings: Settings, ledger: Ledger, bounds: Bounds, demanded_cpus: Demanded) -> None:
        """Begin with the demands that the ledger has."""
        self._settings = settings
        self._ledger = ledger
        self._bounds = bounds
        self._demanded_cpus = demanded_cpus
        self._runs: dict[str, _Run] = {}  # by VM

    def take_samples(self, seen: Observation) -> None:
        """Take in the samples of one observation, and record changed demands. Called once for each observation."""
        ledger = self._ledger
        vms_by_job = ledger.live_vms_by_job()
        vjobs = ledger.vjobs_among(vms_by_job)
        waiting = self._bounds.waiting
        window_s, faults_per_s = self._settings.decision.demand_window_s, self._settings.memory.faults_per_s
        runs, changes = {}, []
        for job_id, vms in vms_by_job.items():
            vjob = vjobs[job_id]
            if vjob.state not in (VJobState.RUNNING, VJobState.SUSPENDING):
                continue
            runs_on = vjob.state is VJobState.RUNNING and vjob.state_since < seen.taken
            for vm in vms:
                before = run = self._known_run(vjob, vm)
                if runs_on:
                    run = _after(before, seen, vm.name, window_s, faults_per_s)
                    if vm.name in waiting:
                        run = replace(run, memory=replace(run.memory, mib=run.memory.size_mib, recent=()))
                if run.demands != before.demands:
                    run = replace(run, recorded=run.demands)
                    changes.append((vjob, vm, _sample(run, seen, vm.name)))
                runs[vm.name] = run
        for start in range(0, len(changes), _RECORDED_AT_ONCE):  # requests wait for each transaction
            ledger.samples.record(changes[start : start + _RECORDED_AT_ONCE])
            ledger.read_ahead()
        self._runs = runs
        # A VM that is neither running nor being suspended has no observed demand.
        observed = {name: run.cpu.cpus for name, run in runs.items() if run.recorded[0] is not None}
        self._demanded_cpus.set(observed)

    def _known_run(self, vjob: VJobRow, vm: VMRow) -> _Run:
        """The run that the VM is in, as far as it is known."""
        began = (vm.uuid, vjob.state_since)
        run = self._runs.get(vm.name)
        recorded = (vm.centi_cpus, vm.memory_demand_mib)
        if run is not None and run.began == began and run.recorded == recorded:
            return run
        cpu, memory = CpuDemand.requested(vjob.geometry.cpus_of(vm.idx)), MemoryDemand.requested(vm.memory_mib)
        if vm.centi_cpus is not None:
            cpu = replace(cpu, centi_cpus=min(vm.centi_cpus, cpu.centi_cpus))
        if vm.memory_demand_mib is not None:
            memory = replace(memory, mib=min(vm.memory_demand_mib, memory.mib))
        return _Run(began, cpu, memory, recorded)


def _after(run: _Run, seen: Observation, name: str, window_s: float, faults_per_s: float) -> _Run:
    """The run, continued by the sample of the VM if it was seen on just one node.

    Args:
        run: so far.
        seen: one look at the cluster.
        name: of the VM.
        window_s: demand falls only after so many seconds in which no more was seen.
        faults_per_s: a guest that reads so many pages back a second needs all the memory that it has.
    """
    node = seen.only_node(name)
    if node is None:
        return run
    if seen.vms[node][name].power is not VMPower.RUNNING:
        return run.anew()  # the time in which the VM stood still counts for nothing
    there = seen.statistics.get(node)
    statistics = None if there is None else there.get(name)
    if statistics is None:
        return run
    if node != run.node:
        run = replace(run.anew(), node=node)
    time_s = seen.sampled[node]
    cpu = _cpu_after(run.cpu, time_s, statistics, window_s)
    reads = _reads(time_s, statistics)
    suffers = _per_s(run.reads, reads) >= faults_per_s
    working_set_mib = _working_set_mib(run.said, statistics, suffers=suffers)
    memory = run.memory
    if working_set_mib is not None:
        memory = memory.after(MemorySample(time_s, working_set_mib), window_s)
    said = (statistics.guest_said_s, statistics.memory_current_kib)
    return _Run(run.began, cpu, memory, run.recorded, run.node, said, reads or run.reads)


def _cpu_after(demand: CpuDemand, time_s: float, statistics: VMStatistics, window_s: float) -> CpuDemand:
    """The demand of CPUs after the statistics of a time."""
    if statistics.cpu_time_ns is None:
        return demand
    if demand.last is not None and 0 <= time_s - demand.last.time_s < _LEAST_APART_S:
        return demand
    return demand.after(
        CpuSample(time_s, statistics.cpu_time_ns, statistics.vcpu_delay_ns or 0), window_s, statistics.cpus
    )


def _reads(time_s: float, statistics: VMStatistics) -> tuple[float, float] | None:
    """The pages that a guest has read back from storage by a time (major faults, swap-ins); None: it does not say."""
    if statistics.major_faults is None:
        return None
    return time_s, statistics.major_faults + (statistics.swap_in_kib or 0) / _PAGE_KIB


def _per_s(before: tuple[float, float] | None, now: tuple[float, float] | None) -> float:
    if before is None or now is None or now[0] - before[0] < _LEAST_APART_S:
        return 0.0
    return (now[1] - before[1]) / (now[0] - before[0])


def _working_set_mib(before: tuple[int | None, int | None], statistics: VMStatistics, *, suffers: bool) -> int | None:
    """The memory, in MiB, that a guest could not do without; None: it has not reported since ``before``.

    A guest that ``suffers`` needs all the memory that its balloon leaves it.
    """
    current_kib, usable_kib = statistics.memory_current_kib, statistics.memory_usable_kib
    if current_kib is None or usable_kib is None:
        return None
    if statistics.guest_said_s is not None:
        said_s, had_kib = before
        if said_s is None or had_kib is None or statistics.guest_said_s == said_s:
            return None
        current_kib = min(current_kib, had_kib)
    return -(-max(0, current_kib - (0 if suffers else usable_kib)) // 1024)


def _sample(run: _Run, seen: Observation, name: str) -> Sample:
    """The sample that is recorded for a change; a VM that waits for memory was asked nothing, and has no statistics."""
    statistics = seen.statistics.get(run.node, {}).get(name)
    rss_kib = None if statistics is None else statistics.memory_rss_kib
    return Sample(name, seen.sampled.get(run.node, seen.taken), run.cpu.centi_cpus, rss_kib, run.memory.mib)
