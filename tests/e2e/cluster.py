"""A running minicluster as the e2e tests see it: commands, jobs, vjobs, and waiting for what must happen."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from minicluster_lib import hosts
from minicluster_lib.layout import Cluster as Layout
from minicluster_lib.state import daemon_states
from patience import LOADED

from rmsplugin.client import EngineClient
from rmsplugin.engine.ledger.ledger_file import read_only
from rmsplugin.engine.ledger.shared_files import ledgers_in
from rmsplugin.errors import UnavailableError

REPOSITORY = Path(__file__).resolve().parents[2]
MINICLUSTER = REPOSITORY / "contrib" / "minicluster"
PROGRAM = REPOSITORY / ".venv" / "bin" / "rmsplugin"

#: The directory that engines on several hosts share, where a test has made it.
SHARED = "/home/controllers"

T = TypeVar("T")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0

ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}


@dataclass(frozen=True)
class Result:
    """What a command on a host printed, and its exit code."""

    code: int
    out: str
    err: str


#: What Slurm's commands say of a slurmctld that does not answer in time: one that starts without slurmdbd, for one.
_NO_ANSWER = ("timed out", "Unable to contact", "Connection refused")


def files_below(top: Path) -> list[Path]:
    """The files and directories below a directory of a running cluster; others may go meanwhile."""
    return [Path(place) / name for place, folders, files in os.walk(top) for name in (*folders, *files)]


def rows_of(ledger: Path, sql: str, *parameters: Any, busy_s: float) -> list[tuple[Any, ...]]:
    """Ask a ledger that may be in use."""
    with contextlib.closing(read_only(ledger, busy_s=busy_s)) as connection:
        return connection.execute(sql, parameters).fetchall()


def _fields(record: str) -> dict[str, str]:
    """The fields of a record as ``scontrol -o show`` prints it."""
    return dict(re.findall(r"(\S+?)=(\S*)", record))


class Cluster:
    """One minicluster; every wait is bounded and says what it waited for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # -- commands ------------------------------------------------------------------------------------------------

    def manage(self, *words: str, timeout_s: float = 300) -> Result:
        """Run ``contrib/minicluster WORDS --dir DIR``; what is brought up goes down with this process at the latest."""
        owner = ("--owner", str(os.getpid())) if words[0] == "up" else ()
        return self._run([str(MINICLUSTER), words[0], "--dir", str(self.directory), *owner, *words[1:]], timeout_s)

    @staticmethod
    def _run(argv: list[str], timeout_s: float) -> Result:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
        return Result(done.returncode, done.stdout, done.stderr)

    def run(self, *argv: str, host: str = "head", user: str = "root", timeout_s: float = 120) -> Result:
        """Run a command on a host; its failure is the caller's to judge."""
        return self._run(self.entering(*argv, host=host, user=user), timeout_s)

    def entering(self, *argv: str, host: str = "head", user: str = "root") -> list[str]:
        """What ``contrib/minicluster exec`` runs: tests run too many commands to start a Python for each."""
        return hosts.enter_command(self._layout, self._layout.host(host), argv, user=user)

    def in_network_of(self, host: str) -> list[str]:
        """What runs a program of this machine in a host's network."""
        return ["nsenter", "--net", "--target", str(self._layout.init_pids[host])]

    @property
    def _layout(self) -> Layout:
        known = Layout.load(self.directory)
        assert known is not None, f"no minicluster in {self.directory}"
        return known

    def ok(self, *argv: str, host: str = "head", user: str = "root", timeout_s: float = 120) -> str:
        """Run a command that must succeed; returns what it printed."""
        result = self.run(*argv, host=host, user=user, timeout_s=timeout_s)
        assert result.code == 0, f"{argv} as {user} on {host}: exit {result.code}\n{result.out}\n{result.err}"
        return result.out

    def plugin(self, *argv: str, user: str = "root", timeout_s: float = 180) -> Result:
        """Run ``rmsplugin ARGV`` on the head."""
        return self.run(str(PROGRAM), *argv, user=user, timeout_s=timeout_s)

    def ask(self, path: str) -> dict[str, Any] | None:
        """The engine's answer to root's GET of ``path``; None while it does not answer.

        What is waited for is asked here: a program for each look would take the CPUs from what is to happen.
        """
        socket = f"/proc/{self._layout.init_pids['head']}/root/run/rmsplugin/engine.sock"
        try:
            return EngineClient.unix(socket).request("GET", path)
        except UnavailableError:
            return None

    # -- files -----------------------------------------------------------------------------------------------------

    def ledger(self) -> Path:
        """The ledger of the one engine that leads: the newest one that controllers share, where they do."""
        [found] = self.ledgers()
        return found

    def ledgers(self) -> list[Path]:
        """The ledger of the engine that leads, or those of the engines of all groups."""
        shared = self.directory / "shared" / SHARED.lstrip("/") / "groups"
        newest = {place.name: known[-1] for place in sorted(shared.glob("[!.]*")) if (known := ledgers_in(place))}
        groups = [path for name, path in newest.items() if name != "all"]
        return groups or [newest.get("all", self.host_path("head", "/var/lib/rmsplugin/ledger.sqlite"))]

    def home(self, user: str = "alice") -> Path:
        """A user's home, as this machine sees it."""
        return self.directory / "shared" / "home" / user

    def host_path(self, host: str, inside: str) -> Path:
        """A host's private path, as this machine sees it."""
        return self.directory / "hosts" / host / inside.lstrip("/")

    def wait_saved(self, name: str) -> None:
        """Wait until slurmctld has saved the job of this name, which takes up to five seconds: a kill would lose it."""
        state = self.host_path("head", "/var/spool/slurm/ctld/job_state")
        self.wait("slurmctld to save", lambda: state.exists() and name.encode() in state.read_bytes(), 60)

    def output(self, job: int | str, user: str = "alice", suffix: str = "out") -> str:
        """What a job wrote so far into slurm-JOB.out."""
        path = self.home(user) / f"slurm-{job}.{suffix}"
        return path.read_text() if path.exists() else ""

    def lines(self, job: int | str) -> list[str]:
        """The lines that a job's script wrote so far: without those that slurmstepd writes into the same file."""
        return [line for line in self.output(job).splitlines() if not line.startswith("slurmstepd")]

    # -- jobs --------------------------------------------------------------------------------------------------------

    def sbatch(self, script: str, *options: str, user: str = "alice", arguments: tuple[str, ...] = ()) -> int:
        """Submit a script to the vjob partition from the user's home; returns the job id."""
        result = self.submit(script, *options, user=user, arguments=arguments)
        assert result.code == 0, result.err
        return int(result.out.split(";")[0])

    def submit(self, script: str, *options: str, user: str = "alice", arguments: tuple[str, ...] = ()) -> Result:
        """Submit a script, which may be refused."""
        path = self.home(user) / f"job-{time.monotonic_ns()}.sh"
        path.write_text(script)
        inside = f"/home/{user}/{path.name}"
        words = ["sbatch", "--parsable", "-p", "vjob", "--mem=128", *options, inside, *arguments]
        return self.run("sh", "-c", f"cd /home/{user} && exec {shlex.join(words)}", user=user)

    def job(self, job: int | str) -> dict[str, str]:
        """One job's fields as ``scontrol show job`` prints them."""
        text = self.ok("scontrol", "-o", "show", "job", str(job))
        return _fields(text)

    def wait_job(self, job: int | str, *states: str, timeout_s: float = 120) -> dict[str, str]:
        """Wait until the job is in one of the states (default: ended); for a slurmctld that does not answer, too."""
        wanted = set(states) or ENDED

        def there() -> dict[str, str] | None:
            told = self.run("scontrol", "-o", "show", "job", str(job))
            if told.code != 0 and any(word in told.err for word in _NO_ANSWER):
                return None
            assert told.code == 0, f"job {job}: {told.out}{told.err}"
            fields = _fields(told.out)
            return fields if fields["JobState"] in wanted else None

        return self.wait(f"job {job} in {sorted(wanted)}", there, timeout_s, lambda: self.describe(job))

    def sacct(self, job: int | str, fields: str, *options: str) -> list[dict[str, str]]:
        """Accounting rows of the job's allocation."""
        out = self.ok("sacct", "-X", "-P", "-j", str(job), "-o", fields, *options)
        header, *rows = out.strip().splitlines()
        return [dict(zip(header.split("|"), row.split("|"), strict=True)) for row in rows]

    def accounted(self, job: int | str, fields: str, jobs: int = 1) -> list[dict[str, str]]:
        """Accounting rows once it has the ends of that many jobs: slurmdbd hears of them after all others."""

        def rows() -> list[dict[str, str]]:
            found = self.sacct(job, f"{fields},State,End")
            over = all(row["End"] != "Unknown" and row["State"].split()[0] in ENDED for row in found)
            return found if over and len(found) == jobs else []

        return self.wait(f"the end of {job} in accounting", rows, 60, lambda: self.sacct(job, f"{fields},State,End"))

    # -- vjobs -------------------------------------------------------------------------------------------------------

    def vjob(self, job: int | str) -> dict[str, Any] | None:
        """The vjob as ``rmsplugin vjobs --json`` shows it, ended ones included; None while the engine is down."""
        found = [each for each in self.vjobs() if str(job) in (str(each["job_id"]), each["display_id"])]
        return found[0] if found else None

    def vjobs(self) -> list[dict[str, Any]]:
        """All vjobs that the engine knows, ended ones too; none while it is down."""
        return (self.ask("/v1/vjobs?ended=1") or {"vjobs": []})["vjobs"]

    def events(self, job: int | str) -> str:
        """What ``rmsplugin events`` says of the vjob."""
        return self.plugin("events", "--vjob", str(job)).out

    def wait_vjob(self, job: int | str, *states: str, timeout_s: float = 120) -> dict[str, Any]:
        """Wait until the vjob is in one of the states."""

        def there() -> dict[str, Any] | None:
            vjob = self.vjob(job)
            return vjob if vjob and vjob["state"] in states else None

        return self.wait(f"vjob {job} in {states}", there, timeout_s, lambda: self.describe(job))

    def wait_action(self, job: int | str, kind: str, timeout_s: float = 60) -> None:
        """Wait until an action of that kind on a VM of the vjob is under way; read from the ledger, to be quick."""

        def under_way() -> bool:
            sql = "select 1 from actions where state = 'running' and kind = ? and vm like ?"
            return any(rows_of(path, sql, kind, f"vjob{job}-%", busy_s=5) for path in self.ledgers())

        self.wait(f"{kind} of vjob {job} under way", under_way, timeout_s, lambda: self.describe(job), every_s=0.02)

    def wait_still(self, job: int | str, state: str) -> None:
        """Wait until the vjob is in this state and no operation on it is under way: one may still end."""
        self.wait_vjob(job, state)
        sql = "select 1 from operations where state = 'running' and job_id = ?"

        def is_still() -> bool:
            return not any(rows_of(path, sql, int(job), busy_s=5) for path in self.ledgers())

        self.wait(f"no operation on vjob {job}", is_still, 120, lambda: self.describe(job))

    def wait_output(self, job: int | str, pattern: str, timeout_s: float = 90) -> str:
        """Wait until the job's output has a match."""

        def there() -> str | None:
            text = self.output(job)
            return text if re.search(pattern, text, re.M) else None

        return self.wait(f"{pattern!r} in output of {job}", there, timeout_s, lambda: self.describe(job), every_s=0.1)

    def qemus(self, job: int | str, host: str | None = None) -> list[str]:
        """Hosts on which a QEMU of the vjob runs (seen in the process list, not asked of libvirt)."""
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal():
                continue
            try:
                command = (process / "cmdline").read_bytes()
                if b"qemu-system" not in command.split(b"\0")[0] or f"guest=vjob{job}-".encode() not in command:
                    continue
                mounts = (process / "environ").read_bytes() + (process / "mountinfo").read_bytes()
            except OSError:
                continue
            if str(self.directory).encode() not in mounts:
                continue
            found += [name for name in self.nodes if self.same_network(process, name)]
        return [name for name in found if host in (None, name)]

    def same_network(self, process: Path, host: str) -> bool:
        """Whether a process is in the host's network namespace."""
        init = self._layout.init_pids[host]
        try:
            return (process / "ns/net").readlink() == Path(f"/proc/{init}/ns/net").readlink()
        except OSError:
            return False

    @property
    def nodes(self) -> list[str]:
        """Names of the compute nodes."""
        return [node.name for node in self._layout.node_hosts]

    def status(self) -> dict[str, Any]:
        """What ``minicluster status --json`` prints."""
        return daemon_states(self._layout)

    def leftovers(self, job: int | str) -> list[str]:
        """Whatever still exists of a vjob: QEMUs, files on nodes, tap devices without a VM, live rows."""
        left = [f"QEMU on {host}" for host in self.qemus(job)]
        for host in self.nodes:
            root = self.host_path(host, "/var/lib/rmsplugin")
            left += [f"{host}: {path}" for path in files_below(root) if path.name.startswith(f"vjob{job}-")]
            vms = self.ok("virsh", "-q", "list", "--all", "--name", host=host).split()
            taps = re.findall(r"^\d+: (vnet\d+)", self.ok("ip", "-o", "link", host=host), re.M)
            left += [f"{host}: domain {name}" for name in vms if name.startswith(f"vjob{job}-")]
            if len(taps) > len(vms):
                left.append(f"{host}: taps {taps} for VMs {vms}")
        if not self._is_terminated(job):
            left.append(f"vjob is {self.vjob(job)}")
        return left

    def _is_terminated(self, job: int | str) -> bool:
        vjob = self.vjob(job)
        return vjob is None or vjob["state"] == "terminated"

    def wait_gone(self, job: int | str, timeout_s: float = 60) -> None:
        """Wait until nothing of the vjob is left."""
        self.wait(
            f"nothing left of vjob {job}",
            lambda: self._is_terminated(job) and not self.leftovers(job),
            timeout_s,
            lambda: self.leftovers(job),
        )

    def wait_nodes(self, timeout_s: float = 120) -> None:
        """Wait until Slurm takes all nodes for able: on a loaded machine a slurmd may answer a ping too late."""
        self.wait("all nodes", lambda: not self.unable_nodes(), timeout_s, self.unable_nodes)

    def unable_nodes(self) -> list[str]:
        """A line for each node that Slurm starts no job on, with Slurm's reason."""
        lines = self.ok("sinfo", "-h", "-N", "-p", "plain,vjob", "-o", "%N is %T: %E").splitlines()
        return [line for line in lines if re.search(r"\*|down|drain|fail", line.partition(":")[0])]

    # -- faults ------------------------------------------------------------------------------------------------------

    def kill(self, host: str, daemon: str) -> None:
        """SIGKILL a daemon, as ``contrib/minicluster kill`` does."""
        hosts.request(self._layout.host(host), op="stop", name=daemon, signal=signal.SIGKILL)

    def start(self, host: str, daemon: str) -> None:
        """Start a daemon that has ended, as ``contrib/minicluster start`` does."""
        hosts.request(self._layout.host(host), op="start_again", name=daemon)

    def restart_engine(self) -> None:
        """Start the engine again and wait until it answers."""
        self.start("head", "engine")
        said = ("logs", "head", "engine")
        self.wait("the engine to answer", lambda: self.ask("/v1/status"), 30, lambda: self.manage(*said).out[-3000:])

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait(
        self,
        what: str,
        condition: Callable[[], T | None],
        timeout_s: float,
        explain: Callable[[], object] = lambda: "",
        every_s: float | None = None,
    ) -> T:
        """Wait until the condition gives something true; fail with an explanation at the time-out.

        It is looked at less and less often unless ``every_s`` is told: looks take the CPUs from what is to happen.
        """
        deadline = time.monotonic() + timeout_s * LOADED
        pause_s = every_s or _FIRST_PAUSE_S
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}: {explain()}"
            time.sleep(pause_s)
            pause_s = every_s or min(pause_s * 1.25, _LONGEST_PAUSE_S)

    def wait_cycle(self) -> None:
        """Wait until the engine has decided by what it asked Slurm after this was called."""
        now = time.time()

        def decided() -> bool:
            status = self.ask("/v1/status")
            return status is not None and status["last_cycle"]["time"] > now

        self.wait("a cycle", decided, 60)

    def describe(self, job: int | str) -> str:
        """All that helps to understand a job that is not where it should be."""
        parts = [
            self.run("scontrol", "show", "job", str(job)).out,
            json.dumps(self.vjob(job), indent=1),
            self.plugin("events", "--vjob", str(job)).out,
            self.manage("logs", "head").out[-3000:],
            self.output(job)[-500:],
        ]
        return "\n".join(parts)
