"""Engines on two hosts: one takes over when the host of the other has gone, in the middle of what that one did."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.newer_release import VERSION, newer_release
from contract.zookeeper_ensemble import JAR
from e2e.cluster import PROGRAM, SHARED, Cluster
from e2e.conftest import minicluster
from e2e.rooms import Machine, count, end_room, finish, have, host_of, rooms, wait_held, wait_number
from e2e.whole_files import write_whole
from lifetime import ENDS_WITH_US
from minicluster_lib import hosts

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

HEAD, OTHER = "10.77.0.1", "10.77.0.202"
STATE = "/var/lib/rmsplugin-engine"
#: Where both slurmctlds have Slurm's state: all hosts see /home.
SLURM_STATE = "/home/ctld"
_ZOO = f"tickTime=400\ndataDir={{}}\nclientPort=2181\nclientPortAddress={HEAD}\nadmin.enableServer=false\n"
#: The class of a ZooKeeper server.
SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_CLUSTER = f"""
[cluster]
coordination = "zookeeper"
servers = ["{HEAD}:2181"]
session_s = 6
shared_dir = "{SHARED}"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from minicluster("hold", "--fronts", "2")


@pytest.fixture(scope="module")
def ensemble(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A ZooKeeper server in the head's network, which outlives both engines. A new one would count from low again."""
    directory = tmp_path_factory.mktemp("zookeeper")
    settings = directory / "zoo.cfg"
    settings.write_text(_ZOO.format(directory / "data"))
    guard = (*ENDS_WITH_US, *cluster.in_network_of("head"))
    java = [*guard, "java", "-Xmx64m", "-cp", str(JAR), SERVER, str(settings)]
    with (directory / "log").open("w") as said:
        server = subprocess.Popen(java, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    yield
    server.kill()
    server.wait(60)


def write_settings(cluster: Cluster) -> None:
    """The same settings on all hosts, but for what is an engine's own: its state directory and its address."""
    text = cluster.host_path("head", "/etc/rmsplugin/rmsplugin.toml").read_text()
    if _CLUSTER in text:
        return
    url = f'url = "http://{HEAD}:6830'
    assert text.count(url) == text.count("[slurm]\n") == 1
    text = text.replace(f'{url}"', f'{url} http://{OTHER}:6830"\ntrusted_hosts = ["{HEAD}", "{OTHER}"]')
    text = text.replace("[slurm]\n", "[slurm]\ncommand_timeout_s = 5\n") + _CLUSTER
    for host in ("head", "front2", *cluster.nodes):
        own = text
        if host == "front2":
            own = own.replace(f'listen = "{HEAD}', f'listen = "{OTHER}').replace('/var/lib/rmsplugin"', f'{STATE}"')
        write_whole(cluster.host_path(host, "/etc/rmsplugin/rmsplugin.toml"), own)


def make_controller(cluster: Cluster) -> None:
    """Give front2 what the guide says that a second controller has, and make the directory that both share."""
    install = ["install", "-d", "-o", "slurm", "-g", "slurm", "-m", "700"]
    cluster.ok(*install, SHARED)
    cluster.ok(*install, STATE, host="front2")
    cluster.ok(*install[:-1], "755", "/run/rmsplugin", host="front2")
    cluster.ok(*install, "/run/rmsplugin/runtime", host="front2")
    for name in ("agent_key", "known_hosts", "pki"):
        source, target = (cluster.host_path(host, "/etc/rmsplugin") for host in ("head", "front2"))
        subprocess.run(["cp", "-a", "-T", str(source / name), str(target / name)], check=True)


class Controller:
    """An engine on front2, or on the head; ``code``: where a release other than this one is, inside."""

    def __init__(self, cluster: Cluster, directory: Path, host: str = "front2", code: str = "") -> None:
        state = STATE if host == "front2" else "/var/lib/rmsplugin"
        self._host, self._log = host, directory / f"{host}{'-newer' if code else ''}.log"
        places = {"HOME": state, "XDG_CACHE_HOME": f"{state}/cache", "XDG_CONFIG_HOME": f"{state}/config"}
        places["XDG_RUNTIME_DIR"] = "/run/rmsplugin/runtime"
        places |= {"PYTHONPATH": code} if code else {}
        words = ["env", *(f"{name}={place}" for name, place in places.items()), str(PROGRAM), "engine"]
        with self._log.open("w") as said:
            self.process = subprocess.Popen(
                cluster.entering(*words, host=host, user="slurm"),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def end(self, cluster: Cluster) -> None:
        """As `systemctl stop` does."""
        for pid, words in Machine(cluster).processes(self._host).items():
            if words[-3:-1] == [str(PROGRAM), "engine"]:
                os.kill(pid, signal.SIGTERM)
        self.process.wait(60)

    def said(self) -> str:
        return self._log.read_text()

    def wait(self, cluster: Cluster, words: str, timeout_s: float) -> None:
        cluster.wait(f"{words!r} on {self._host}", lambda: words in self.said(), timeout_s, self.said)


@pytest.fixture
def controller(cluster: Cluster, ensemble: None, tmp_path: Path) -> Iterator[Controller]:
    """An engine that stands by on front2, where no wrapper runs. The head's engine leads."""
    cluster.ok("scontrol", "update", "NodeName=front2", "State=DRAIN", "Reason=test")
    make_controller(cluster)
    cluster.kill("head", "engine")
    write_settings(cluster)
    cluster.restart_engine()
    controller = Controller(cluster, tmp_path)
    try:
        controller.wait(cluster, "stands by", 60)
        yield controller
    finally:
        Machine(cluster).lose("front2")
        controller.process.wait(60)
        cluster.ok("scontrol", "update", "NodeName=front2", "State=UNDRAIN")


def wait_leader(cluster: Cluster, host: str) -> None:
    """Wait until the commands on the head find an engine that leads on that host."""

    def leads() -> bool:
        told = cluster.plugin("status")
        return told.code == 0 and f" on {host}, " in told.out and "leads with epoch" in told.out

    cluster.wait(f"{host} to lead", leads, 120, lambda: cluster.plugin("status"))


def checked(cluster: Cluster, host: str) -> dict[str, str]:
    """What `rmsplugin check` on that host says of several engines: by subject the last finding. None is an error."""
    told = cluster.run(str(PROGRAM), "check", "--quick", "--json", host=host)
    subjects = {"ensemble", "controllers", "clocks", "epochs", "munge", SHARED}
    found = [each for each in json.loads(told.out)["findings"] if each["subject"] in subjects]
    assert [each for each in found if each["level"] == "error"] == []
    return {each["subject"]: each["what"] for each in found}


def do(cluster: Cluster, *words: str) -> None:
    told = cluster.plugin(*words)
    assert told.code == 0, shlex.join(words) + told.err


def accepted(cluster: Cluster, *words: str) -> None:
    """Say it until it is done: while an operation of the leader before is taken up, the vjob is busy."""
    cluster.wait(shlex.join(words), lambda: cluster.plugin(*words).code == 0, 120, lambda: cluster.plugin("status"))


def test_vjobs_outlive_the_host_of_the_engine_that_leads(cluster: Cluster, controller: Controller) -> None:
    wait_leader(cluster, "head")
    for host in ("head", "front2"):
        found = checked(cluster, host)
        assert found.keys() == {"ensemble", "controllers", "clocks", "epochs", "munge", SHARED}
        assert found["epochs"].startswith("all 3 nodes that answer obey no engine before epoch")
        assert "have the same key for nodes" in found["controllers"] and "is the one of all" in found[SHARED]
        assert ("head" in found["munge"]) == (host == "front2")
    runs, sleeps = count(cluster), count(cluster)
    wait_number(cluster, runs, 2)
    wait_number(cluster, sleeps, 2)
    do(cluster, "suspend", str(sleeps))

    do(cluster, "migrate", str(runs), "--no-wait")
    cluster.wait_action(runs, "migrate")
    cluster.kill("head", "engine")
    controller.wait(cluster, "is up", 120)
    wait_leader(cluster, "front2")
    wait_number(cluster, runs, 2)
    # The migration goes on, or is broken off: until then there is a QEMU at both ends.
    cluster.wait("one QEMU", lambda: len(cluster.qemus(runs)) == 1, 120, lambda: cluster.describe(runs))
    assert cluster.qemus(sleeps) == []
    do(cluster, "resume", str(sleeps))

    cluster.start("head", "engine")
    accepted(cluster, "suspend", str(runs), "--no-wait")
    cluster.wait_action(runs, "suspend")
    Machine(cluster).lose("front2")
    wait_leader(cluster, "head")
    have(cluster, runs, "suspend", "sleeping")
    assert cluster.qemus(runs) == [] and len(cluster.qemus(sleeps)) == 1
    accepted(cluster, "resume", str(runs))
    finish(cluster, runs, sleeps)


def make_backup(cluster: Cluster) -> None:
    """Have a second slurmctld on front2, which takes over after ten seconds, and Slurm's state where both see it."""
    conf = cluster.directory / "shared/slurm/slurm.conf"
    text = conf.read_text()
    primary, timeout = f"SlurmctldHost=head({HEAD})\n", "SlurmctldTimeout=30"
    assert primary in text and timeout in text
    text = text.replace(primary, f"{primary}SlurmctldHost=front2({OTHER})\n").replace(timeout, "SlurmctldTimeout=10")
    write_whole(conf, text.replace("StateSaveLocation=/var/spool/slurm/ctld", f"StateSaveLocation={SLURM_STATE}"))
    layout = cluster._layout
    hosts.request(layout.head, op="stop", name="slurmctld", signal=signal.SIGTERM)
    cluster.wait("the head's slurmctld to end", lambda: not slurmctlds(cluster, "head"), 60)
    cluster.ok("cp", "-a", "/var/spool/slurm/ctld", SLURM_STATE)
    cluster.start("head", "slurmctld")
    cluster.wait("the head's slurmctld", lambda: "head is UP" in cluster.run("scontrol", "ping").out, 60)
    hosts.start_daemon(layout.host("front2"), "slurmctld", ["/usr/sbin/slurmctld", "-D"], user="slurm")
    for host in ("head", "front2", *cluster.nodes):
        assert cluster.manage("restart", host, "slurmd").code == 0
    cluster.wait("the backup to stand by", lambda: "front2 is UP" in cluster.run("scontrol", "ping").out, 60)

    def unable() -> list[str]:
        return [line for line in cluster.unable_nodes() if not line.startswith("front2 ")]

    cluster.wait("all other nodes", lambda: not unable(), 120, unable)


def slurmctlds(cluster: Cluster, host: str) -> list[int]:
    """The processes of slurmctld on a host."""
    return [pid for pid, words in Machine(cluster).processes(host).items() if words[0] == "/usr/sbin/slurmctld"]


def test_vjobs_outlive_slurm_s_controller_and_then_that_of_the_engine(cluster: Cluster, controller: Controller) -> None:
    wait_leader(cluster, "head")
    make_backup(cluster)
    runs, moves, sleeps = (count(cluster) for _ in range(3))
    for job in (runs, moves, sleeps):
        wait_number(cluster, job, 2)
    do(cluster, "suspend", str(sleeps))

    for words in (("suspend", runs), ("resume", sleeps), ("migrate", moves)):
        do(cluster, words[0], str(words[1]), "--no-wait")
    cluster.wait_action(moves, "migrate")
    cluster.kill("head", "slurmctld")
    lost = time.monotonic()
    wait_number(cluster, moves, 3)
    cluster.wait("the backup to answer", lambda: cluster.run("squeue", "-h", timeout_s=60).code == 0, 120)
    print(f"the backup answers {time.monotonic() - lost:.1f} s after the kill")
    cluster.wait_vjob(sleeps, "running", timeout_s=240)
    # A slurmctld that is killed forgets up to five seconds: a suspend that was just done is undone by it.
    have(cluster, runs, "suspend", "sleeping")
    begins = count(cluster)
    wait_number(cluster, begins, 2)
    assert not slurmctlds(cluster, "head"), "front2's slurmctld has done all this"

    accepted(cluster, "migrate", str(moves), "--no-wait")
    cluster.kill("head", "engine")
    controller.wait(cluster, "is up", 120)
    wait_leader(cluster, "front2")
    have(cluster, runs, "resume", "running")
    for job in (runs, moves, sleeps, begins):
        wait_number(cluster, job, 2)
        assert len(cluster.qemus(job)) == 1, cluster.describe(job)

    cluster.start("head", "slurmctld")
    cluster.start("head", "engine")
    cluster.wait("the head's slurmctld", lambda: "head is UP" in cluster.run("scontrol", "ping").out, 120)
    have(cluster, runs, "suspend", "sleeping")
    have(cluster, runs, "resume", "running")
    finish(cluster, runs, moves, sleeps, begins)


class Commands:
    """Slurm's commands as engines run them. Each is written down; one of the head's stops the engine that began it.

    That one ends when all threads of the engine stand still: the one that waits for it would go on a little before.
    Or it stops itself, too, before it asks Slurm, as if the host stood still.
    """

    _COMMAND = """\
#!/bin/sh
what="$(hostname) ${0##*/} $*"
echo "$what" >>/home/commands/begun
case "$what" in
  $(cat /home/commands/stops_before))
    : >/home/commands/stops_before
    kill -STOP $PPID $$;;
esac
/usr/bin/${0##*/} "$@"
code=$?
echo "$what" >>/home/commands/done
case "$what" in
  $(cat /home/commands/stops_at))
    : >/home/commands/stops_at
    kill -STOP $PPID
    while grep -h ^State: /proc/$PPID/task/*/status | grep -qv stopped; do :; done;;
esac
exit $code
"""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._directory = cluster, cluster.directory / "shared" / "home" / "commands"
        self._directory.mkdir()
        for name in ("scontrol", "squeue", "scancel", "sbatch", "sacct", "sinfo"):
            (self._directory / name).write_text(self._COMMAND)
            (self._directory / name).chmod(0o755)
        for name in ("begun", "done", "stops_at", "stops_before"):
            (self._directory / name).touch()
            (self._directory / name).chmod(0o666)

    def stop_at(self, pattern: str) -> None:
        """Stop the head's engine once Slurm has done what this command, with its arguments, asks."""
        (self._directory / "stops_at").write_text(f"head {pattern}")

    def stop_before(self, pattern: str) -> None:
        """Stop the head's engine, and this command, before that asks Slurm."""
        (self._directory / "stops_before").write_text(f"head {pattern}")

    def wait_stopped(self) -> int:
        """The id of the engine, stopped."""
        machine = Machine(self._cluster)

        def stopped() -> int | None:
            found = machine.processes("head").items()
            engines = [pid for pid, words in found if {str(PROGRAM), "engine"} <= {*words}]
            return next((pid for pid in engines if is_stopped(pid)), None)

        what = "the head's engine to be stopped"
        return self._cluster.wait(what, stopped, 180, lambda: self.begun()[-20:], every_s=0.05)

    def begun(self, host: str = "head", book: str = "begun") -> list[str]:
        """All commands of the engines there; ``book`` is "done": those that Slurm has answered."""
        lines = (self._directory / book).read_text().splitlines()
        return [line.removeprefix(f"{host} ") for line in lines if line.startswith(f"{host} ")]


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False  # it has just ended


def is_requeue(pid: int) -> bool:
    """Whether this process lives, and is a requeue."""
    try:
        return b"\0requeue\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture
def commands(cluster: Cluster) -> Iterator[Commands]:
    """Engines that are started from here on run these commands."""
    own = 'bin_dir = "/home/commands"\n'
    paths = [cluster.host_path(host, "/etc/rmsplugin/rmsplugin.toml") for host in ("head", "front2", *cluster.nodes)]

    def change(old: str, new: str) -> None:
        for path in paths:
            if path.exists():
                write_whole(path, path.read_text().replace(old, new))

    change("[slurm]\n", f"[slurm]\n{own}")
    yield Commands(cluster)
    change(own, "")
    cluster.ok("rm", "-r", "/home/commands")


def go_on(cluster: Cluster, engine: int, commands: Commands) -> None:
    """Let the head's engine go on, whose turn is over; it ends, and begins nothing at Slurm any more."""
    before = commands.begun()
    os.kill(engine, signal.SIGCONT)
    cluster.wait("the engine to end", lambda: not Path(f"/proc/{engine}").exists(), 120)
    assert commands.begun() == before


def test_an_engine_that_is_stopped_in_a_requeue_begins_nothing_more_of_it(
    cluster: Cluster, commands: Commands, controller: Controller
) -> None:
    wait_leader(cluster, "head")
    job = count(cluster)
    wait_number(cluster, job)
    commands.stop_at(f"scontrol update JobId={job} Licenses=*")
    room = rooms(cluster)[host_of(cluster, job)].job_id
    cluster.ok("scancel", str(room), user="slurm")  # the VM is lost: the job has to begin again
    engine = commands.wait_stopped()
    controller.wait(cluster, "is up", 120)
    go_on(cluster, engine, commands)
    assert not [line for line in commands.begun() if line.startswith(f"scontrol requeue {job}")]

    wait_leader(cluster, "front2")
    starts = cluster.home() / f"started.{job}"
    cluster.wait("a second start", lambda: starts.read_text() == "started\n" * 2, 240, lambda: cluster.describe(job))
    assert f"scontrol requeue {job}" in commands.begun("front2"), "the next engine has done the rest"
    wait_number(cluster, job)
    cluster.start("head", "engine")
    cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    assert cluster.wait_job(job, timeout_s=240)["JobState"] == "COMPLETED"


def test_a_requeue_of_a_host_that_stood_still_is_not_done_when_it_goes_on(
    cluster: Cluster, commands: Commands, controller: Controller
) -> None:
    """It would end the run that the next engine has begun meanwhile."""
    wait_leader(cluster, "head")
    job = count(cluster)
    wait_number(cluster, job)
    commands.stop_before(f"scontrol requeue {job}")
    room = rooms(cluster)[host_of(cluster, job)].job_id
    cluster.ok("scancel", str(room), user="slurm")  # the VM is lost: the job has to begin again
    engine = commands.wait_stopped()
    tasks = Path(f"/proc/{engine}/task").iterdir()
    children = [int(each) for task in tasks for each in (task / "children").read_text().split()]
    [requeue] = [each for each in children if is_requeue(each)]
    controller.wait(cluster, "is up", 120)
    starts = cluster.home() / f"started.{job}"
    cluster.wait("a second start", lambda: starts.read_text() == "started\n" * 2, 240, lambda: cluster.describe(job))
    wait_number(cluster, job)

    done = commands.begun(book="done")
    os.kill(requeue, signal.SIGCONT)
    cluster.wait("the requeue to end", lambda: not is_requeue(requeue), 60)
    go_on(cluster, engine, commands)
    assert commands.begun(book="done") == done, "it has asked Slurm for nothing"
    wait_number(cluster, job, 2)
    assert starts.read_text() == "started\n" * 2
    cluster.start("head", "engine")
    cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    assert cluster.wait_job(job, timeout_s=240)["JobState"] == "COMPLETED"


def test_an_engine_that_is_stopped_in_the_end_of_a_room_does_not_end_it_by_slurm_nor_by_its_node(
    cluster: Cluster, commands: Commands, controller: Controller
) -> None:
    wait_leader(cluster, "head")
    epoch = leading_epoch(cluster)
    settings = cluster.host_path("n1", "/etc/rmsplugin/rmsplugin.toml")
    whole = settings.read_text()
    room = wait_held(cluster, *cluster.nodes)["n1"].job_id
    # The node finds no process of such a user's, so the engine asks Slurm.
    write_whole(settings, whole.replace("[engine]\n", '[engine]\nuser = "nobody"\n'))
    commands.stop_at(f"squeue * -j {room} *")
    cluster.ok("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    engine = commands.wait_stopped()
    write_whole(settings, whole)
    cluster.ok("scontrol", "update", "NodeName=n1", "State=RESUME")
    controller.wait(cluster, "is up", 120)

    job = count(cluster, "-w", "n1")
    wait_number(cluster, job)
    go_on(cluster, engine, commands)
    assert not [line for line in commands.begun() if line.startswith("scancel")]
    told = end_room(cluster, "n1", room, "--epoch", str(epoch))
    assert told["kind"] == "deposed" and f"(epoch {epoch}) is over" in told["error"]
    now = str(leading_epoch(cluster))
    assert end_room(cluster, "n1", room, "--epoch", now) == {"vms": [f"vjob{job}-0"], "ended": False}
    wait_number(cluster, job, 2)
    assert rooms(cluster)["n1"].job_id == room
    cluster.start("head", "engine")
    finish(cluster, job)


def leading_epoch(cluster: Cluster) -> int:
    """The epoch of the engine that leads."""
    found = re.search(r"leads with epoch (\d+)", cluster.plugin("status").out)
    assert found
    return int(found[1])


def hand_over(cluster: Cluster, to: str) -> float:
    """Have the engine on that host lead, once it stands by. Returns after how many seconds it answered."""
    cluster.wait(f"{to} to stand by", lambda: f"stands by: {to}" in cluster.plugin("status").out, 60)
    told = cluster.plugin("handover", "--to", to, "--json")
    assert told.code == 0, told.err
    answer = json.loads(told.out)
    assert answer["to"] == to
    return float(answer["seconds"])


def release_that_leads(cluster: Cluster) -> str:
    return str(json.loads(cluster.plugin("status", "--json").out)["version"])


def test_controllers_are_upgraded_one_by_one_while_vjobs_run(
    cluster: Cluster, controller: Controller, tmp_path: Path
) -> None:
    """The last test of this file: the releases before cannot read the ledger after it."""
    wait_leader(cluster, "head")
    runs, moves = count(cluster), count(cluster)
    wait_number(cluster, runs, 2)
    wait_number(cluster, moves, 2)
    newer_release(cluster.directory / "shared" / "home")
    controller.end(cluster)
    newer = Controller(cluster, tmp_path, "front2", "/home/newer")
    newer.wait(cluster, "stands by", 60)

    do(cluster, "migrate", str(moves), "--no-wait")
    took = [hand_over(cluster, "front2")]
    assert release_that_leads(cluster) == VERSION
    wait_number(cluster, runs, 2)
    wait_number(cluster, moves, 2)
    assert len(cluster.qemus(runs)) == len(cluster.qemus(moves)) == 1
    cluster.wait("the head to stand by", lambda: "stands by: head" in cluster.plugin("status").out, 60)
    assert "cannot take over: its release" in cluster.plugin("status").out
    refused = cluster.plugin("handover")
    assert refused.code == 1 and "cannot read this ledger: nothing was done" in refused.err

    cluster.kill("head", "engine")
    head = Controller(cluster, tmp_path, "head", "/home/newer")
    try:
        head.wait(cluster, "stands by", 60)
        took += [hand_over(cluster, "head"), hand_over(cluster, "front2"), hand_over(cluster, "head")]
        cluster.wait("nothing to be degraded", lambda: "degraded" not in cluster.plugin("status").out, 60)
        print(f"seconds until the next engine answered: {took}")
        have(cluster, runs, "suspend", "sleeping")
        have(cluster, runs, "resume", "running")
        finish(cluster, runs, moves)
    finally:
        for each in (head, newer):
            each.end(cluster)
