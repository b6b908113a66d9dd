"""What the contract suite of ``adapters.rms.base.Rms`` runs on: a simulated Slurm, and a real one.

The real one is a minicluster's (see conftest.py), or, with RMSPLUGIN_TEST_SLURM=local, that of the host that pytest
runs on, as root; pyslurm only there, because it is a library. Jobs are alice's, in the partition ``plain``, so that
neither job_submit.lua nor an engine interferes; rooms are in ``vmhosts``.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import pytest
from minicluster_lib import hosts
from minicluster_lib.layout import Cluster as Layout
from patience import PATIENCE_S

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.adapters.rms.base import JobState, Overseers, Rms, RmsJob, RmsNode, RmsPartition
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_handed import HandedSlurm
from rmsplugin.adapters.rms.slurm_pyslurm import SlurmPyslurm
from rmsplugin.adapters.rms.slurm_reading import Handed, packed, unpacked
from rmsplugin.adapters.simulated.rms.slurm import SimulatedRms
from rmsplugin.errors import RefusedError
from rmsplugin.model.priority import Weights

MINICLUSTER = str(Path(__file__).resolve().parents[2] / "contrib" / "minicluster")
LOCAL = os.environ.get("RMSPLUGIN_TEST_SLURM") == "local"

SCRIPT = "#!/bin/sh\nexec sleep 600\n"
#: Ends only when it is killed, so that its job is COMPLETING for some seconds.
STUBBORN = "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n"
GATE, GATE_RESERVATION = "vjobgate", "rmsplugin_gate"
GRACE_S = 30
#: Of an engine that has just renewed its lease, in seconds.
SESSION_S = 12.0
#: `--mail-type=ALL`, as Slurm prints it.
MAIL_ALL = frozenset({"INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT"})
#: Commands of Slurm that change nothing.
_QUESTIONS = ("squeue", "sinfo", "sacct", "sacctmgr", "sprio", "sshare")
#: Options of sbatch that are fields of a request as they are.
_FIELDS = {
    "--job-name": "name",
    "--licenses": "licenses",
    "--nodelist": "node",
    "--ntasks": "cpus",
    "--mem": "memory_mib",
    "--mail-user": "mail_user",
}


class World(Protocol):
    """An Rms, and what users, admins and time do behind its back."""

    rms: Rms

    def now(self) -> float:
        """Seconds since the epoch, as the RMS has them."""

    def pass_time(self) -> None:
        """A moment."""

    def submit(self, *options: str, script: str = SCRIPT, gated: bool = True) -> int:
        """As alice: a job of a script that runs for long, with options of sbatch."""

    def comment_of(self, job_id: int) -> str:
        """The text beside a job that alice reads."""

    def oversee(self, operator: str, coordinator: str) -> None:
        """As an admin: one user is an operator, the other a coordinator of the account of users' jobs."""

    def hold_as_user(self, job_id: int) -> None:
        """As alice."""

    def release_as_user(self, job_id: int) -> None:
        """As alice. Raises RefusedError."""

    def release_as_admin(self, job_id: int) -> None:
        """As SlurmUser."""

    def requeue_as_admin(self, job_id: int) -> None:
        """As SlurmUser, who does not know of the gate."""

    def set_priority(self, job_id: int, priority: int) -> None:
        """As SlurmUser. Raises RefusedError."""

    def set_nice(self, job_id: int, nice: int) -> None:
        """As SlurmUser."""

    def reserve(self, node: str, in_s: int, for_s: int) -> str:
        """As an admin: for maintenance. Returns the reservation's name."""

    def end_gate_reservation_in(self, seconds: int) -> None:
        """As an admin: 0 deletes it."""

    def drain(self, node: str, reason: str) -> None:
        """As an admin; it is undone at the end of the test."""

    def boot(self, node: str) -> None:
        """As the node, which boots: its slurmd registers with a new boot time."""

    def restart_slurmctld(self, silent: str) -> AbstractContextManager[None]:
        """As an admin; meanwhile the slurmd of one node says nothing."""

    def wait(self, what: str, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Let time pass until it is so."""
        deadline = self.now() + seconds
        while not condition():
            assert self.now() < deadline, f"waited in vain for {what}"
            self.pass_time()

    def stays(self, condition: Callable[[], bool], seconds: float = 4) -> bool:
        """Whether it is so for some seconds."""
        deadline = self.now() + seconds
        while condition():
            if self.now() >= deadline:
                return True
            self.pass_time()
        return False

    def wait_for(
        self, job_id: int, state: JobState, *, completing: bool = False, seconds: float = PATIENCE_S
    ) -> RmsJob:
        def reached() -> bool:
            job = self.rms.job(job_id)
            return (job.state, job.completing) == (state, completing)

        self.wait(f"job {job_id} to be {state}", reached, seconds)
        return self.rms.job(job_id)

    def started(self, *options: str, script: str = SCRIPT) -> int:
        job_id = self.submit(*options, script=script)
        self.rms.open_gate(job_id)
        self.wait_for(job_id, JobState.RUNNING)
        return job_id

    def room(self, node: str = "n1", time_limit_s: float = 3600, time_min_s: float = 600) -> int:
        return self.rms.request_room(node, "vmhosts", time_limit_s=time_limit_s, time_min_s=time_min_s)


class SimulatedWorld(World):
    def __init__(self) -> None:
        self.time = 1_800_000_000.0
        nodes = [RmsNode(name, 2, 2048, up=True, draining=False, state="IDLE") for name in ("n1", "n2")]
        names = tuple(node.name for node in nodes)
        partitions = [
            RmsPartition("plain", up=True, nodes=names, preempt_mode="OFF", priority_tier=10, grace_time_s=0),
            RmsPartition("vmhosts", True, names, "CANCEL", 1, GRACE_S, True, hidden=True, allow_groups=("slurm",)),
        ]
        self.simulated = SimulatedRms(self.now, nodes, partitions)
        self.simulated.preempt_type, self.simulated.preempt_mode = "preempt/partition_prio", "REQUEUE"
        self.simulated.preempt_exempt_s = 10.0
        self.simulated.licenses["matlab"] = 4
        self.simulated.priorities.weights = Weights(age=1000, max_age_s=7 * 86400.0, share=100_000)
        self.simulated.priorities.shares = {"alice": 0.75}
        self.rms = self.simulated

    def now(self) -> float:
        return self.time

    def pass_time(self) -> None:
        self.time += 0.1

    def submit(self, *options: str, script: str = SCRIPT, gated: bool = True) -> int:
        given: dict[str, Any] = {"partition": "plain", "script": script, "gated": gated}
        given.update(memory_mib=10, time_limit_s=600.0)
        for option in options:
            name, _, value = option.partition("=")
            if name == "--dependency":
                given["dependency"], _, other = value.partition(":")
                given["depends_on"] = [int(other)]
            elif name == "--begin":
                given["begin"] = self.time + int(value.removeprefix("now+"))
            elif name == "--array":
                span, _, limit = value.partition("%")
                first, _, last = span.partition("-")
                given.update(array_limit=int(limit or 0), array=range(int(first), int(last) + 1))
            elif name == "--nodes":
                given["node_count"] = int(value)
            elif name == "--exclude":
                given["exclude"] = tuple(value.split(","))
            elif name == "--time":
                given["time_limit_s"] = 60.0 * int(value)
            elif name == "--hold":
                given["held"] = True
            elif name == "--no-requeue":
                given["requeue"] = False
            elif name == "--mail-type":
                told = frozenset(value.split(","))
                given["mail_kinds"] = MAIL_ALL | (told - {"ALL"}) if "ALL" in told else told
            else:
                key = _FIELDS[name]
                given[key] = int(value) if key in ("cpus", "memory_mib") else value
        given["memory_mib"] *= given.get("node_count", 1)  # --mem is of each node
        return self.simulated.submit(**given)

    def comment_of(self, job_id: int) -> str:
        return self.simulated.comments.get(job_id, "")

    def oversee(self, operator: str, coordinator: str) -> None:
        coordinators = {"users": frozenset({coordinator})}
        self.simulated.known_overseers = Overseers(frozenset({operator}), coordinators)

    def hold_as_user(self, job_id: int) -> None:
        self.simulated.user_hold(job_id)

    def release_as_user(self, job_id: int) -> None:
        self.simulated.user_release(job_id)

    def release_as_admin(self, job_id: int) -> None:
        self.simulated.release(job_id)

    def requeue_as_admin(self, job_id: int) -> None:
        self.simulated.requeue_by_admin(job_id)

    def set_priority(self, job_id: int, priority: int) -> None:
        self.simulated.set_priority(job_id, priority)

    def set_nice(self, job_id: int, nice: int) -> None:
        self.simulated.set_nice(job_id, nice)

    def reserve(self, node: str, in_s: int, for_s: int) -> str:
        start = int(self.time) + in_s
        return self.simulated.reserve("maintenance", start, start + for_s, (node,))

    def end_gate_reservation_in(self, seconds: int) -> None:
        gate = self.simulated.reservations.pop(GATE_RESERVATION)
        if seconds:
            self.simulated.reserve(gate.name, gate.start_time, int(self.time) + seconds, licenses=gate.licenses)

    def drain(self, node: str, reason: str) -> None:
        self.simulated.set_node(node, draining=True, reason=reason)

    def boot(self, node: str) -> None:
        self.simulated.register(node, self.time)

    def restart_slurmctld(self, silent: str) -> AbstractContextManager[None]:
        self.simulated.begin_again()
        return nullcontext()


class RealWorld(World):
    """``as_user`` is what to put before a command so that the user runs it on the controller."""

    def __init__(self, rms: Rms, as_user: Callable[[str], list[str]], cluster: Layout | None = None) -> None:
        self.rms = rms
        self._cluster = cluster
        self._as_user = as_user
        self._jobs: list[int] = []
        self._reservations: list[str] = []
        self._drained: list[str] = []
        self._overseers: tuple[str, ...] = ()
        rms.reserve_gate()

    def now(self) -> float:
        return time.time()

    def pass_time(self) -> None:
        time.sleep(0.4)

    def run(self, *argv: str, user: str = "slurm", text: str = "") -> str:
        done = subprocess.run(
            [*self._as_user(user), *argv], input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode:
            raise RefusedError(done.stderr)
        return done.stdout.strip()

    def submit(self, *options: str, script: str = SCRIPT, gated: bool = True) -> int:
        where = ("--chdir=/tmp", "--output=/dev/null", "--partition=plain", "--time=10", "--mem=10")
        own = [option.partition("=")[2] for option in options if option.startswith("--licenses=")]
        licenses = ",".join([*own, *([GATE] if gated else [])])
        words = ("sbatch", "--parsable", *where, *options, *([f"--licenses={licenses}"] if licenses else []))
        self._jobs.append(int(self.run(*words, user="alice", text=script)))
        return self._jobs[-1]

    def room(self, node: str = "n1", time_limit_s: float = 3600, time_min_s: float = 600) -> int:
        self._jobs.append(super().room(node, time_limit_s, time_min_s))
        return self._jobs[-1]

    def comment_of(self, job_id: int) -> str:
        lines = self.run("scontrol", "show", "job", str(job_id), user="alice").splitlines()
        return next((line.strip().partition("=")[2] for line in lines if "AdminComment=" in line), "")

    def oversee(self, operator: str, coordinator: str) -> None:
        self.run("sacctmgr", "-i", "modify", "user", operator, "set", "adminlevel=operator", user="root")
        self.run("sacctmgr", "-i", "add", "coordinator", "account=users", f"names={coordinator}", user="root")
        self._overseers = (operator, coordinator)

    def hold_as_user(self, job_id: int) -> None:
        self.run("scontrol", "hold", str(job_id), user="alice")

    def release_as_user(self, job_id: int) -> None:
        self.run("scontrol", "release", str(job_id), user="alice")

    def release_as_admin(self, job_id: int) -> None:
        self.run("scontrol", "release", str(job_id))

    def requeue_as_admin(self, job_id: int) -> None:
        self.run("scontrol", "requeue", str(job_id))

    def set_priority(self, job_id: int, priority: int) -> None:
        self.run("scontrol", "update", f"JobId={job_id}", f"Priority={priority}")

    def set_nice(self, job_id: int, nice: int) -> None:
        self.run("scontrol", "update", f"JobId={job_id}", f"Nice={nice}")

    def reserve(self, node: str, in_s: int, for_s: int) -> str:
        words = (f"StartTime=now+{in_s}", f"Duration={for_s // 60}", f"Nodes={node}", "Flags=MAINT", "Users=root")
        self.run("scontrol", "create", "reservation", "ReservationName=maintenance", *words)
        self._reservations.append("maintenance")
        return "maintenance"

    def end_gate_reservation_in(self, seconds: int) -> None:
        if seconds:
            self.run("scontrol", "update", f"ReservationName={GATE_RESERVATION}", f"EndTime=now+{seconds}")
        else:
            self.run("scontrol", "delete", f"ReservationName={GATE_RESERVATION}")

    def drain(self, node: str, reason: str) -> None:
        self.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
        self._drained.append(node)

    def boot(self, node: str) -> None:
        for to in ("off", "on"):
            self._request(node, op="power", to=to)

    @contextmanager
    def restart_slurmctld(self, silent: str) -> Iterator[None]:
        self._request(silent, op="signal", name="slurmd", signal=signal.SIGSTOP)
        try:
            self._request("head", op="restart", name="slurmctld")
            yield
        finally:
            self._request(silent, op="signal", name="slurmd", signal=signal.SIGCONT)

    def _request(self, host: str, **request: object) -> None:
        """As an admin, of a machine."""
        if self._cluster is None:
            pytest.skip("this host's own cluster is not to be disturbed")
        hosts.request(self._cluster.head if host == "head" else self._cluster.host(host), **request)

    def clean(self) -> None:
        """Leave nothing of a test behind."""
        jobs = ",".join(map(str, self._jobs))
        if jobs:
            self.run("scancel", *map(str, self._jobs))
            self.wait("all jobs to be gone", lambda: not self.run("squeue", "-h", "-a", "-j", jobs))
        for name in self._reservations:
            self.run("scontrol", "delete", f"ReservationName={name}")
        if self._overseers:
            operator, coordinator = self._overseers
            self.run("sacctmgr", "-i", "modify", "user", operator, "set", "adminlevel=none", user="root")
            self.run("sacctmgr", "-i", "delete", "coordinator", "account=users", f"names={coordinator}", user="root")
        for node in self._drained:
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")


def open_world(kind: str, request: pytest.FixtureRequest) -> SimulatedWorld | RealWorld:
    """The world of this kind: "simulated", "cli", "handed" or "pyslurm"; skips the test where it cannot be."""
    if kind == "simulated":
        return SimulatedWorld()
    if kind == "pyslurm" and importlib.util.find_spec("pyslurm") is None:
        pytest.skip("pyslurm is not installed; the package index has none for this release of Slurm")
    if kind == "pyslurm" and not LOCAL:
        pytest.skip("pyslurm is a library: this half needs RMSPLUGIN_TEST_SLURM=local on a controller")
    cluster = None
    if LOCAL:

        def as_user(user: str) -> list[str]:
            return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    else:
        cluster = Layout.load(request.getfixturevalue("minicluster"))
        assert cluster is not None

        def as_user(user: str) -> list[str]:
            return hosts.enter_command(cluster, cluster.head, [], user=user)

    def make(permit: Permit = nullcontext) -> SlurmCli:
        return SlurmCli(prefix=as_user("slurm"), gate=GATE, gate_reservation=GATE_RESERVATION, permit=permit)

    if kind == "handed":
        return RealWorld(handed_by(make(), of_an_engine_among_several(make)), as_user, cluster)
    commands = make()
    return RealWorld(SlurmPyslurm(commands) if kind == "pyslurm" else commands, as_user, cluster)


def of_an_engine_among_several(make: Callable[[Permit], SlurmCli]) -> SlurmCli:
    """Slurm as an engine has it that may lose its lease: each command that changes something has an end."""
    commands = make(lambda: nullcontext(steady_s() + SESSION_S))
    run = commands._run

    def ask(program: str, *words: str, **options: Any) -> str:
        assert program in _QUESTIONS or words[0] in ("show", "write", "-a")
        return run(program, *words, **options)

    commands._run = ask  # type: ignore[method-assign]
    return commands


def handed_by(leader: SlurmCli, commands: SlurmCli) -> HandedSlurm:
    """The Rms of a process to which the leader hands down; it never has to read Slurm itself."""

    def note(why: str) -> None:
        assert not why

    # What a leader tells of the queue is of the partitions of all engines, and not of those that a test asks about.
    handed = Handed(lambda: None, lambda: unpacked(packed(leader.read()[1])), note)
    return HandedSlurm(commands, commands, handed)
