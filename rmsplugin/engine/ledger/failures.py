"""Failures: how often in a row something failed, and until when it is not tried again. The ledger keeps the counts.

After a failure of a vjob the next attempt of the same kind (of operation, or of request to the RMS) waits, longer each
time. Actions are counted by node and kind, too: a node where three in a row failed *rests*, and the engine chooses it
for no new action of the kind for a while. A request by hand is tried at once, whatever failed before.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmsplugin.assessment.back_off import MOST_S, pause_s
from rmsplugin.engine.ledger.table import LedgerTable

#: The kind of failure: the vjob's state was lost soon after its start. The next start waits.
LOSS = "loss"

#: The number of failures in a row that makes a node rest. Its rest doubles with each further failure, up to ``MOST_S``.
_NODE_LIMIT = 3
_NODE_REST_S = 60.0


class FailureCode(enum.StrEnum):
    """What kind of failure it was, for those who decide by it; its error is for people."""

    OTHER = ""
    NOT_STARTED = "not-started"  # Slurm kept a job pending whose gate was open


def node_rest_s(failures: int) -> float:
    """How long a node rests after that many failures of one kind in a row; 0 while they are few."""
    return 0.0 if failures < _NODE_LIMIT else float(min(MOST_S, _NODE_REST_S * 2 ** min(failures - _NODE_LIMIT, 30)))


@dataclass(frozen=True, slots=True)
class VJobFailure:
    """The last error of one kind for a vjob, how often in a row, and the time before which it is not tried again."""

    failures: int
    not_before: float
    error: str
    code: FailureCode = FailureCode.OTHER

    def rests(self, at: float) -> bool:
        """Whether the next attempt still waits at this time."""
        return self.not_before > at


@dataclass(frozen=True, slots=True)
class NodeRest:
    """A node that the engine chooses for no new action of one kind until a time."""

    node: str
    kind: str
    failures: int
    until: float
    error: str

    @property
    def sentence(self) -> str:
        """For a person."""
        return f"takes no new {self.kind} for a while: {self.failures} failed in a row, the last: {self.error}"


#: By kind of action, the nodes that the engine now chooses for no new action of it.
Resting = Mapping[str, frozenset[str]]


class Failures(LedgerTable):
    """The counts. Times are seconds since the epoch."""

    # -- of vjobs ------------------------------------------------------------------------------------------------

    def vjob_failed(
        self,
        job_id: int,
        kind: str,
        error: str,
        *,
        code: FailureCode = FailureCode.OTHER,
        most_s: float = MOST_S,
    ) -> None:
        """Count a failure; the next attempt waits, ``most_s`` at most."""
        with self._write() as db:
            known = self.of_vjob(job_id, kind)
            failures = known.failures + 1 if known else 1
            db.execute(
                "insert or replace into vjob_failures (job_id, kind, failures, not_before, error, code) "
                "values (?,?,?,?,?,?)",
                [job_id, kind, failures, self._clock() + pause_s(failures, most_s), error, code],
            )

    def vjob_done(self, job_id: int, kind: str) -> None:
        """Record a success: the next attempt of the kind does not wait any more."""
        with self._write() as db:
            db.execute("delete from vjob_failures where job_id = ? and kind = ?", [job_id, kind])

    def vjob_forgiven(self, job_id: int) -> None:
        """Forget all failures of the vjob, for the cause may be gone: no attempt waits any more."""
        with self._write() as db:
            db.execute("delete from vjob_failures where job_id = ?", [job_id])

    def of_vjob(self, job_id: int, kind: str) -> VJobFailure | None:
        """The last failure of this kind for the vjob; None if there was none since the last success."""
        rows = self._rows("select * from vjob_failures where job_id = ? and kind = ?", [job_id, kind])
        return _failure(rows[0]) if rows else None

    def vjob_rests(self, job_id: int, kind: str, at: float) -> bool:
        """Whether the last operation of this kind failed too short a time before ``at``."""
        failed = self.of_vjob(job_id, kind)
        return failed is not None and failed.rests(at)

    def of_vjobs(self) -> Mapping[tuple[int, str], VJobFailure]:
        """The failures of all vjobs, by job id and kind."""
        return {(row["job_id"], row["kind"]): _failure(row) for row in self._rows("select * from vjob_failures")}

    def any_of_user(self, user: str, kind: str, code: FailureCode) -> bool:
        """Whether a vjob of this user has not ended, and its last failure of this kind has this code."""
        sql = (
            "select 1 from vjob_failures join vjobs using (job_id) "
            "where user = ? and state <> 'terminated' and kind = ? and code = ? limit 1"
        )
        return bool(self._rows(sql, [user, kind, code]))

    # -- of nodes ------------------------------------------------------------------------------------------------

    def node_failed(self, node: str, kind: str, user: str, error: str, *, once: bool = False) -> NodeRest | None:
        """Count a failure of an action for a vjob of ``user``. Returns the rest that the node is to have, if any.

        Args:
            node: the node of the action.
            kind: of the action.
            user: the owner of the vjob.
            error: of the action.
            once: the vjob itself may be to blame, so all failures of one user count as one.
        """
        grows = "failures" if once else "failures + 1"
        with self._write() as db:
            db.execute(
                "insert into node_failures (node, kind, user, failures, last, error) values (?,?,?,1,?,?) "
                f"on conflict (node, kind, user) do update set failures = {grows}, last = excluded.last, "
                "error = excluded.error",
                [node, kind, user, self._clock(), error],
            )
            return next((rest for rest in self.node_rests() if (rest.node, rest.kind) == (node, kind)), None)

    def node_done(self, node: str, kind: str) -> bool:
        """Record a success of the kind on the node. Returns whether the node had failures enough for a rest."""
        with self._write() as db:
            sql = "select coalesce(sum(failures), 0) as n from node_failures where node = ? and kind = ?"
            failures = int(self._rows(sql, [node, kind])[0]["n"])
            if failures:
                db.execute("delete from node_failures where node = ? and kind = ?", [node, kind])
            return failures >= _NODE_LIMIT

    def node_rests(self) -> list[NodeRest]:
        """The nodes that rest now, each with the kind of action that failed there."""
        # SQLite takes the other columns from the row that has the maximum.
        sql = "select node, kind, sum(failures) as n, max(last) as at, error from node_failures group by node, kind"
        rests = [
            NodeRest(row["node"], row["kind"], row["n"], row["at"] + node_rest_s(row["n"]), row["error"])
            for row in self._rows(sql)
        ]
        return [rest for rest in rests if rest.until > self._clock()]

    def resting(self) -> Resting:
        """The nodes that rest now, by kind of action; a kind for which no node rests is left out."""
        found: dict[str, set[str]] = {}
        for rest in self.node_rests():
            found.setdefault(rest.kind, set()).add(rest.node)
        return {kind: frozenset(nodes) for kind, nodes in found.items()}


def _failure(row: Mapping[str, Any]) -> VJobFailure:
    return VJobFailure(row["failures"], row["not_before"], row["error"], FailureCode(row["code"]))
