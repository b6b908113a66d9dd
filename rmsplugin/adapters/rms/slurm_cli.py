"""Slurm by its commands: the Rms that always works, whatever release of Slurm runs."""

from __future__ import annotations

import math
import secrets
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.rms import slurm_records, slurm_request, slurm_scripts, slurm_text
from rmsplugin.adapters.rms.base import (
    ROOM_NAME,
    JobState,
    MailWish,
    NodePower,
    Overseers,
    RmsJob,
    RmsNode,
    RmsPriorities,
    RmsSnapshot,
)
from rmsplugin.adapters.rms.slurm_commands import SlurmCommands
from rmsplugin.adapters.rms.slurm_priorities import SlurmPriorities
from rmsplugin.adapters.rms.slurm_queue_feed import QueueFeed
from rmsplugin.adapters.rms.slurm_reading import SlurmTexts
from rmsplugin.adapters.rms.slurm_text import JobRow
from rmsplugin.defaults import ROOM_MARK
from rmsplugin.errors import NotFoundError, RefusedError, RmspluginError
from rmsplugin.model.vjob import Geometry

_END_PROGRAM = str(Path(__file__).with_name("slurm_end.py"))

_STARTED = (JobState.RUNNING, JobState.CONFIGURING, JobState.SUSPENDED)

#: A reservation without an end lasts 365 days in Slurm; it is renewed when less than this is left.
_RENEW_S = 180 * 86400

#: Questions that one scontrol is asked, on its standard input: most of a short one's time is the start of a process.
#: The configuration comes last: behind it scontrol tells which slurmctld is up, and asks each of them. One that takes
#: the question and cannot answer, since munge on its host has died, costs MessageTimeout, and is not waited for.
_QUESTIONS = ("show node", "show partition", "show reservation", "show config")
_AFTER_CONFIGURATION = "\nSlurmctld("

#: Limits of more arrays than these are read from what Slurm tells of all jobs: each question is one to slurmctld.
_FEW_ARRAYS = 16

# The node's agent ends the sleep, which it knows by the mark; then the job has completed. Slurm's own end is for all of
# its processes: the shell has no trap, so it is not waited for. --export=NIL leaves no PATH.
_ROOM_SCRIPT = f"#!/bin/sh\n{ROOM_MARK} /bin/sleep infinity\nexit 0\n"


