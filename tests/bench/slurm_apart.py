"""Slurm apart: a simulated Slurm in a process of its own, which answers the commands of the real adapter as texts.

So the engine does what it does at a site: it reads what squeue and scontrol print. What Slurm itself computes holds no
lock of the engine's Python. Only the start of a process for each command is left out.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsNode, RmsPartition, RmsReservation
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_text import JOB_FIELDS
from rmsplugin.adapters.simulated.rms.job import SimulatedJob
from rmsplugin.adapters.simulated.rms.slurm import SimulatedRms
from rmsplugin.errors import RefusedError

_SEPARATOR = "\x1f"
GATE = "vjobgate"


class SparingSlurm(SimulatedRms):
    """A Slurm of tens of thousands of jobs that looks only at those to which something happens; it knows no arrays."""

    #: The jobs that do not just run, wait behind the gate, or have ended.
    _restless: dict[str, SimulatedJob]

    @classmethod
    def from_filled(cls, slurm: SimulatedRms) -> SparingSlurm:
        """The same cluster, after a look at all jobs, by which rooms start."""
        slurm._move_on()
        slurm.__class__ = cls
        assert isinstance(slurm, cls)
        slurm._restless = {}
        return slurm

    def submit(self, *words: Any, **request: Any) -> int:
        """See ``SimulatedCluster.submit``."""
        job_id = super().submit(*words, **request)
        self._restless[str(job_id)] = self._jobs[str(job_id)]
        return job_id

    def finish(self, job_id: int, detail: str = "COMPLETED") -> None:
        """See ``SimulatedCluster.finish``."""
        super().finish(job_id, detail)
        self._restless[str(job_id)] = self._jobs[str(job_id)]

    def _called(self, method: str, argument: int | str) -> None:
        super()._called(method, argument)
        if isinstance(argument, int):  # what is about to happen to it shows at the next look
            self._restless[str(argument)] = self._find(argument)

    def _move_on(self) -> None:
        everything, self._jobs = self._jobs, self._restless
        try:
            super()._move_on()
        finally:
            self._jobs = everything
        now = self._clock()
        self._restless = {name: job for name, job in self._restless.items() if not _rests(job, now)}

    def _find(self, job_id: int) -> SimulatedJob:
        return self._jobs.get(str(job_id)) or super()._find(job_id)

    def _is_split(self, each: SimulatedJob) -> bool:
        return True


def _rests(job: SimulatedJob, now: float) -> bool:
    if job.state is JobState.PENDING:
        return job.gated and not job.requeued and bool(job.accrues_from)
    return job.state is JobState.RUNNING or (job.state is JobState.ENDED and not job.completing(now))


class Printed:
    """What Slurm's commands print about a simulated Slurm. A job's line is kept while nothing happens to the job."""

    def __init__(self, slurm: SparingSlurm) -> None:
        self.slurm = slurm
        self._lines: dict[str, tuple[tuple[Any, ...], str]] = {}

    def run(self, program: str, *words: str, text: str = "", questions: int = 1) -> str:
        """See ``SlurmCommands.run``. Raises RefusedError for what it does not know."""
        slurm = self.slurm
        match (program, *words):
            case ("squeue", *_):
                return self._squeue(words)
            case ("scontrol", "-a", "-o"):
                slurm._called("snapshot", "")
                return self._nodes() + self._configuration() + self._partitions() + self._reservations()
            case ("scontrol", "write", "batch_script", job, "-"):
                return slurm.batch_script(int(job))
            case ("scontrol", "update", job, licenses, *_) if licenses.startswith("Licenses="):
                act = slurm.close_gate if GATE in licenses else slurm.open_gate
                act(int(job.removeprefix("JobId=")))
            case ("scontrol", "suspend" | "resume" | "requeue" | "hold", job):
                getattr(slurm, words[0])(int(job))
            case ("scancel", job):
                slurm.cancel(int(job))
            case ("scontrol", "show", "topology", *_):
                return "No topology information available\n"
            case _:
                raise RefusedError(f"this Slurm does not know {program} {' '.join(words)}")
        return ""

    def _squeue(self, words: tuple[str, ...]) -> str:
        slurm, token = self.slurm, words[-1].rpartition(_SEPARATOR)[2]
        slurm._called("squeue", "")
        named = words[words.index("-j") + 1].split(",") if "-j" in words else list(slurm._jobs)
        end = f"{_SEPARATOR}{token}\n"
        return "".join(self._line(slurm._jobs[name]) + end for name in named if name in slurm._jobs)

    def _line(self, job: SimulatedJob) -> str:
        of = tuple(job.__dict__.values())
        known = self._lines.get(job.display_id)
        if known is not None and known[0] == of:
            return known[1]
        line = _SEPARATOR.join(_fields(self.slurm._seen(job)).values())
        if not job.completing_until and not job.delayed_until:  # else it changes with time alone
            self._lines[job.display_id] = (of, line)
        return line

    def _nodes(self) -> str:
        return "".join(_node(node) for node in self.slurm.nodes.values())

    def _configuration(self) -> str:
        slurm = self.slurm
        said = {
            "Licenses": _licenses(slurm.licenses),
            "PreemptType": slurm.preempt_type,
            "PreemptMode": slurm.preempt_mode,
            "PreemptExemptTime": "00:00:00",
            "KillWait": "30 sec",
            "SlurmUser": "root(0)",
            "SlurmdSpoolDir": slurm.spool_dir,
            "SLURM_VERSION": "22.05.8",
        }
        return "".join(f"{key:24}= {value}\n" for key, value in said.items())

    def _partitions(self) -> str:
        return "".join(_partition(each) for each in self.slurm.partitions.values())

    def _reservations(self) -> str:
        return "".join(_reservation(each) for each in self.slurm.reservations.values())


def _fields(job: RmsJob) -> dict[str, str]:
    """The fields of ``JOB_FIELDS``, as squeue prints them."""
    pending = job.state is JobState.PENDING
    licenses = [*([job.licenses] if job.licenses else []), *([GATE] if job.gated else [])]
    said = {
        "display_id": job.display_id,
        "job_id": str(job.job_id),
        "array_id": str(job.job_id),
        "task": "N/A",
        "partition": job.partition,
        "user": job.user,
        "uid": str(job.uid),
        "gid": str(job.uid),
        "word": job.detail,
        "reason": job.reason,
        "priority": str(job.priority),
        "nice": str(job.nice),
        "account": job.account,
        "cpus": str(job.cpus),
        "memory": f"{job.memory_mib}M",
        "submit": str(job.submit_time),
        "start": str(job.start_time) if job.start_time else "N/A",
        "end": str(job.end_time) if job.end_time else "N/A",
        "limit": "UNLIMITED" if math.isinf(job.time_limit_s) else f"0-00:{int(job.time_limit_s) // 60}:00",
        "dependency": "(null)",
        "nodes": "" if pending else ",".join(job.nodes),
        "required_nodes": ",".join(job.nodes) if pending else "",
        "batch_host": job.batch_host or "n/a",
        "licenses": ",".join(licenses) or "(null)",
        "restarts": str(job.restarts),
        "eligible_time": str(job.submit_time),
        "preempt_time": str(job.preempt_time) if job.preempt_time else "N/A",
        "accrue_time": str(job.accrue_time) if job.accrue_time else "N/A",
        "name": job.name,
        "mcs_label": job.mcs_label or "(null)",
    }
    return {field: said[field] for field in JOB_FIELDS}


def _node(node: RmsNode) -> str:
    size = f"CPUTot={node.cpus} CPULoad=0.10 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null)"
    memory = f"RealMemory={node.memory_mib} AllocMem={node.memory_mib} FreeMem=64 Sockets=1 Boards=1"
    times = "BootTime=1764330000 SlurmdStartTime=1764330000 LastBusyTime=1764330000"
    used = "CfgTRES=cpu=5,mem=5G,billing=5 AllocTRES=cpu=5,mem=5G CapWatts=n/a CurrentWatts=0 ExtSensorsTemp=n/s"
    address = f"NodeAddr={node.name} NodeHostName={node.name} Version=22.05.8 OS=Linux"
    state = f"State={node.state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=vmhosts"
    return f"NodeName={node.name} Arch=x86_64 CoresPerSocket=1 {size} {address} {memory} {state} {times} {used}\n"


def _partition(each: RmsPartition) -> str:
    share = "EXCLUSIVE" if each.exclusive else "NO"
    hidden = "YES" if each.hidden else "NO"
    return (
        f"PartitionName={each.name} AllowGroups=ALL AllowNodes=ALL GraceTime={each.grace_time_s} Hidden={hidden} "
        f"MaxTime=UNLIMITED Nodes={','.join(each.nodes)} PriorityTier={each.priority_tier} OverSubscribe={share} "
        f"PreemptMode={each.preempt_mode} State={'UP' if each.up else 'DOWN'}\n"
    )


def _reservation(each: RmsReservation) -> str:
    return (
        f"ReservationName={each.name} StartTime={each.start_time} EndTime={each.end_time} Nodes=(null) "
        f"Flags={','.join(each.flags)} Users={','.join(each.users)} Licenses={_licenses(each.licenses)}\n"
    )


def _licenses(numbers: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{count}" for name, count in numbers.items()) or "(null)"


class SlurmApart:
    """The process of a simulated Slurm, which is forked from this one: fill it before."""

    def __init__(self, slurm: SimulatedRms) -> None:
        self._lock = threading.Lock()
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        served = (SparingSlurm.from_filled(slurm), theirs, self._pipe)
        self._process = context.Process(target=_serve, args=served, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def adapter(self) -> SlurmCli:
        """The real adapter, over the commands of this Slurm."""
        found = SlurmCli(gate=GATE)
        found._run = found._act = self.run  # type: ignore[assignment]
        return found

    def run(self, *words: str, text: str = "", questions: int = 1, enough: str = "") -> str:
        """See ``SlurmCommands.run``."""
        return str(self._ask("run", *words, text=text, questions=questions))

    def act(self, method: str, *words: Any, **more: Any) -> Any:
        """Call a method of the simulated Slurm."""
        return self._ask(method, *words, **more)

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()

    def _ask(self, *question: Any, **more: Any) -> Any:
        with self._lock:
            self._pipe.send((question, more))
            done, answer = self._pipe.recv()
        if not done:
            raise answer  # as the act raised it
        return answer


def _serve(slurm: SparingSlurm, pipe: Any, other_end: Any) -> None:
    other_end.close()  # else the pipe would never end
    printed = Printed(slurm)
    while True:
        try:
            (method, *words), more = pipe.recv()
        except EOFError:
            os._exit(0)  # what was open before the fork is the other process's
        act: Callable[..., Any] = printed.run if method == "run" else getattr(slurm, method)
        try:
            answer = True, act(*words, **more)
        except Exception as error:
            answer = False, error
        pipe.send(answer)
