"""The policies of the experiment: thin wrappers around the functions that a live engine would call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from experiments.icdcs02.cluster import Job, Orders, mib
from rmsplugin.decision.load import Arrival, Board, NodeLoad
from rmsplugin.decision.load_sharing import place, relieve
from rmsplugin.decision.reservation import ReservationLimits, Reservations, reconfigure
from rmsplugin.decision.unblocking import Prices, Unblocking, estimate_mib


def starts(placed: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The workstation of each job: jobs have one process."""
    return {job: nodes[job] for job, nodes in placed.items()}


class NoSharing:
    """Each job on the workstation where it was submitted, as soon as that has idle memory and a slot."""

    reserved: frozenset[str] = frozenset()

    def __init__(self, estimate_mib: int) -> None:
        self.estimate_mib = estimate_mib

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """Start what finds room at home."""
        board = Board(nodes)
        found = {}
        for job in waiting:
            home = str(job.submission.home)
            found |= place(board, [self._arrival(job)], closed=board.nodes.keys() - {home})
        return Orders(starts(found))

    def _arrival(self, job: Job) -> Arrival:
        return Arrival(job.name, {job.name: self.estimate_mib}, str(job.submission.home))

    def ended(self, job: Job) -> None:
        """Nothing is learnt from it."""


class LoadSharing(NoSharing):
    """G-Loadsharing."""

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """Relieve who is short, then start what finds room anywhere."""
        board = Board(nodes)
        relieve(board)
        placed = place(board, [self._arrival(job) for job in waiting])
        return Orders(starts(placed), board.moves)


class Reconfiguring(NoSharing):
    """V-Reconfiguration."""

    def __init__(self, estimate_mib: int, limits: ReservationLimits) -> None:
        super().__init__(estimate_mib)
        self.limits, self.state = limits, Reservations()
        self.notes: dict[str, int] = {}

    @property
    def reserved(self) -> frozenset[str]:
        """Workstations that take no arrivals."""
        return self.state.nodes

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """Relieve, reserve, serve; then start what finds room on the others."""
        board = Board(nodes)
        cycle = reconfigure(board, self.state, now_s, self.limits)
        self.state = cycle.reservations
        for note in cycle.notes:
            self.notes[note.what] = self.notes.get(note.what, 0) + 1
        placed = place(board, [self._arrival(job) for job in waiting], cycle.closed)
        return Orders(starts(placed), board.moves)


class Ours(NoSharing):
    """Load sharing by what earlier jobs of the same program needed; and the cheapest way out of a shortage."""

    def __init__(self, estimate_mib: int, limits: ReservationLimits, prices: Prices, learns: bool = True) -> None:
        super().__init__(estimate_mib)
        self.limits, self.prices, self.learns, self.state = limits, prices, learns, Reservations()
        self.notes: dict[str, int] = {}
        self._peaks: defaultdict[str, list[int]] = defaultdict(list)

    @property
    def reserved(self) -> frozenset[str]:
        """Workstations that take no arrivals."""
        return self.state.nodes

    def orders(self, now_s: float, nodes: Sequence[NodeLoad], waiting: Sequence[Job], asleep: Sequence[Job]) -> Orders:
        """Relieve, by the cheapest way; then start and resume what finds room, in the order of submission."""
        board = Board(nodes)
        cycle = Unblocking(board, self.state, now_s, self.limits, self.prices)
        cycle.run()
        self.state = cycle.reservations
        for note in cycle.notes:
            self.notes[note.what] = self.notes.get(note.what, 0) + 1
        sleepers = {job.name for job in asleep}
        queue = sorted([*asleep, *waiting], key=lambda job: job.submission.job)
        placed = starts(place(board, [self._arrival(job) for job in queue], cycle.closed))
        resumes = {job: node for job, node in placed.items() if job in sleepers}
        begins = {job: node for job, node in placed.items() if job not in sleepers}
        return Orders(begins, board.moves, board.suspended, resumes)

    def _arrival(self, job: Job) -> Arrival:
        peaks = self._peaks[job.submission.program.name] if self.learns else []
        expected = estimate_mib(peaks, self.estimate_mib)
        seen = mib(job.demand_mb) if job.done_s > 0 else 0
        return Arrival(job.name, {job.name: max(expected, seen)}, str(job.submission.home))

    def ended(self, job: Job) -> None:
        """Its peak is what others like it will need."""
        self._peaks[job.submission.program.name].append(mib(job.demand_mb))
