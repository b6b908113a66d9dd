"""Checkpoints, in the ledger: the files that were written of running vjobs, their nodes, and whether they are whole.

A checkpoint is *taking* from its intent on, and *whole* once every byte of it is proved where it has to be. It is *old*
when a newer one is whole, when it failed, or when nobody can need it any more. The files of an old one are removed, and
its row last.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rmsplugin.engine.ledger.table import LedgerTable, insert, update


class CheckpointState(enum.StrEnum):
    """The state of a checkpoint."""

    TAKING = "taking"
    WHOLE = "whole"
    OLD = "old"


@dataclass(frozen=True, slots=True)
class CheckpointVM:
    """The file of one VM: its proved content, and the nodes that have it, or "shared"."""

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
    ran_s: float  # how long the vjob had run by ``taken``; after a return to this checkpoint, by the return
    used: int  # how often the vjob went back to this checkpoint
    targets: tuple[str, ...]  # nodes that may get copies, the best first
    vms: tuple[CheckpointVM, ...]  # each with all nodes that may have its file

    @property
    def size_bytes(self) -> int:
        """The size of all its files, each counted once."""
        return sum(vm.size_bytes for vm in self.vms)


class Checkpoints(LedgerTable):
    """The ledger's table of checkpoints. Several threads may call."""

    def intend(self, job_id: int, vms: Iterable[CheckpointVM], targets: Iterable[str]) -> None:
        """Record that a checkpoint is to be taken, and which nodes the VMs' own files will be on."""
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
        """Record that the operation that takes the checkpoint has begun; an interrupted one is not gone on with."""
        self._update(number, began=self._clock())

    def may_be_on(self, number: int, vms: Iterable[CheckpointVM]) -> None:
        """Record, before anything is put there, on which nodes files of the checkpoint may be."""
        self._update(number, vms=_vms_text(vms))

    def is_whole(self, number: int, vms: Iterable[CheckpointVM], *, taken: float, ran_s: float) -> None:
        """Record that every byte of the checkpoint is proved; all others of its vjob are old from now on."""
        with self._write() as db:
            job_id = self._rows("select job_id from checkpoints where id = ?", [number])[0]["job_id"]
            self.retire(job_id)
            changes = {"state": "whole", "vms": _vms_text(vms), "taken": taken, "ran_s": ran_s}
            update(db, "checkpoints", {"id": number}, {**changes, "whole_at": self._clock()})

    def went_back(self, number: int, ran_s: float) -> None:
        """Record that the vjob, which has run for ``ran_s``, goes on from this checkpoint: it covers the whole run."""
        with self._write() as db:
            db.execute("update checkpoints set used = used + 1, ran_s = ? where id = ?", [ran_s, number])

    def retire(self, job_id: int, *, taking_only: bool = False) -> None:
        """Make the vjob's checkpoints old, for nobody needs them any more; or only those that are being taken."""
        states = "('taking')" if taking_only else "('taking', 'whole')"
        with self._write() as db:
            db.execute(f"update checkpoints set state = 'old' where job_id = ? and state in {states}", [job_id])

    def retire_one(self, number: int) -> None:
        """Make one checkpoint old, for nobody needs it any more."""
        self._update(number, state="old")

    def forget(self, number: int) -> None:
        """Forget a checkpoint of which no file is left."""
        with self._write() as db:
            db.execute("delete from checkpoints where id = ?", [number])

    def forget_before(self, time: float) -> None:
        """Forget old checkpoints begun before ``time``: their files cannot be removed, for their nodes are no more."""
        with self._write() as db:
            db.execute("delete from checkpoints where state = 'old' and began < ?", [time])

    def whole(self, job_id: int) -> Checkpoint | None:
        """The newest whole checkpoint of the vjob."""
        found = self._select("job_id = ? and state = 'whole' order by id desc limit 1", [job_id])
        return found[0] if found else None

    def taking(self, job_id: int) -> Checkpoint | None:
        """The checkpoint of the vjob that is being taken, or was being taken when the operation was interrupted."""
        found = self._select("job_id = ? and state = 'taking' order by id desc limit 1", [job_id])
        return found[0] if found else None

    def in_state(self, state: CheckpointState) -> list[Checkpoint]:
        """All checkpoints in this state, oldest first."""
        return self._select("state = ? order by id", [str(state)])

    def newest(self) -> Mapping[int, Checkpoint]:
        """The whole checkpoint of each vjob that has one, by job id."""
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
