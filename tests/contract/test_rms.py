"""The contract of ``adapters.rms.base.Rms``, on the simulated RMS and on a real Slurm, by its commands and by pyslurm.

The real ones run on a minicluster (see conftest.py), or, with RMSPLUGIN_TEST_SLURM=local, on the Slurm of the host that
pytest runs on, as root; pyslurm only there, because it is a library. They use the partition ``plain``, so that neither
job_submit.lua nor an engine interferes, and the user alice.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from rmsplugin.adapters.rms.base import HELD_DEPENDENCY, JobState, Rms, RmsJob, RmsNode, RmsPartition
from rmsplugin.adapters.rms.factory import open_rms
from rmsplugin.adapters.rms.simulated import SimulatedRms
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_pyslurm import SlurmPyslurm
from rmsplugin.errors import NotFoundError, RefusedError, SettingsError, UnavailableError

MINICLUSTER = str(Path(__file__).resolve().parents[2] / "contrib" / "minicluster")
LOCAL = os.environ.get("RMSPLUGIN_TEST_SLURM") == "local"

SCRIPT = "#!/bin/sh\nexec sleep 600\n"
#: Ends only when it is killed, so that its job is COMPLETING for some seconds.
STUBBORN = "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n"


class World(Protocol):
    """An Rms, and what users and time do behind its back."""

    rms: Rms

    def submit(self, *options: str, script: str = SCRIPT) -> int:
        """As alice: a held job of a script that runs for long."""

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Let time pass until it is so."""

    def wait_for(self, job_id: int, state: JobState, *, completing: bool = False) -> RmsJob:
        self.wait(
            f"job {job_id} to be {state}",
            lambda: (self.rms.job(job_id).state, self.rms.job(job_id).completing) == (state, completing),
        )
        return self.rms.job(job_id)

    def started(self, node: str = "n1", script: str = SCRIPT) -> int:
        job_id = self.submit(script=script)
        self.rms.start(job_id, node)
        self.wait_for(job_id, JobState.RUNNING)
        return job_id


class SimulatedWorld(World):
    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        nodes = [RmsNode(name, 2, 2048, up=True, draining=False, state="IDLE") for name in ("n1", "n2")]
        partition = RmsPartition(
            "plain", up=True, nodes=("n1", "n2"), preempt_mode="OFF", priority_tier=1, grace_time_s=0
        )
        self.simulated = SimulatedRms(lambda: self.now, nodes, [partition], configuring_s=0.5)
        self.rms = self.simulated

    def submit(self, *options: str, script: str = SCRIPT) -> int:
        given: dict[str, Any] = {"partition": "plain", "script": script}
        for option in options:
            name, _, value = option.partition("=")
            if name == "--dependency":
                given["depends_on"] = [int(value.partition(":")[2])]
            elif name == "--begin":
                given["begin"] = self.now + int(value.removeprefix("now+"))
            elif name == "--array":
                span, _, limit = value.partition("%")
                given["array_limit"] = int(limit or 0)
                first, _, last = span.partition("-")
                given["array"] = range(int(first), int(last) + 1)
            elif name == "--job-name":
                given["name"] = value
        return self.simulated.submit(**given)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        for _ in range(600):
            if condition():
                return
            self.now += 0.1
        pytest.fail(f"waited in vain for {what}")


class RealWorld(World):
    """``as_user`` and ``rms`` are made by the fixtures."""

    def __init__(self, rms: Rms, as_user: Callable[[str], list[str]]) -> None:
        self.rms = rms
        self._as_user = as_user
        self._submitted: list[int] = []

    def run(self, *argv: str, user: str = "alice", text: str = "") -> str:
        done = subprocess.run(
            [*self._as_user(user), *argv], input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, *options: str, script: str = SCRIPT) -> int:
        where = ("--chdir=/tmp", "--output=/dev/null", "--partition=plain", "--time=10", "--mem=10")
        job_id = int(self.run("sbatch", "--parsable", "--hold", *where, *options, text=script))
        self._submitted.append(job_id)
        return job_id

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.2)

    def clean(self) -> None:
        if self._submitted:
            self.run("scancel", *map(str, self._submitted), user="root")


