"""The policies of the experiment: thin wrappers around the functions that a live engine would call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from experiments.icdcs02.cluster import Job, Orders, mib
from rmsplugin.decision.expansion import expansion, still_expected_s
from rmsplugin.decision.load import Arrival, Board, NodeLoad
from rmsplugin.decision.load_sharing import place, relieve
from rmsplugin.decision.reservation import Reconfiguration, ReservationLimits, Reservations, reconfigure
from rmsplugin.decision.unblocking import Prices, Unblocking, estimate_mib


def starts(placed: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The workstation of each job: jobs have one process."""
    return {job: nodes[job] for job, nodes in placed.items()}


class NoSharing:
    """Each job on the workstation where it was submitted, as soon as that has idle memory and a slot."""

    def __init__(self, estimate_mib: int) -> None:
        self.estimate_mib = estimate_mib
        self.state = Reservations()

    @property
    def reserved(self) -> frozenset[str]:
        """Workstations that take no arrivals."""
        return self.state.nodes

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """Start what finds room at home."""
        board = Board(nodes)
        found: dict[str, str] = {}
        for job in waiting:
            others = board.nodes.keys() - {str(job.submission.home)}
            found |= starts(place(board, self.arrivals([job]), others))
        return Orders(found)

    def arrivals(self, jobs: Iterable[Job]) -> list[Arrival]:
        """Jobs about which nothing is known."""
        return [Arrival(job.name, {job.name: self.estimate_mib}, str(job.submission.home)) for job in jobs]

    def ended(self, job: Job) -> None:
        """Nothing is learnt from it."""


class LoadSharing(NoSharing):
    """G-Loadsharing."""

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """Relieve who is short, then start what finds room anywhere."""
        board = Board(nodes)
        relieve(board)
        placed = place(board, self.arrivals(waiting))
        return Orders(starts(placed), board.moves)


class Reconfiguring(NoSharing):
    """V-Reconfiguration."""

    def __init__(self, estimate_mib: int, limits: ReservationLimits) -> None:
        super().__init__(estimate_mib)
        self.limits = limits
        self.notes: Counter[str] = Counter()  # what was done how often

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """Relieve, reserve, serve; then start and resume what finds room on the others, in order of submission."""
        board = Board(nodes)
        cycle = self.cycle(board, now_s)
        self.state = cycle.reservations
        self.notes.update(note.what for note in cycle.notes)
        queue = sorted([*asleep, *waiting], key=lambda job: (self.rank(job, now_s), job.submission.job))
        placed = starts(place(board, self.arrivals(queue), cycle.closed))
        sleepers = {job.name for job in asleep}
        resumes = {job: node for job, node in placed.items() if job in sleepers}
        begins = {job: node for job, node in placed.items() if job not in sleepers}
        return Orders(begins, board.moves, board.suspended, resumes)

    def rank(self, job: Job, now_s: float) -> float:
        """Less for who goes first; among equals the order of submission decides."""
        return 0.0

    def cycle(self, board: Board, now_s: float) -> Reconfiguration:
        """What is done about shortages."""
        return reconfigure(board, self.state, now_s, self.limits)


class Ours(Reconfiguring):
    """By what earlier jobs of the same program needed, and the cheapest way out of a shortage."""

    def __init__(self, estimate_mib: int, limits: ReservationLimits, prices: Prices, learns: bool = True) -> None:
        super().__init__(estimate_mib, limits)
        self.prices, self.learns = prices, learns
        self._peaks: defaultdict[str, list[int]] = defaultdict(list)

    def cycle(self, board: Board, now_s: float) -> Reconfiguration:
        """Compaction, reservation or suspension, whichever costs least."""
        cycle = Unblocking(board, self.state, now_s, self.limits, self.prices)
        cycle.reconfigure()
        return cycle

    def arrivals(self, jobs: Iterable[Job]) -> list[Arrival]:
        """Jobs with what is known: what they demanded when they were suspended, and what others like them did."""
        expected = {name: estimate_mib(peaks, self.estimate_mib) for name, peaks in self._peaks.items()}
        found = []
        for job in jobs:
            seen = mib(job.demand_mb) if job.done_s > 0 else 0
            estimate = max(seen, expected.get(job.submission.program.name, self.estimate_mib))
            found.append(Arrival(job.name, {job.name: estimate}, str(job.submission.home)))
        return found

    def ended(self, job: Job) -> None:
        """Its peak is what others like it will need."""
        if self.learns:
            self._peaks[job.submission.program.name].append(mib(job.demand_mb))


class BySlowdown(Ours):
    """Ours, where whoever waits or is suspended goes on in the order of ``slowdown``; nobody has a limit."""

    def rank(self, job: Job, now_s: float) -> float:
        """The largest expansion goes first."""
        waited_s = now_s - job.submission.at_s - job.done_s
        return -expansion(max(0.0, waited_s), still_expected_s(None, job.done_s))
