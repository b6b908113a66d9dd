"""Page: the file of --html, and what is to be known of the schedules that it shows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rmsplugin.cli.shared.output_file import OutputFile
from rmsplugin.cli.simulate.simulated import Input, Simulated, disbelieved
from rmsplugin.model.policy_names import STATIC
from rmsplugin.model.wording import counted
from rmsplugin.report import schedules
from rmsplugin.report.document import Consumed, Kind, Note
from rmsplugin.report.page.html import check_size, library, page_text
from rmsplugin.report.placing import placed
from rmsplugin.workload.jobs import Workload


class PageFile:
    """Where a page is to be written.

    Raises:
        RefusedError: it cannot be written there.
        ReportError: what pages need is not installed.
    """

    def __init__(self, name: str) -> None:
        """Nothing is written yet."""
        library()
        self._output = OutputFile("--html", name)

    def require_room(self, given: Input) -> None:
        """Raise ReportError for more jobs than a page can show."""
        check_size(len(given.jobs), "simulate a part of the trace")

    def write_simulation(self, simulated: Simulated, beside: Sequence[Simulated]) -> None:
        """The page of one policy, beside others for comparison. Raises RefusedError."""
        self._write("simulation", simulated, beside)

    def write_comparison(self, found: Sequence[Simulated]) -> None:
        """The page of several policies, which tells of the last one. Raises RefusedError."""
        *others, own = found
        self._write("comparison", own, others)

    def _write(self, kind: Kind, own: Simulated, others: Sequence[Simulated]) -> None:
        cluster = own.input.cluster
        outcome = own.outcome if own.replayed is not None else placed(own.outcome, cluster)
        shown = schedules.Schedules(cluster, outcome, [other.outcome for other in others])
        energy = [found for each in (own, *others) if (found := _consumed(each)) is not None]
        told = schedules.document(kind, shown, _notes(kind, own, others), round(time.time(), 1), energy)
        self._output.write(page_text(told))


def _consumed(simulated: Simulated) -> Consumed | None:
    energy = simulated.energy
    if energy is None:
        return None
    found, stay = energy.account, energy.not_emptied
    return Consumed(
        policy=simulated.policy,
        kwh=round(found.switched.kwh, 6),
        kwh_all_on=round(found.all_on.kwh, 6),
        kwh_not_emptied=None if stay is None else round(stay[0].kwh, 6),
        kwh_oracle=round(found.oracle.kwh, 6),
        cost=found.switched.cost,
        co2_kg=found.switched.co2_kg,
        switched_off=len(energy.powered.off_times),
    )


def _one_queue(given: Input) -> str:
    """What no policy of a simulation looks at, and so what a cluster would have done otherwise."""
    partitions = len({job.partition for job in given.jobs})
    several = f", although they are of {partitions} partitions" if partitions > 1 else ""
    return (
        f"all jobs are one queue in the order of their submission{several}: tiers of partitions, priorities, QOS, "
        "users' limits, reservations, native jobs and outages of nodes are not replayed"
    )


def _source(workload: Workload) -> str:
    return "trace" if workload.records == "lines" else "ledger"


def _notes(kind: Kind, own: Simulated, others: Sequence[Simulated]) -> Iterator[Note]:
    workload = own.input.workload
    faults = workload.faults
    if faults:
        words = faults.told(workload.lines, f"{workload.records} of the {_source(workload)}")
        yield Note("not-simulated", len(faults), words)
    if workload.disbelieved:
        yield Note("cpu-time", workload.disbelieved, disbelieved(workload))
    if workload.unestimated:
        jobs = counted(workload.unestimated, "job")
        words = f"the run time of {jobs} stands for the limit, which the {_source(workload)} has not"
        yield Note("no-limit", workload.unestimated, words)
    yield Note("one-queue", len(own.input.jobs), _one_queue(own.input))
    if own.replayed is None:
        words = (
            "counts processors: it leaves open on which nodes VMs run, and they are shown on the first that are free"
        )
        yield Note("counted", len(own.input.jobs), f"{own.policy} {words}")
    at_once = [each.policy for each in (own, *others) if each.policy in STATIC]
    if own.switches and not others and kind == "simulation":
        words = "memory is short, and VMs need different amounts of it: processors cannot stand for them"
        yield Note("not-beside", 0, f"fcfs and easy are not shown beside {own.policy}: {words}")
    if at_once and any(each.switches for each in (own, *others)):
        words = "start and stop VMs in no time; the other policies wait for VMs to boot, and for those that are stopped"
        yield Note("at-once", len(own.input.jobs), f"{' and '.join(at_once)} {words}")
