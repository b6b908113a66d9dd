"""j. The proposing process: what it costs beside a call in the same process, and what it spares other threads.

The same proposal (by First Fit Decreasing, so that the solver's time does not hide the way there and back) is made by
a call, by a process that is warm, and by one that has to be started first. A thread beside it wakes up every
millisecond, as the threads of the service do. How much the thread that asks computes between two such moments at worst
is for how long it keeps all others waiting; what else runs on the machine does not count in that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import verify
from bench.families import scale
from bench.measure import Report, median, progress, ratio, timed
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposer.process import ProposerLimits
from rmsplugin.proposer.proposer import Proposed, Proposer
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.propose import propose

#: As nice as whatever it is compared with.
_LIMITS = ProposerLimits(deadline_s=600, fallback_s=600, start_s=600, nice=0)
_PARAMETERS = ProposalParameters("rjsp").without_solver()
_TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: nodes and VMs of each cluster, and how often."""

    clusters: Sequence[tuple[int, int]] = ((20, 100), (200, 1000), (1000, 5000), (5000, 30000))
    repeats: int = 5


SIZES = {
    "full": Sizes(),
    "quick": Sizes(clusters=((20, 100), (200, 1000), (1000, 5000)), repeats=3),
    "tiny": Sizes(clusters=((4, 24),), repeats=1),
}


class _Neighbour:
    """A thread that wants to do something every millisecond while the thread that made it works.

    ``waited_s`` is how much that one computed at worst between two such moments.
    """

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        last = time.clock_gettime(self._clock)
        while not self._over.wait(_TICK_S):
            now = time.clock_gettime(self._clock)
            self.waited_s = max(self.waited_s, now - last)
            last = now

    def __enter__(self) -> _Neighbour:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def run(sizes: Sizes, report: Report) -> None:
    """Measure all clusters of the size."""
    report.title("j", "the proposing process beside a call in the same process (proposals by FFD)")
    rows = [_cluster(nodes, vms, sizes.repeats, report) for nodes, vms in sizes.clusters]
    header = ["cluster", "call s", "warm s", "warm / call", "cold s", "peak MiB", "waited ms, call", "warm"]
    report.table(header, rows)
    for row in rows:
        report.ratio(f"{row[0]}: warm process / call, seconds", row[3])
    report.ratio(f"{rows[-1][0]}: what another thread waits at worst, call / warm process", ratio(row[7], row[6]))
    report.ratio(f"{rows[0][0]}: cold process / warm process, seconds", ratio(rows[0][2], rows[0][4]))


def _cluster(nodes: int, vms: int, repeats: int, report: Report) -> list[Any]:
    name = f"{nodes} nodes, {vms} VMs"
    for seed in range(repeats):
        progress(f"j: {name}, {seed}")
        configuration = scale(nodes, vms, seed)
        called, call_s, call_waited_s = _beside(partial(propose, configuration, _PARAMETERS))
        with Proposer(_LIMITS) as proposer:
            ask = partial(proposer.propose, configuration, _PARAMETERS)
            cold, cold_s = timed(ask)
            warm, warm_s, warm_waited_s = _beside(ask)
        for proposed in (cold, warm):
            _verify(f"{name}, {seed}", configuration, called, proposed)
        report.record(
            family=name,
            seed=seed,
            seconds=call_s,
            warm_s=warm_s,
            cold_s=cold_s,
            call_waited_s=call_waited_s,
            warm_waited_s=warm_waited_s,
            peak_memory_mib=warm.peak_memory_mib,
        )
    progress("")
    found = report.of(family=name)
    call_s, warm_s, cold_s = (median(record[key] for record in found) for key in ("seconds", "warm_s", "cold_s"))
    waited_ms = [1e3 * median(record[key] for record in found) for key in ("call_waited_s", "warm_waited_s")]
    peak_mib = max(record["peak_memory_mib"] for record in found)
    return [name, call_s, warm_s, ratio(call_s, warm_s), cold_s, peak_mib, *waited_ms]


def _beside(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What the work returns, its seconds, and for how long it kept another thread waiting at worst."""
    with _Neighbour() as neighbour:
        value, seconds = timed(work)
    return value, seconds, neighbour.waited_s


def _verify(name: str, source: Configuration, called: Proposal | NoProposal, proposed: Proposed) -> None:
    if proposed.failure or proposed.found != called:
        raise verify.WrongAnswerError(f"{name}: the process answers otherwise than the call: {proposed.failure}")
    if isinstance(called, Proposal) and (faults := check(source, called)):
        raise verify.WrongAnswerError(f"{name}: {faults[0]}")
