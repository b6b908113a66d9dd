"""Privacy: what a caller is told of jobs and nodes, by PrivateData: whom Slurm tells nothing, we tell nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rmsplugin.adapters.rms.base import Overseers, RmsJob
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.serve.rights import Rights, user_name
from rmsplugin.model.veil import veiled

#: Slurm's words for what users are not told: of each other's jobs, of nodes, and of what happened to nodes.
JOBS, NODES, _EVENTS = "jobs", "nodes", "events"
#: Before the first look nobody knows what Slurm keeps private.
_ALL = frozenset({JOBS, NODES, _EVENTS})


@dataclass(frozen=True, slots=True)
class Sight:
    """What one caller is told.

    Attributes:
        uid: of the caller.
        private: what he is not told, in Slurm's words.
        accounts: of Slurm, of which he is a coordinator: their jobs are told to him, too.
        seen: the newest look at the cluster.
    """

    uid: int
    private: frozenset[str]
    accounts: frozenset[str]
    seen: Observation | None

    @property
    def all_jobs(self) -> bool:
        """Whether he is told of all jobs."""
        return JOBS not in self.private

    @property
    def nodes(self) -> bool:
        """Whether he is told of nodes."""
        return NODES not in self.private

    @property
    def events_of_nodes(self) -> bool:
        """Whether he is told what happened to nodes, and to others."""
        return self.all_jobs and self.nodes and _EVENTS not in self.private

    def sees(self, vjob: VJobRow) -> bool:
        """Whether he is told of this vjob."""
        return self.all_jobs or vjob.uid == self.uid or bool(self.accounts and self._coordinates(vjob))

    def sees_job(self, job: RmsJob) -> bool:
        """Whether he is told of this job of Slurm."""
        return self.all_jobs or job.uid == self.uid or job.account in self.accounts

    def sentence(self, text: str, own: Iterable[str]) -> str:
        """A sentence about jobs with these ids, or that it is not told, because it may name others."""
        return text if self.all_jobs else veiled(text, own)

    def _coordinates(self, vjob: VJobRow) -> bool:
        job = self.seen.jobs.get(vjob.job_id) if self.seen else None
        return job is not None and job.uid == vjob.uid and job.account in self.accounts


class Privacy:
    """Knows what Slurm keeps private, and from whom."""

    def __init__(self, cycle: Cycle) -> None:
        """``cycle``: has what was seen of Slurm."""
        self._cycle = cycle

    @property
    def private(self) -> frozenset[str]:
        """What users are not told, in Slurm's words."""
        seen = self._cycle.seen
        return _ALL if seen is None else seen.rms.private & _ALL

    def sight(self, uid: int, rights: Rights) -> Sight:
        """What this caller is told. May ask for the name of his account."""
        private, seen = self.private, self._cycle.seen
        if not private:
            return Sight(uid, private, frozenset(), seen)
        known = self._cycle.overseers.newest if rights.powers else Overseers()
        name = user_name(uid)
        if rights.is_operator(uid) or name in known.operators:
            return Sight(uid, frozenset(), frozenset(), seen)
        accounts = frozenset(account for account, names in known.coordinators.items() if name in names)
        return Sight(uid, private, accounts, seen)
