"""Site: the minicluster of a campaign as a whole: who leads, which daemons run, and who starts an engine again.

With managers, a *decider* is the manager of a host, and without them its engine.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from e2e.cluster import Cluster
from e2e.live.cut import no_more
from e2e.rooms import Machine, ledger
from minicluster_lib import hosts
from minicluster_lib.layout import MiniclusterError

from rmsplugin.client import EngineClient
from rmsplugin.errors import RmspluginError

CONTROLLERS = ("head", "front2")
#: Seconds after which systemd starts an engine again.
_RESTART_S = 5.0
_ANSWER_S = 3.0
#: An engine of a group answers so soon, unless it stands still: it is asked where it runs.
_SOON_S = 1.0
_STUCK, _STUCK_TAIL = "backup not completely done relinquishing control", 200


@dataclass(frozen=True)
class Decision:
    """A cycle of an engine, as that told it; ``time``: when it began, by the clock. Without managers no group."""

    group: str
    epoch: int
    host: str
    time: float


class Site(Cluster):
    """A minicluster of two controllers, whichever of them leads."""

    @property
    def decider(self) -> str:
        """The daemon of engine or manager."""
        return self._layout.engine_daemon

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The hosts of each group that has an engine of its own; none without managers."""
        return self._layout.groups

    def ask(self, path: str) -> dict[str, Any] | None:
        """The answer of the engine that leads, or of any manager; None while none answers."""
        for host in CONTROLLERS:
            if (answer := self.ask_on(host, path)) is not None:
                return answer
        return None

    def ask_on(self, host: str, path: str, group: str = "") -> dict[str, Any] | None:
        """The answer of a host's decider, or of its engine of a group; None if that leads nothing, or is silent."""
        place = f"groups/{group}.sock" if group else "engine.sock"
        socket = f"/proc/{self._layout.init_pids[host]}/root/run/rmsplugin/{place}"
        try:
            return EngineClient.unix(socket).request("GET", path, timeout_s=_SOON_S if group else _ANSWER_S)
        except (RmspluginError, OSError):
            return None

    def leader(self) -> str:
        """The host of the decider that leads; empty while none answers."""
        told = [(host, status) for host in CONTROLLERS if (status := self.ask_on(host, "/v1/status")) is not None]
        if self.groups:  # one that is cut off tells of a leader before
            newest = max((status for _, status in told), key=lambda status: int(status["epoch"]), default={"host": ""})
            return str(newest["host"])
        return told[0][0] if told else ""

    def decisions(self) -> list[Decision]:
        """The last cycles of all engines that answer; more than one of a group while one follows another."""
        found = []
        for group in self.groups or ("",):
            for host in CONTROLLERS:
                status = self.ask_on(host, "/v1/status", group)
                if status is not None and (cycle := status["last_cycle"]):
                    found.append(Decision(group, int(status["epoch"]), host, float(cycle["time"])))
        return found

    def engines(self, host: str, group: str = "") -> list[int]:
        """The processes, on this machine, of a host's engines of groups, or of that of one group."""
        found = Machine(self).processes(host).items()
        named = {"--group", group} if group else {"--group"}
        return [pid for pid, words in found if {"rmsplugin.cli.main", "engine", *named} <= {*words}]

    def decider_pid(self, host: str) -> int:
        """The process, on this machine, of a host's decider; 0: it does not run."""
        return int(self.status()["hosts"][host]["daemons"][self.decider]["pid"] or 0)

    def logs(self) -> dict[str, str]:
        """By host, all that its decider has said, and its engines of groups through it."""
        paths = {host: self.directory / "log" / host / f"{self.decider}.log" for host in CONTROLLERS}
        return {host: path.read_text() for host, path in paths.items() if path.exists()}

    def daemons(self, host: str) -> dict[str, Any]:
        """The daemons of a host, each with its process id inside, or None."""
        answer: dict[str, Any] = hosts.request(self._layout.host(host), op="status", timeout_s=10)["daemons"]
        return answer

    def all_hosts(self) -> list[str]:
        return [host.name for host in self._layout.hosts]

    def ended(self) -> list[str]:
        """Daemons that do not run."""
        found = []
        for host in self.all_hosts():
            found += [f"{name} on {host}" for name, state in self.daemons(host).items() if state["pid"] is None]
        return found

    def ends_missed(self, job: int) -> int:
        """How often Slurm did not learn that a job's script had ended, and the job was requeued to end once more.

        Slurm says so itself, or the engine: it was told of the end, and the job ran on. In Slurm 22.05 a report that
        only a backup in standby took, or that a slurmctld had not saved, is forgotten.
        """
        line = f"Batch JobId={job} missing from batch node"
        logs = (self.directory / "log" / host / "slurmctld.log" for host in CONTROLLERS)
        said = ledger(self, "select count(*) from events where kind = 'script-runs-on' and vjob = ?", str(job))
        return max(sum(log.read_text().count(line) for log in logs), sum(number for (number,) in said))

    def stuck_slurmctlds(self) -> list[str]:
        """Hosts whose slurmctld was told to give control back, and did not end (Slurm 22.05): so its log ends."""
        log = self.directory / "log"
        return [host for host in CONTROLLERS if _STUCK in (log / host / "slurmctld.log").read_text()[-_STUCK_TAIL:]]

    def signal(self, host: str, daemon: str, number: signal.Signals) -> None:
        """Send a signal to a daemon, if it runs."""
        with contextlib.suppress(MiniclusterError):
            hosts.request(self._layout.host(host), op="signal", name=daemon, signal=number)

    def cut(self, host: str, rules: str) -> None:
        """Have these rules in the host's network."""
        self._nft(host, rules)

    def mend(self, host: str) -> None:
        """Take the rules of ``cut`` away, where there are any."""
        self._nft(host, no_more())

    def _nft(self, host: str, text: str) -> None:
        words = [*self.in_network_of(host), "nft", "-f", "-"]
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr

    def first_server(self, hosts_of_servers: Sequence[str]) -> str:
        """The host of the ZooKeeper server that leads the ensemble."""
        for host in hosts_of_servers:
            asked = f"exec 3<>/dev/tcp/{self._layout.host(host).address}/2181 && printf srvr >&3 && timeout 3 cat <&3"
            if "Mode: leader" in self.run("bash", "-c", asked, host=host).out:
                return host
        raise AssertionError("no ZooKeeper server leads")

    def slurmctld_that_rules(self) -> str:
        """The host of the slurmctld that answers: the first one that is up."""
        told = self.run("scontrol", "ping", timeout_s=60).out
        found = re.findall(r"at (\S+) is UP", told)
        return str(found[0]) if found else "head"


class Keeper:
    """Starts deciders again that have ended, five seconds later, as systemd does; those that are held stay away."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._gone: dict[str, float] = {}  # by host: since when
        self.held: set[str] = set()  # hosts

    @contextlib.contextmanager
    def keeping(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(1):
            for host in CONTROLLERS:
                with contextlib.suppress(MiniclusterError, AssertionError):
                    self._look(host)

    def _look(self, host: str) -> None:
        if self._site.daemons(host)[self._site.decider]["pid"] is not None or host in self.held:
            self._gone.pop(host, None)
            return
        since = self._gone.setdefault(host, time.monotonic())
        if time.monotonic() - since >= _RESTART_S:
            self._site.start(host, self._site.decider)