def commands(request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    """What to put before a command so that the user runs it on the controller."""
    if LOCAL:
        return lambda user: ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    directory = request.getfixturevalue("minicluster")
    return lambda user: [MINICLUSTER, "exec", "--dir", str(directory), "--user", user, "head", "--"]


@pytest.fixture(
    params=["simulated", pytest.param("cli", marks=pytest.mark.e2e), pytest.param("pyslurm", marks=pytest.mark.e2e)]
)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "simulated":
        yield SimulatedWorld()
        return
    if request.param == "pyslurm" and importlib.util.find_spec("pyslurm") is None:
        pytest.skip("pyslurm is not installed; the package index has none for this release of Slurm")
    if request.param == "pyslurm" and not LOCAL:
        pytest.skip("pyslurm is a library: this half needs RMSPLUGIN_TEST_SLURM=local on a controller")
    as_user = commands(request)
    rms: Rms
    if request.param == "pyslurm":
        rms = SlurmPyslurm(SlurmCli(prefix=as_user("root")))
    else:
        rms = SlurmCli(prefix=as_user("root"))
    real = RealWorld(rms, as_user)
    yield real
    real.clean()


NO_JOB = 99999999


# --- reading ---


def test_snapshot(world: World) -> None:
    job_id = world.submit("--job-name=a|b\nc d=e")
    snapshot = world.rms.snapshot()
    (job,) = [job for job in snapshot.jobs if job.job_id == job_id]
    assert job.name == "a|b\nc d=e"
    assert (job.display_id, job.partition, job.user) == (str(job_id), "plain", "alice")
    assert (job.state, job.detail, job.reason) == (JobState.PENDING, "PENDING", "JobHeldUser")
    assert (job.held, job.eligible, job.completing, job.split) == (True, True, False, True)
    assert (job.nodes, job.batch_host, job.restarts, job.cpus, job.priority) == ((), "", 0, 1, 0)
    assert {"n1", "n2"} <= set(snapshot.nodes)
    node = snapshot.nodes["n1"]
    assert (node.name, node.up, node.draining) == ("n1", True, False)
    assert node.cpus >= 1
    assert node.memory_mib >= 100
    partition = snapshot.partitions["plain"]
    assert partition.up
    assert {"n1", "n2"} <= set(partition.nodes)
    assert partition.preempt_mode == "OFF"
    assert (snapshot.preempt_type, snapshot.preempt_mode) == ("preempt/none", "OFF")
    assert snapshot.version.count(".") >= 1
    assert world.rms.job(job_id) == job


def test_submit_time_is_that_of_the_submission(world: World) -> None:
    now = world.now if isinstance(world, SimulatedWorld) else time.time()
    assert abs(world.rms.job(world.submit()).submit_time - now) <= 5


def test_batch_script(world: World) -> None:
    assert world.rms.batch_script(world.submit()).strip() == SCRIPT.strip()


@pytest.mark.parametrize(
    "call",
    [
        lambda rms: rms.job(NO_JOB),
        lambda rms: rms.batch_script(NO_JOB),
        lambda rms: rms.split(f"{NO_JOB}_1"),
        lambda rms: rms.split(str(NO_JOB)),
        lambda rms: rms.hold(NO_JOB),
        lambda rms: rms.start(NO_JOB, "n1"),
        lambda rms: rms.suspend(NO_JOB),
        lambda rms: rms.resume(NO_JOB),
        lambda rms: rms.requeue(NO_JOB, hold=False),
        lambda rms: rms.requeue(NO_JOB, hold=True),
        lambda rms: rms.cancel(NO_JOB),
    ],
)
def test_no_such_job(world: World, call: Callable[[Rms], object]) -> None:
    with pytest.raises(NotFoundError):
        call(world.rms)


# --- hold and start ---


def test_hold_is_the_administrators(world: World) -> None:
    job_id = world.submit()
    for _ in range(2):
        world.rms.hold(job_id)
        job = world.rms.job(job_id)
        assert (job.held, job.reason, job.eligible) == (True, "JobHeldAdmin", True)


def test_start_on_a_node(world: World) -> None:
    for node in ("n1", "n2"):
        job_id = world.submit()
        world.rms.hold(job_id)
        world.rms.start(job_id, node)
        world.rms.start(job_id, node)
        job = world.wait_for(job_id, JobState.RUNNING)
        assert (job.nodes, job.batch_host, job.held, job.restarts) == ((node,), node, False, 0)
        world.rms.start(job_id, node)
        world.rms.hold(job_id)
        assert world.rms.job(job_id).state is JobState.RUNNING
        world.rms.cancel(job_id)


@pytest.mark.e2e
@pytest.mark.parametrize("world", ["cli"], indirect=True)
@pytest.mark.parametrize("verb", ["start", "hold"])
def test_a_job_that_slurm_starts_meanwhile(world: World, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = world.rms
    assert isinstance(commands, SlurmCli)
    job_id = world.submit()
    world.rms.hold(job_id)
    ask = commands._rows
    stale = [ask("-j", str(job_id))]
    world.rms.start(job_id, "n1")
    world.wait_for(job_id, JobState.RUNNING)
    monkeypatch.setattr(commands, "_rows", lambda *selection: stale.pop() if stale else ask(*selection))
    world.rms.start(job_id, "n1") if verb == "start" else world.rms.hold(job_id)
    assert not stale
    assert world.rms.job(job_id).state is JobState.RUNNING


def test_start_on_no_node(world: World) -> None:
    job_id = world.submit()
    with pytest.raises(RefusedError):
        world.rms.start(job_id, "nowhere")
    assert world.rms.job(job_id).held


def test_begin_time(world: World) -> None:
    job_id = world.submit("--begin=now+8")
    assert not world.rms.job(job_id).eligible
    world.rms.hold(job_id)
    assert not world.rms.job(job_id).eligible
    world.wait("the begin time", lambda: world.rms.job(job_id).eligible)


def test_dependency(world: World) -> None:
    first = world.started()
    second = world.submit(f"--dependency=afterany:{first}")
    job = world.rms.job(second)
    assert (job.held, job.eligible, job.reason) == (True, False, HELD_DEPENDENCY)
    for _ in range(2):
        world.rms.hold(second)
        world.wait("the reason", lambda: world.rms.job(second).reason == "Dependency")
        job = world.rms.job(second)
        assert (job.held, job.eligible) == (True, False)
    world.rms.cancel(first)
    world.wait("the dependency", lambda: world.rms.job(second).eligible)
    # It is as it was, but for the dependency: it does not start by itself.
    assert world.rms.job(second).held
    assert world.rms.job(second).state is JobState.PENDING
    world.rms.hold(second)
    job = world.rms.job(second)
    assert (job.held, job.eligible, job.reason) == (True, True, "JobHeldAdmin")
    world.rms.start(second, "n2")
    assert world.wait_for(second, JobState.RUNNING).batch_host == "n2"


def test_dependency_and_begin_time(world: World) -> None:
    first = world.submit()
    second = world.submit(f"--dependency=afterany:{first}", "--begin=now+12")
    world.rms.hold(second)
    world.rms.cancel(first)
    world.wait("the dependency", lambda: world.rms.job(second).reason == "BeginTime")
    assert not world.rms.job(second).eligible
    world.wait("the begin time", lambda: world.rms.job(second).eligible)


# --- suspend and resume ---


def test_suspend_and_resume(world: World) -> None:
    job_id = world.started()
    for _ in range(2):
        world.rms.suspend(job_id)
        assert world.rms.job(job_id).state is JobState.SUSPENDED
    for _ in range(2):
        world.rms.resume(job_id)
        assert world.rms.job(job_id).state is JobState.RUNNING


def test_suspend_what_does_not_run(world: World) -> None:
    job_id = world.submit()
    with pytest.raises(RefusedError):
        world.rms.suspend(job_id)
    with pytest.raises(RefusedError):
        world.rms.resume(job_id)


# --- requeue ---


def test_requeue_running_and_start_again(world: World) -> None:
    job_id = world.started("n1", STUBBORN)
    world.rms.requeue(job_id, hold=True)
    job = world.rms.job(job_id)
    assert (job.state, job.completing) == (JobState.PENDING, True)
    with pytest.raises(RefusedError):
        world.rms.start(job_id, "n2")
    job = world.wait_for(job_id, JobState.PENDING)
    assert (job.held, job.reason, job.restarts, job.nodes) == (True, "JobHeldAdmin", 1, ())
    assert job.eligible  # Slurm's own delay of two minutes is no reason of the user's
    world.rms.requeue(job_id, hold=True)
    world.rms.start(job_id, "n2")
    assert world.wait_for(job_id, JobState.RUNNING).batch_host == "n2"


def test_requeue_without_hold(world: World) -> None:
    job_id = world.started()
    world.rms.requeue(job_id, hold=False)
    job = world.wait_for(job_id, JobState.PENDING)
    assert (job.held, job.eligible) == (False, True)
    world.rms.requeue(job_id, hold=False)
    assert not world.rms.job(job_id).held
    world.rms.hold(job_id)
    assert world.rms.job(job_id).reason == "JobHeldAdmin"


def test_requeue_suspended(world: World) -> None:
    job_id = world.started()
    world.rms.suspend(job_id)
    world.rms.requeue(job_id, hold=False)
    job = world.wait_for(job_id, JobState.PENDING)
    assert (job.held, job.reason, job.restarts) == (True, "JobHeldAdmin", 1)


def test_hold_while_completing(world: World) -> None:
    job_id = world.started(script=STUBBORN)
    world.rms.requeue(job_id, hold=False)
    assert world.rms.job(job_id).completing
    world.rms.hold(job_id)
    assert world.wait_for(job_id, JobState.PENDING).reason == "JobHeldAdmin"


# --- the end ---


def test_cancel(world: World) -> None:
    waiting, running, suspended = world.submit(), world.started(), world.started("n2")
    world.rms.suspend(suspended)
    for job_id in (waiting, running, suspended):
        world.rms.cancel(job_id)
        job = world.wait_for(job_id, JobState.ENDED)
        assert (job.detail, job.held, job.eligible) == ("CANCELLED", False, False)
        world.rms.cancel(job_id)


def test_ended(world: World) -> None:
    job_id = world.started()
    world.rms.cancel(job_id)
    world.wait_for(job_id, JobState.ENDED)
    for call in (
        lambda: world.rms.start(job_id, "n1"),
        lambda: world.rms.hold(job_id),
        lambda: world.rms.suspend(job_id),
        lambda: world.rms.resume(job_id),
    ):
        with pytest.raises(RefusedError):
            call()


# --- arrays ---


def elements(world: World, array_id: int) -> dict[str, RmsJob]:
    jobs = (job for job in world.rms.snapshot().jobs if job.display_id.startswith(f"{array_id}_"))
    return {job.display_id.partition("_")[2]: job for job in jobs}


def test_array(world: World) -> None:
    array_id = world.submit("--array=1-3")
    found = elements(world, array_id)
    assert set(found) == {"1", "2", "3"}
    assert {job.job_id for job in found.values()} == {array_id}
    assert not any(job.split for job in found.values())
    world.rms.hold(array_id)
    assert {job.reason for job in elements(world, array_id).values()} == {"JobHeldAdmin"}

    second = world.rms.split(f"{array_id}_2")
    assert second != array_id
    assert world.rms.split(f"{array_id}_2") == second
    found = elements(world, array_id)
    assert {index: job.split for index, job in found.items()} == {"1": False, "2": True, "3": False}
    assert found["2"].job_id == second
    world.rms.start(second, "n1")
    world.wait_for(second, JobState.RUNNING)
    assert world.rms.batch_script(second).strip() == SCRIPT.strip()

    first, third = world.rms.split(f"{array_id}_1"), world.rms.split(f"{array_id}_3")
    assert len({first, second, third}) == 3
    assert all(job.split for job in elements(world, array_id).values())


def eligible(world: World, array_id: int) -> set[str]:
    return {index for index, job in elements(world, array_id).items() if job.eligible}


def test_array_with_a_limit(world: World) -> None:
    array_id = world.submit("--array=1-4%2")
    assert eligible(world, array_id) == {"1", "2"}
    first = world.rms.split(f"{array_id}_1")
    world.rms.start(first, "n1")
    world.wait_for(first, JobState.RUNNING)
    assert eligible(world, array_id) == {"2"}
    fourth = world.rms.split(f"{array_id}_4")
    assert not world.rms.job(fourth).eligible
    # Whoever starts more than that has them wait for Slurm.
    for index in (2, 3):
        world.rms.start(world.rms.split(f"{array_id}_{index}"), "n2")
    world.wait("the reason", lambda: elements(world, array_id)["3"].reason == "JobArrayTaskLimit")
    assert eligible(world, array_id) <= {"3"}
    world.rms.cancel(first)
    world.wait("the third", lambda: elements(world, array_id)["3"].state is JobState.RUNNING)


def test_the_last_element_has_the_id_of_its_array_and_acts_alone(world: World) -> None:
    array_id = world.submit("--array=1-2")
    ids = {world.rms.split(f"{array_id}_{index}") for index in (1, 2)}
    assert array_id in ids
    (other,) = ids - {array_id}
    for job_id in ids:
        world.rms.start(job_id, "n1")
    for job_id in ids:
        world.wait_for(job_id, JobState.RUNNING)
    world.rms.suspend(array_id)
    assert world.rms.job(array_id).state is JobState.SUSPENDED
    assert world.rms.job(other).state is JobState.RUNNING
    world.rms.cancel(array_id)
    world.wait_for(array_id, JobState.ENDED)
    assert world.rms.job(other).state is JobState.RUNNING


# --- which one ---


@pytest.mark.parametrize(
    ("kind", "running", "pyslurm_for", "expected"),
    [
        ("auto", "22.05.8", "22.5.3", SlurmPyslurm),
        ("auto", "24.11.5", "22.5.3", SlurmCli),
        ("auto", "22.05.8", "", SlurmCli),
        ("auto", "", "22.5.3", SlurmCli),
        ("cli", "22.05.8", "22.5.3", SlurmCli),
        ("pyslurm", "22.05.8", "22.5.3", SlurmPyslurm),
        ("pyslurm", "24.11.5", "22.5.3", None),
        ("pyslurm", "22.05.8", "", None),
        ("pyslurm", "", "22.5.3", None),
    ],
)
def test_open_rms(
    monkeypatch: pytest.MonkeyPatch, kind: Any, running: str, pyslurm_for: str, expected: type[Rms] | None
) -> None:
    def version(commands: SlurmCli) -> str:
        if not running:
            raise UnavailableError("Unable to contact slurm controller")
        return running

    module = types.SimpleNamespace(__version__=pyslurm_for) if pyslurm_for else None
    monkeypatch.setitem(sys.modules, "pyslurm", module)  # None: importing it fails
    monkeypatch.setattr(SlurmCli, "version", version)
    if expected is None:
        with pytest.raises(SettingsError, match=r"slurm\.adapter is pyslurm"):
            open_rms(kind)
    else:
        assert type(open_rms(kind)) is expected


# --- the commands alone ---


def test_slurm_down(tmp_path: Path) -> None:
    """The commands are there, the controller is not."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\n")
    rms = SlurmCli(prefix=("env", f"SLURM_CONF={conf}"), timeout_s=3)
    for call in (rms.snapshot, lambda: rms.job(1), lambda: rms.cancel(1)):
        with pytest.raises(UnavailableError):
            call()


def test_commands_not_installed(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"slurm\.bin_dir"):
        SlurmCli(bin_dir=str(tmp_path)).snapshot()
