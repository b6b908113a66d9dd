"""Checkpoints, in the ledger: what was written of running vjobs, where it is, and what of it is whole.

A checkpoint is *taking* from its intent on, *whole* once every byte of it is proved where it has to be, and *old* when
a newer one is whole, when it failed, or when nobody can need it any more: then its files are removed, and its row last.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rmsplugin.engine.ledger.chapter import Chapter, insert, update


class CheckpointState(enum.StrEnum):
    """How far a checkpoint is."""

    TAKING = "taking"
    WHOLE = "whole"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class CheckpointVM:
    """The file of one VM: what must be in it, and the nodes that have it, or "shared"."""

    name: str
    nodes: tuple[str, ...]
    size_bytes: int = 0
    blake2b: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint of a vjob. Times are seconds since the epoch."""

    id: int
    job_id: int
    state: CheckpointState
    began: float  # 0 until the operation that takes it has begun
    taken: float  # the instant at which its VMs stood still; 0 before
    whole_at: float  # when it was whole; 0 before
    ran_s: float  # how long the vjob had run by then; since it went back to it, by when it went on from there
    used: int  # how often the vjob went back to it
    targets: tuple[str, ...]  # nodes that may get copies, the best first
    vms: tuple[CheckpointVM, ...]  # with all nodes that may have files of it

    @property
    def size_bytes(self) -> int:
        """Of all its files, each counted once."""
        return sum(vm.size_bytes for vm in self.vms)


class Checkpoints(Chapter):
    """The ledger's table of them. Several threads may call."""

    def intend(self, job_id: int, vms: Iterable[CheckpointVM], targets: Iterable[str]) -> None:
        """Record that one is to be taken, and which nodes its VMs' own files will be on."""
        row = {
            "job_id": job_id,
            "state": "taking",
            "began": 0.0,
            "taken": 0.0,
            "whole_at": 0.0,
            "ran_s": 0.0,
            "used": 0,
            "targets": json.dumps(list(targets)),
            "vms": _vms_text(vms),
        }
        with self._write() as db:
            insert(db, "checkpoints", row)

    def begin(self, number: int) -> None:
        """The operation that takes it has begun; should it be interrupted, it is not gone on with."""
        self._update(number, began=self._clock())

    def may_be_on(self, number: int, vms: Iterable[CheckpointVM]) -> None:
        """Record, before anything is put there, on which nodes files of it may be."""
        self._update(number, vms=_vms_text(vms))

    def is_whole(self, number: int, vms: Iterable[CheckpointVM], *, taken: float, ran_s: float) -> None:
        """Every byte of it is proved; all others of its vjob are old from now on."""
        with self._write() as db:
            job_id = self._rows("select job_id from checkpoints where id = ?", [number])[0]["job_id"]
            self.retire(job_id)
            changes = {"state": "whole", "vms": _vms_text(vms), "taken": taken, "ran_s": ran_s}
            update(db, "checkpoints", {"id": number}, {**changes, "whole_at": self._clock()})

    def went_back(self, number: int, ran_s: float) -> None:
        """Its vjob, which has run for ``ran_s``, goes on from it: nothing of its run is uncovered now."""
        with self._write() as db:
            db.execute("update checkpoints set used = used + 1, ran_s = ? where id = ?", [ran_s, number])

    def retire(self, job_id: int, *, taking_only: bool = False) -> None:
        """Nobody needs those of the vjob any more; or those that are being taken."""
        states = "('taking')" if taking_only else "('taking', 'whole')"
        with self._write() as db:
            db.execute(f"update checkpoints set state = 'old' where job_id = ? and state in {states}", [job_id])

    def retire_one(self, number: int) -> None:
        """Nobody needs it any more."""
        self._update(number, state="old")

    def forget(self, number: int) -> None:
        """No file of it is left."""
        with self._write() as db:
            db.execute("delete from checkpoints where id = ?", [number])

    def forget_before(self, time: float) -> None:
        """Forget old ones whose files could not be removed for so long: their nodes are no more."""
        with self._write() as db:
            db.execute("delete from checkpoints where state = 'old' and began < ?", [time])

    def whole(self, job_id: int) -> Checkpoint | None:
        """The newest whole one of the vjob."""
        found = self._select("job_id = ? and state = 'whole' order by id desc limit 1", [job_id])
        return found[0] if found else None

    def taking(self, job_id: int) -> Checkpoint | None:
        """The one of the vjob that is being taken, or was when that was interrupted."""
        found = self._select("job_id = ? and state = 'taking' order by id desc limit 1", [job_id])
        return found[0] if found else None

    def in_state(self, state: CheckpointState) -> list[Checkpoint]:
        """All in the state, oldest first."""
        return self._select("state = ? order by id", [str(state)])

    def newest(self) -> Mapping[int, Checkpoint]:
        """The whole one of each vjob that has one, by job id."""
        return {checkpoint.job_id: checkpoint for checkpoint in self.in_state(CheckpointState.WHOLE)}

    def _select(self, where: str, parameters: list[Any]) -> list[Checkpoint]:
        return [_read(row) for row in self._rows(f"select * from checkpoints where {where}", parameters)]

    def _update(self, number: int, **changes: Any) -> None:
        with self._write() as db:
            update(db, "checkpoints", {"id": number}, changes)


def _vms_text(vms: Iterable[CheckpointVM]) -> str:
    return json.dumps([asdict(vm) for vm in vms])


def _read(row: dict[str, Any]) -> Checkpoint:
    vms = tuple(CheckpointVM(**{**vm, "nodes": tuple(vm["nodes"])}) for vm in json.loads(row["vms"]))
    typed = {"state": CheckpointState(row["state"]), "vms": vms, "targets": tuple(json.loads(row["targets"]))}
    return Checkpoint(**{**row, **typed})