class SlurmCli:
    """The Rms over squeue, scontrol, scancel and sbatch. It has to run as SlurmUser (rooms are its jobs)."""

    def __init__(
        self,
        bin_dir: str = "",
        timeout_s: float = 30.0,
        *,
        watch_s: float = 1.0,
        gate: str = "vjobgate",
        gate_reservation: str = "rmsplugin_gate",
        prefix: Sequence[str] = (),
        permit: Permit = nullcontext,
    ) -> None:
        """Ask nothing of Slurm yet.

        Args:
            bin_dir: directory of the commands; empty: PATH.
            timeout_s: bound of one command.
            watch_s: pause between two looks at the queue, for ``pulse``.
            gate: name of the gate's licence.
            gate_reservation: name of the reservation that takes the licence away from all jobs.
            prefix: words before each command, to run it elsewhere.
            permit: see ``SlurmCommands``.
        """
        commands = SlurmCommands(bin_dir, timeout_s, prefix, permit)
        self._run, self._act = commands.run, commands.act
        self._queue = QueueFeed(commands, watch_s, timeout_s)
        self._priorities = SlurmPriorities(lambda *words: self._run(*words))
        self._gate = gate
        self._kept_rows = slurm_text.KeptRows(gate)
        self._gate_reservation = gate_reservation
        #: The directory of slurmctld's state, as the last snapshot found it.
        self._state_dir = ""
        #: The directories of Slurm's plugins and library, likewise.
        self._plugin_dir = ""

    @property
    def gate(self) -> str:
        """Name of the gate's licence."""
        return self._gate

    # -- reading -------------------------------------------------------------------------------------------------

    def snapshot(self) -> RmsSnapshot:
        """See ``Rms.snapshot``."""
        return self.read()[0]

    def read(self) -> tuple[RmsSnapshot, SlurmTexts]:
        """Return a snapshot, and what Slurm has told for it, of which ``snapshot_of`` makes the same."""
        site = self._all_but_jobs()
        queue, token = self._told_queue()
        rows = self._kept_rows.read(queue, token, int(time.time()))
        limits = self._limits(rows)
        jobs = _jobs(rows, limits)
        configuration = slurm_records.configuration(site)
        told = self._priorities.read(configuration, jobs)
        snapshot = self._made(site, configuration, jobs, told.priorities)
        return snapshot, SlurmTexts(site, queue, token, limits, told.parts, told.shares)

    def snapshot_of(self, texts: SlurmTexts) -> RmsSnapshot:
        """The snapshot that was read elsewhere. Raises ValueError, KeyError if these are no texts of Slurm."""
        rows = self._kept_rows.read(texts.queue, texts.token, int(time.time()))
        configuration = slurm_records.configuration(texts.site)
        priorities = self._priorities.of_texts(configuration, texts.parts, texts.shares)
        return self._made(texts.site, configuration, _jobs(rows, texts.limits), priorities)

    def snapshot_with(self, read_jobs: Callable[[], tuple[RmsJob, ...]]) -> RmsSnapshot:
        """Return a snapshot of the jobs that ``read_jobs`` gives, and of the rest by the commands.

        Jobs are read after nodes (``RmsSnapshot``), so the two questions do not run at the same time.
        """
        site = self._all_but_jobs()
        jobs = read_jobs()
        configuration = slurm_records.configuration(site)
        return self._made(site, configuration, jobs, self._priorities.read(configuration, jobs).priorities)

    def _made(
        self, site: str, configuration: Mapping[str, str], jobs: tuple[RmsJob, ...], priorities: RmsPriorities
    ) -> RmsSnapshot:
        """A snapshot of what Slurm has told."""
        self._state_dir = configuration.get("StateSaveLocation", "")
        self._plugin_dir = configuration.get("PluginDir", "")
        return RmsSnapshot(
            jobs=jobs,
            nodes=slurm_records.nodes(site),
            partitions=slurm_records.partitions(site),
            reservations=slurm_records.reservations(site),
            licenses=slurm_records.licenses(configuration.get("Licenses", "")),
            preempt_type=slurm_records.preempt_type(configuration),
            preempt_mode=configuration["PreemptMode"],
            preempt_exempt_s=slurm_records.preempt_exempt_s(configuration),
            kill_wait_s=slurm_records.kill_wait_s(configuration),
            requeue_exits=slurm_records.requeue_exits(configuration),
            spool_dir=configuration.get("SlurmdSpoolDir", ""),
            daemon_port=slurm_records.port(configuration.get("SlurmdPort", "")),
            state_dir=self._state_dir,
            version=configuration["SLURM_VERSION"],
            priorities=priorities,
            power_saving=slurm_records.power_saving(configuration),
            private=slurm_records.private_data(configuration),
            mail_program=slurm_records.program(configuration.get("MailProg", "")),
        )

    def _all_but_jobs(self) -> str:
        """Nodes, configuration, partitions and reservations, as one process tells them one after the other."""
        text = "".join(f"{question}\n" for question in _QUESTIONS)
        asked = len(_QUESTIONS)
        told = self._run("scontrol", "-a", "-o", text=text, questions=asked, enough=_AFTER_CONFIGURATION)
        return slurm_records.answers(told)

    def version(self) -> str:
        """Release of the running Slurm, such as "22.05.8". Raises UnavailableError."""
        return self._configuration()["SLURM_VERSION"]

    def leaf_switches(self) -> tuple[tuple[str, ...], ...]:
        """See ``Rms.leaf_switches``."""
        try:
            return slurm_records.leaf_switches(self._run("scontrol", "show", "topology", "-o"))
        except RefusedError:  # no plugin with a topology
            return ()

    def pulse(self, partitions: Iterable[str]) -> str:
        """See ``Rms.pulse``. One squeue tells it again and again, with a line for each array."""
        return self._queue.latest(tuple(partitions))

    def end_pulse(self) -> None:
        """Have no squeue stay until somebody asks for ``pulse``."""
        self._queue.end()

    def require_answer(self) -> None:
        """Raise UnavailableError, or as Slurm refuses, unless Slurm answers this host. It is asked for very little."""
        self._run("scontrol", "-o", "show", "reservation")

    def job(self, job_id: int) -> RmsJob:
        """See ``Rms.job``."""
        row = self._row(job_id)
        if row.task and row.job.eligible and row.job.gated:
            # Whether its array's limit leaves room shows only beside its siblings.
            rows = self._rows(row.array_id)
            siblings = slurm_text.within_array_limits(rows, self._limits(rows))
            return next((each for each in siblings if each.target == row.target), row).job
        return row.job

    def jobs(self, job_ids: Collection[int]) -> dict[int, RmsJob]:
        """See ``Rms.jobs``."""
        if not job_ids:
            return {}
        try:
            return {row.job.job_id: row.job for row in self._rows(*job_ids) if row.job.job_id in job_ids}
        except NotFoundError:  # squeue says so only for a single job
            return {}

    def unheard(self, partition: str) -> tuple[str, ...]:
        """See ``Rms.unheard``."""
        return slurm_text.unheard_nodes(self._run("sinfo", "-h", "-N", "-p", partition, "-o", "%N %T"))

    def ended(self, job_ids: Collection[int]) -> dict[int, str]:
        """See ``Rms.ended``. For a requeued job, and for an id that was given out twice, the last run counts."""
        if not job_ids:
            return {}
        jobs = ",".join(map(str, sorted(job_ids)))
        text = self._run("sacct", "-n", "-P", "-X", "-a", "-j", jobs, "-o", "JobIDRaw,State")
        return slurm_text.ended_jobs(text, job_ids)

    def mail_wish(self, job_id: int) -> MailWish | None:
        """See ``Rms.mail_wish``. No other job is in the answer, which some users' free texts could feign else."""
        return slurm_records.mail_wish(self._run("scontrol", "show", "job", str(job_id)))

    def overseers(self) -> Overseers:
        """See ``Rms.overseers``."""
        users = self._run("sacctmgr", "-n", "-P", "show", "user", "format=User,AdminLevel")
        accounts = self._run("sacctmgr", "-n", "-P", "show", "account", "withcoord", "format=Account,Coordinators")
        return slurm_records.overseers(users, accounts)

    def batch_script(self, job_id: int) -> str:
        """See ``Rms.batch_script``. Beside slurmctld it is read from Slurm's state, which costs no process."""
        kept = slurm_scripts.script(self._state_dir, job_id) if self._state_dir else None
        return kept or self._run("scontrol", "write", "batch_script", str(job_id), "-")

    def geometry(self, job_id: int) -> Geometry:
        """See ``Rms.geometry``."""
        return slurm_request.geometry(self._run("scontrol", "show", "job", str(job_id)))

    # -- the gate ------------------------------------------------------------------------------------------------

    def reserve_gate(self) -> None:
        """See ``Rms.reserve_gate``. It is reserved for SlurmUser, so that no user's job ever has it."""
        configuration = self._configuration()
        count = slurm_records.licenses(configuration.get("Licenses", "")).get(self._gate, 0)
        if not count:
            raise RefusedError(f"slurm.conf has no licence {self._gate}: add Licenses={self._gate}:1")
        name, licenses = f"ReservationName={self._gate_reservation}", f"Licenses={self._gate}:{count}"
        found = slurm_records.reservations(self._run("scontrol", "show", "reservation", "-o"))
        reservation = found.get(self._gate_reservation)
        if reservation is None:
            user = configuration["SlurmUser"].partition("(")[0]
            flags = ("Duration=infinite", f"Users={user}", licenses, "Flags=LICENSE_ONLY")
            self._act("scontrol", "create", "reservation", name, "StartTime=now", *flags)
            return
        wrong = reservation.licenses.get(self._gate, 0) < count
        if wrong or reservation.end_time - time.time() < _RENEW_S:
            # Not Duration=infinite: that is 365 days from its start, so it would renew nothing.
            self._act("scontrol", "update", name, licenses, "EndTime=now+365days")

    def split(self, display_id: str) -> int:
        """See ``Rms.split``."""
        row = self._row_named(display_id)
        if row.job.split:
            return row.job.job_id
        # Slurm gives an element a record of its own when the element is changed alone.
        self._set_licenses(row.target, row, gated=True)
        return self._row_named(display_id).job.job_id

    def open_gate(self, job_id: int) -> None:
        """See ``Rms.open_gate``.

        Raises:
            RefusedError: among others while the last run of the job is still being cleaned up (Slurm would take the
                request, and delay the job by two minutes all the same), and for elements of an array that are not
                split off.
        """
        rows = self._rows_of(job_id)
        row = rows[0]
        if row.job.state in _STARTED:
            return
        if row.job.completing or row.job.state is JobState.ENDED:
            raise RefusedError(f"job {row.job.display_id} cannot start: it is {row.job.detail}")
        if len(rows) > 1:
            raise RefusedError(f"job {job_id} stands for {len(rows)} elements of an array that are not split off")
        if row.job.gated or row.delayed:
            self._set_licenses(row.target, row, *(["StartTime=now"] if row.delayed else []), gated=False)

    def close_gate(self, job_id: int) -> None:
        """See ``Rms.close_gate``."""
        rows = self._rows_of(job_id)
        row = rows[0]
        _refuse_ended(row)
        if row.job.state is JobState.PENDING and not row.job.gated:
            self._set_licenses(_target(rows), row, gated=True)

    def hold(self, job_id: int) -> None:
        """See ``Rms.hold``. Elements of an array that Slurm has not split off are held together."""
        rows = self._rows_of(job_id)
        _refuse_ended(rows[0])
        if rows[0].job.state is JobState.PENDING:
            self._act("scontrol", "hold", _target(rows))

    def comment(self, job_id: int, text: str) -> None:
        """See ``Rms.comment``."""
        row = self._row(job_id)
        _refuse_ended(row)
        self._act("scontrol", "update", f"JobId={row.target}", f"AdminComment={text}")

    # -- jobs under way ------------------------------------------------------------------------------------------

    def suspend(self, job_id: int) -> None:
        """See ``Rms.suspend``."""
        row = self._row(job_id)
        if row.job.state is not JobState.SUSPENDED:
            self._act("scontrol", "suspend", row.target)

    def resume(self, job_id: int) -> None:
        """See ``Rms.resume``."""
        row = self._row(job_id)
        if row.job.state is not JobState.RUNNING:
            self._act("scontrol", "resume", row.target)

    def requeue(self, job_id: int) -> None:
        """See ``Rms.requeue``.

        Slurm lets a running job ask for the gate, so there is no instant at which it could start again. It does not let
        a suspended one; but Slurm holds that one after its requeue, until it is released here. An interrupted requeue
        goes on when it is asked for again.
        """
        row = self._row(job_id)
        _refuse_ended(row)
        if row.job.state is JobState.PENDING:
            if row.job.held and row.job.restarts and not (row.job.gated or row.job.held_by_user):
                self._act("scontrol", "release", row.target)
            self.close_gate(job_id)
        elif row.job.state is JobState.SUSPENDED:
            self._act("scontrol", "requeue", row.target)
            self._act("scontrol", "release", row.target)
            self._set_licenses(row.target, row, gated=True)
        else:
            self._set_licenses(row.target, row, gated=True)
            try:
                self._act("scontrol", "requeue", row.target)
            except RmspluginError:
                self._set_licenses(row.target, row, gated=row.job.gated)
                raise

    def cancel(self, job_id: int) -> None:
        """See ``Rms.cancel``."""
        row = self._row(job_id)
        if row.job.state is not JobState.ENDED:
            self._act("scancel", row.target)

    def tell_end(self, job_id: int, restarts: int, exit_code: int, signal: int) -> None:
        """See ``Rms.tell_end``."""
        row = self._row(job_id)
        if row.job.state is JobState.ENDED:
            return
        if row.job.state is not JobState.RUNNING:
            raise RefusedError(f"job {job_id} is {row.job.detail}, not running")
        if row.job.restarts != restarts:
            raise RefusedError(f"job {job_id} was requeued and runs again, and that run has not ended")
        if not self._plugin_dir:
            told = slurm_records.configuration(self._run("scontrol", "show", "config"))
            self._plugin_dir = told.get("PluginDir", "")
        status = signal or exit_code << 8  # as wait(2) has it
        self._act(sys.executable, "-I", _END_PROGRAM, self._plugin_dir, str(job_id), str(status))

    # -- rooms ---------------------------------------------------------------------------------------------------

    def request_room(self, node: str, partition: str, *, time_limit_s: float, time_min_s: float) -> int:
        """See ``Rms.request_room``."""
        what = (f"--partition={partition}", f"--nodelist={node}", "--nodes=1", "--exclusive", "--mem=0")
        how_long = (f"--time={_minutes(time_limit_s)}", f"--time-min={_minutes(min(time_min_s, time_limit_s))}")
        where = ("--chdir=/", "--input=/dev/null", "--output=/dev/null", "--export=NIL")
        answer = self._act(
            *("sbatch", "--parsable", f"--job-name={ROOM_NAME}", "--no-requeue", *what, *how_long, *where),
            text=_ROOM_SCRIPT,
        )
        return int(answer.partition(";")[0])

    def extend_room(self, job_id: int, time_limit_s: float) -> None:
        """See ``Rms.extend_room``. Slurm ignores reservations then (22.05, measured): the room may overlap one."""
        self._act("scontrol", "update", f"JobId={job_id}", f"TimeLimit={_minutes(time_limit_s)}")

    # -- power ---------------------------------------------------------------------------------------------------

    def power_down(self, node: str, reason: str) -> None:
        """See ``Rms.power_down``. Slurm would power a node that is off down once more."""
        if self._node(node).power in (NodePower.ON, NodePower.COMING_ON):
            self._act("scontrol", "update", f"NodeName={node}", "State=POWER_DOWN_ASAP", f"Reason={reason}")

    def power_up(self, node: str) -> None:
        """See ``Rms.power_up``."""
        power = self._node(node).power
        if power is NodePower.GOING_OFF:
            raise RefusedError(f"Slurm is powering {node} down: it can come on after that")
        if power is NodePower.OFF:
            self._act("scontrol", "update", f"NodeName={node}", "State=POWER_UP")

    def repair_node(self, node: str) -> None:
        """See ``Rms.repair_node``."""
        if slurm_records.needs_repair(self._node(node)):
            self._act("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def _node(self, name: str) -> RmsNode:
        try:
            text = self._run("scontrol", "show", "node", "-o", name)
        except RefusedError as error:
            raise NotFoundError(f"Slurm has no node {name}") from error
        found = slurm_records.nodes(text).get(name)
        if found is None:
            raise NotFoundError(f"Slurm has no node {name}")
        return found

    # -- inside --------------------------------------------------------------------------------------------------

    def _set_licenses(self, target: str, row: JobRow, *more: str, gated: bool) -> None:
        licenses = [row.job.licenses] if row.job.licenses else []
        wanted = ",".join([*licenses, *([self._gate] if gated else [])])
        self._act("scontrol", "update", f"JobId={target}", f"Licenses={wanted}", *more)

    def _configuration(self) -> dict[str, str]:
        return slurm_records.configuration(self._run("scontrol", "show", "config", enough=_AFTER_CONFIGURATION))

    def _rows_of(self, job_id: int) -> list[JobRow]:
        """All rows with this job id: several if they are elements of an array that are not split off."""
        # For an array's id squeue prints all elements, for an element's only that one.
        rows = [row for row in self._rows(job_id) if row.job.job_id == job_id]
        if not rows:
            raise NotFoundError(f"Slurm has no job {job_id}")
        return rows

    def _row(self, job_id: int) -> JobRow:
        return self._rows_of(job_id)[0]

    def _row_named(self, display_id: str) -> JobRow:
        # An element shows only beside its siblings that it shares its job id with others.
        for row in self._rows(int(display_id.partition("_")[0])):
            if row.job.display_id == display_id:
                return row
        raise NotFoundError(f"Slurm has no job {display_id}")

    def _rows(self, *jobs: int) -> list[JobRow]:
        """Rows of some jobs (all elements, if one is an array). Raises NotFoundError, UnavailableError."""
        text, token = self._told_queue("-j", ",".join(map(str, jobs)))
        return slurm_text.job_rows(text, token, self._gate, int(time.time()))

    def _told_queue(self, *which: str) -> tuple[str, str]:
        """What squeue prints of all jobs, or of some, and the token that ends each row."""
        token = secrets.token_hex(16)
        # Without -r squeue has one line for all waiting elements of an array, including those that are split off.
        select = ("-h", "-a", "-r", "--states=all", *which)
        return self._run("squeue", *select, "-O", slurm_text.squeue_format(token)), token

    def _limits(self, rows: list[JobRow]) -> dict[int, int]:
        """The limits of arrays, as far as they decide something."""
        arrays = slurm_text.limited_arrays(rows)
        return slurm_text.array_limits(self._told_arrays(arrays), rows) if arrays else {}

    def _told_arrays(self, arrays: Sequence[int]) -> str:
        """What scontrol tells of these arrays, and maybe of other jobs."""
        if len(arrays) <= _FEW_ARRAYS:
            text = "".join(f"show job {array}\n" for array in arrays)
            with suppress(NotFoundError):  # the last job of one has just been forgotten
                return slurm_records.answers(self._run("scontrol", "-o", text=text, questions=len(arrays)))
        return self._run("scontrol", "show", "job", "-o")


def _jobs(rows: list[JobRow], limits: Mapping[int, int]) -> tuple[RmsJob, ...]:
    """The jobs of these rows, as the limits of arrays leave them eligible."""
    return tuple(row.job for row in (slurm_text.within_array_limits(rows, limits) if limits else rows))


def _target(rows: Sequence[JobRow]) -> str:
    """The word for rows of one job id in a command."""
    row = rows[0]
    return row.target if len(rows) == 1 else f"{row.array_id}_[{','.join(each.task for each in rows)}]"


def _refuse_ended(row: JobRow) -> None:
    if row.job.state is JobState.ENDED:
        raise RefusedError(f"job {row.job.display_id} has ended ({row.job.detail})")


def _minutes(seconds: float) -> str:
    """A time limit in the form of Slurm's options; a fraction of a minute is cut off, so that the limit is kept."""
    return "UNLIMITED" if math.isinf(seconds) else str(max(1, int(seconds // 60)))
