"""User reports: `rmsplugin report` for users who may not read the ledger, made at a bounded price, given in pieces.

Reports are made in processes of their own (rmsplugin/reporter.py), one at a time. The rest after a report is as long as
the report took: so reports keep ledger, accounting and CPU busy for half of the time at most. A report is kept in a
file without a name until it was read, or was not asked for in a while. Each user has one report at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rmsplugin.child_process import environment
from rmsplugin.engine.ledger.ledger import Subject
from rmsplugin.engine.ledger.site_ledgers import site_ledgers
from rmsplugin.errors import NotFoundError, RefusedError, RmspluginError, UnavailableError
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

PROGRAM = "rmsplugin.reporter"
#: On disk, and not in the memory that /tmp is on some hosts.
_DIRECTORY = Path("/var/tmp")

#: A report that is not asked for is dropped after so many seconds.
_KEPT_S = 60.0
#: A report that takes more seconds than this is given up.
_DEADLINE_S = 900.0
#: The rest after a report is as long as it took to make it, but not longer than this.
_REST_S = 60.0
#: The most reports, of different users, that are waited for, made and kept at a time.
_MOST = 16
_MEMORY_MIB = 2048
_SIZE_MIB = 256
#: The bytes of a report in one answer: with the additions of JSON they have to fit into a munge credential.
PIECE_BYTES = 256 << 10


class _File:
    """A file without a name, which exists as long as this object is referred to.

    It is never closed explicitly: a thread that reads it could then read another file that got its descriptor.
    """

    def __init__(self) -> None:
        """Raises OSError."""
        with tempfile.TemporaryFile(dir=_DIRECTORY) as file:
            self.descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


@dataclass(slots=True, eq=False)
class UserReport:
    """A report on its way, or made.

    Attributes:
        doing, part: the present stage, and the part of it that is done, from 0 to 1.
        size: bytes; -1 until it is made.
        failure: why the report will never be made.
    """

    number: int
    uid: int
    file: _File
    doing: str = "waiting for reports of others"
    part: float = 0.0
    size: int = -1
    failure: RmspluginError | None = None
    task: asyncio.Task[None] | None = None
    leaves: asyncio.TimerHandle | None = None


class UserReports:
    """All reports; used in one event loop, except for ``piece``."""

    def __init__(self, settings: Settings, changed: Callable[[frozenset[Subject]], None]) -> None:
        """``changed`` is called with ``("report", number)`` whenever a report is made, or has failed."""
        self._settings = settings
        self._changed = changed
        self._numbers = itertools.count(1)
        self._reports: dict[int, UserReport] = {}  # by uid
        self._tasks: set[asyncio.Task[None]] = set()  # also of dropped reports, until their processes have ended
        self._turn = asyncio.Lock()
        self._rests_until = 0.0  # of the monotonic clock

    def begin(self, uid: int, owner: int | None, question: dict[str, Any]) -> UserReport:
        """Have a report made, in the place of the one that this user had.

        Args:
            uid: of the caller.
            owner: the user whose jobs it may tell of; None: all users.
            question: since, until, users, accounts, partitions, jobs and hosts, as in docs/protocols.md.

        Raises:
            UnavailableError: the limit of reports that are made or kept is reached.
        """
        self._drop(uid)
        if len(self._reports) >= _MOST:
            raise UnavailableError("the engine makes as many reports as it can at a time; try again later")
        try:
            file = _File()
        except OSError as error:
            raise UnavailableError(f"the engine has no room for a report: {error.strerror}") from None
        report = self._reports[uid] = UserReport(next(self._numbers), uid, file)
        ledgers = [{**asdict(each), "path": str(each.path)} for each in site_ledgers(self._settings)]
        settings = self._settings.model_dump(mode="json")
        request = {**question, "owner": owner, "settings": settings, "ledgers": ledgers}
        report.task = asyncio.get_running_loop().create_task(self._make(report, json.dumps(request).encode()))
        self._tasks.add(report.task)
        report.task.add_done_callback(self._tasks.discard)
        self._keep(report, 0.0)
        return report

    def kept_report(self, uid: int, number: int, wait_s: float) -> UserReport:
        """A report of this user; it is kept as long as this request waits, and for a while after.

        Raises:
            RefusedError: there is no such report any more.
            RmspluginError: the report could not be made.
        """
        report = self._reports.get(uid)
        if report is None or report.number != number:
            raise RefusedError("this report is not kept any more; ask for it again")
        self._keep(report, wait_s)
        if report.failure is not None:
            raise report.failure
        return report

    @staticmethod
    def piece(report: UserReport, begin: int) -> str:
        """A piece of the report, from this byte on. May be called in any thread."""
        return os.pread(report.file.descriptor, PIECE_BYTES, begin).decode("ascii")

    async def close(self) -> None:
        """Make no more reports, forget all, and return when their processes have ended."""
        for uid in list(self._reports):
            self._drop(uid)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _keep(self, report: UserReport, wait_s: float) -> None:
        if report.leaves is not None:
            report.leaves.cancel()
        report.leaves = asyncio.get_running_loop().call_later(wait_s + _KEPT_S, self._drop, report.uid)

    def _drop(self, uid: int) -> None:
        report = self._reports.pop(uid, None)
        if report is None:
            return
        assert report.leaves is not None and report.task is not None
        report.leaves.cancel()
        report.task.cancel()
        self._changed(frozenset({("report", report.number)}))

    async def _make(self, report: UserReport, request: bytes) -> None:
        async with self._turn:
            await asyncio.sleep(self._rests_until - time.monotonic())
            began = time.monotonic()
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    await _run_reporter(report, request)
            except TimeoutError:
                report.failure = UnavailableError(f"the report was not made within {_DEADLINE_S:.0f} s")
            except RmspluginError as error:
                report.failure = error
            except Exception:
                log.exception("a report for uid %d", report.uid)
                report.failure = UnavailableError("the report could not be made; see the engine's log")
            finally:  # also after a report that was broken off
                ended = time.monotonic()
                self._rests_until = ended + min(ended - began, _REST_S)
                self._changed(frozenset({("report", report.number)}))


async def _run_reporter(report: UserReport, request: bytes) -> None:
    """Run the process that makes a report.

    Raises:
        RmspluginError: the process says that it cannot make the report, or ends without having made it.
        OSError: the process cannot be started.
    """
    theirs, lifeline = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", PROGRAM, str(theirs), str(_MEMORY_MIB), str(_SIZE_MIB)),
            stdin=asyncio.subprocess.PIPE,
            stdout=report.file.descriptor,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(theirs,),
            env=environment(),
            cwd="/",
            start_new_session=True,
        )
        try:
            assert process.stdin is not None and process.stderr is not None
            with contextlib.suppress(ConnectionError):  # the end of the process is reported below
                process.stdin.write(request)
                await process.stdin.drain()
            process.stdin.close()
            said = b""
            async for line in process.stderr:
                said = _heard(report, line) or said
            if await process.wait() != 0:
                raise UnavailableError(f"the report could not be made: {_sentence(said, process.returncode)}")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # sacct, too
                await process.wait()
    finally:
        os.close(theirs)
        os.close(lifeline)
    report.size = os.fstat(report.file.descriptor).st_size


def _heard(report: UserReport, line: bytes) -> bytes:
    """Take in a line of the process. Returns the line if it is not one of the reporter's own messages.

    Raises:
        NotFoundError: there is no such job, user, account or partition.
        UnavailableError: the report cannot be made.
    """
    try:
        words = json.loads(line)
        if "error" in words:
            raise (NotFoundError if words["unknown"] else UnavailableError)(words["error"])
        report.doing, report.part = words["doing"], words["part"]
    except (ValueError, KeyError, TypeError):
        return line
    return b""


def _sentence(said: bytes, status: int | None) -> str:
    words = "".join(c if c.isprintable() else " " for c in said.decode(errors="replace")).strip()
    return words[:200] or f"its process ended with status {status}"
