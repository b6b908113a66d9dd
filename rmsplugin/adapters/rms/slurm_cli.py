"""Slurm by its commands: the Rms that always works, whatever release of Slurm runs."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rmsplugin.adapters.rms import slurm_text
from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsNode, RmsSnapshot
from rmsplugin.adapters.rms.slurm_text import JobRow
from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError, RmspluginError, UnavailableError

# Times as seconds since the epoch, and begin times understood as UTC, whatever this host's time zone; and no variable
# may change what the commands print.
_VARIABLES = ("TZ=UTC", "SLURM_TIME_FORMAT=%s", "LC_ALL=C")
_UNWANTED_VARIABLES = ("SQUEUE_", "SCONTROL_", "SCANCEL_", "SLURM_BITSTR_LEN", "SLURM_CLUSTERS")

# Slurm's words, in any case, and what they mean to us; the first that fits counts.
_MEANINGS: tuple[tuple[str, type[RmspluginError]], ...] = (
    ("invalid job id", NotFoundError),
    ("access/permission denied", ForbiddenError),
    ("unable to contact slurm controller", UnavailableError),
    ("unable to establish control", UnavailableError),
    ("connection refused", UnavailableError),
    ("connection failure", UnavailableError),
    ("socket timed out", UnavailableError),
    ("zero bytes were transmitted", UnavailableError),
    ("in standby mode", UnavailableError),
    ("authentication error", UnavailableError),
    ("munge", UnavailableError),
    ("try again", UnavailableError),
)

_STARTED = (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED)


class SlurmCli:
    """The Rms over squeue, scontrol and scancel. It has to run as SlurmUser or root."""

    def __init__(self, bin_dir: str = "", timeout_s: float = 30.0, *, prefix: Sequence[str] = ()) -> None:
        """Nothing is asked of Slurm yet.

        Args:
            bin_dir: directory of the commands; empty: PATH.
            timeout_s: bound of one command.
            prefix: what to put before each command, to run it somewhere else.
        """
        self._bin_dir = bin_dir
        self._timeout_s = timeout_s
        self._prefix = tuple(prefix)

    def snapshot(self) -> RmsSnapshot:
        """See ``Rms.snapshot``."""
        return self.snapshot_with(
            jobs=tuple(row.job for row in self._rows()),
            nodes=slurm_text.nodes(self._run("scontrol", "show", "node", "-o")),
        )

    def snapshot_with(self, jobs: tuple[RmsJob, ...], nodes: dict[str, RmsNode]) -> RmsSnapshot:
        """Return a snapshot of these jobs and nodes, and of the rest as the commands say it."""
        configuration = slurm_text.configuration(self._run("scontrol", "show", "config"))
        return RmsSnapshot(
            jobs=jobs,
            nodes=nodes,
            partitions=slurm_text.partitions(self._run("scontrol", "show", "partition", "-a", "-o")),
            preempt_type=configuration["PreemptType"],
            preempt_mode=configuration["PreemptMode"],
            preempt_exempt_time_s=slurm_text.duration_s(configuration.get("PreemptExemptTime", "")),
            version=configuration["SLURM_VERSION"],
        )

    def version(self) -> str:
        """Release of the Slurm that runs, such as "22.05.8". Raises UnavailableError."""
        return slurm_text.configuration(self._run("scontrol", "show", "config"))["SLURM_VERSION"]

    def job(self, job_id: int) -> RmsJob:
        """See ``Rms.job``."""
        row = self._row(job_id)
        if row.task and row.job.eligible:
            # Whether the limit of its array leaves room shows only beside its siblings.
            return next((each for each in self._rows("-j", str(row.array_id)) if each.target == row.target), row).job
        return row.job

    def batch_script(self, job_id: int) -> str:
        """See ``Rms.batch_script``."""
        return self._run("scontrol", "write", "batch_script", str(job_id), "-")

    def split(self, display_id: str) -> int:
        """See ``Rms.split``."""
        # Slurm gives an element a record of its own when it is changed alone.
        if "_" in display_id:
            self._run("scontrol", "hold", display_id)
        rows = self._rows("-j", display_id)
        if len(rows) != 1:
            raise NotFoundError(f"Slurm has {len(rows)} jobs named {display_id}")
        return rows[0].job.job_id

    def hold(self, job_id: int) -> None:
        """See ``Rms.hold``.

        A job that waits for others is not held, or Slurm would wait for them for ever; it is given a begin time far
        away (a gate) instead. Elements of an array that Slurm has not split off are held together.
        """
        rows = [row for row in self._rows("-j", str(job_id)) if row.job.job_id == job_id]
        if not rows:
            raise NotFoundError(f"Slurm has no job {job_id}")
        row = rows[0]
        if row.job.state is JobState.ENDED:
            raise RefusedError(f"job {row.job.display_id} has ended ({row.job.detail})")
        if row.job.state is not JobState.PENDING:
            return
        target = row.target if len(rows) == 1 else f"{row.array_id}_[{','.join(each.task for each in rows)}]"
        with self._unless_started(job_id):
            if not row.dependency or row.job.completing:
                self._run("scontrol", "hold", target)
            elif not row.gated or row.job.priority == 0:
                begin = row.begin if row.gated else max(row.begin, int(time.time())) + slurm_text.GATE_S
                start_time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(begin))
                self._run("scontrol", "update", f"JobId={target}", f"StartTime={start_time}")
                self._run("scontrol", "release", target)

    def start(self, job_id: int, node: str) -> None:
        """See ``Rms.start``.

        Of a job that Slurm puts on several nodes, ``node`` is one; Slurm takes the first in its order as batch host.

        Raises:
            RefusedError: among others while the last run of the job is still being cleaned up: Slurm would take the
                request, and delay the job by two minutes all the same.
        """
        row = self._row(job_id)
        if row.job.state in _STARTED:
            return
        if row.job.completing or row.job.state is JobState.ENDED:
            raise RefusedError(f"job {row.job.display_id} cannot start: it is {row.job.detail}")
        with self._unless_started(job_id):
            self._run("scontrol", "update", f"JobId={row.target}", f"ReqNodeList={node}", "StartTime=now")
            self._run("scontrol", "release", row.target)

    def suspend(self, job_id: int) -> None:
        """See ``Rms.suspend``."""
        row = self._row(job_id)
        if row.job.state is not JobState.SUSPENDED:
            self._run("scontrol", "suspend", row.target)

    def resume(self, job_id: int) -> None:
        """See ``Rms.resume``."""
        row = self._row(job_id)
        if row.job.state is not JobState.RUNNING:
            self._run("scontrol", "resume", row.target)

    def requeue(self, job_id: int, *, hold: bool) -> None:
        """See ``Rms.requeue``."""
        row = self._row(job_id)
        if row.job.state is not JobState.PENDING:
            self._run("scontrol", "requeue", row.target)
        if hold:
            # Not `requeuehold`: its hold is one that the job's owner may lift.
            self._run("scontrol", "hold", row.target)

    def cancel(self, job_id: int) -> None:
        """See ``Rms.cancel``."""
        row = self._row(job_id)
        if row.job.state is not JobState.ENDED:
            self._run("scancel", row.target)

    @contextmanager
    def _unless_started(self, job_id: int) -> Iterator[None]:
        """What Slurm refuses of a job because it has just started the job need not be done any more."""
        try:
            yield
        except RefusedError:
            if self._row(job_id).job.state not in _STARTED:
                raise

    def _row(self, job_id: int) -> JobRow:
        # Of an array's id squeue prints all elements, of an element's only that one.
        for row in self._rows("-j", str(job_id)):
            if row.job.job_id == job_id:
                return row
        raise NotFoundError(f"Slurm has no job {job_id}")

    def _rows(self, *selection: str) -> list[JobRow]:
        token = secrets.token_hex(16)
        counts = self._run("squeue", "-h", "-a", "-r", "--states=all", *selection, "-O", "JobID:12,RestartCnt:12")
        text = self._run(
            *("squeue", "-h", "-a", "-r", "--states=all", *selection, "-o", slurm_text.squeue_format(token))
        )
        rows = slurm_text.job_rows(text, token, slurm_text.restart_counts(counts), int(time.time()))
        limits = {array_id: self._array_limit(array_id) for array_id in slurm_text.limited_arrays(rows)}
        return slurm_text.within_array_limits(rows, {array_id: limit for array_id, limit in limits.items() if limit})

    def _array_limit(self, array_id: int) -> int:
        try:
            return slurm_text.array_limit(self._run("scontrol", "show", "job", "-o", str(array_id)))
        except NotFoundError:
            return 0  # it has just ended

    def _run(self, program: str, *arguments: str) -> str:
        path = os.path.join(self._bin_dir, program)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_UNWANTED_VARIABLES)}
        try:
            done = subprocess.run(
                [*self._prefix, "env", *_VARIABLES, path, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._timeout_s,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"Slurm did not answer `{program}` within {self._timeout_s:.0f} s") from None
        except OSError as error:
            raise UnavailableError(f"{error.filename or path} cannot be run: {error.strerror}") from None
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        if done.returncode == 127:
            raise UnavailableError(f"{path} is not there: install Slurm's commands, or set slurm.bin_dir ({message})")
        # `scontrol write batch_script` of an unknown job ends with status 0.
        if done.returncode != 0 or (message and not done.stdout):
            raise meaning(message or f"{program} ended with status {done.returncode}")
        return done.stdout.decode("utf-8", "replace")


def meaning(message: str) -> RmspluginError:
    """Return the error that Slurm's words stand for."""
    lowered = message.lower()
    for words, error in _MEANINGS:
        if words in lowered:
            return error(message)
    return RefusedError(message)
