"""Three managers with a real ensemble and munge: the one that leads reads Slurm, and all engines are handed that."""

from __future__ import annotations

import itertools
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from contract.counted_slurm import CountedSlurm
from contract.engine_processes import ManagerProcess, write_settings
from contract.zookeeper_ensemble import JAR, Ensemble, free_ports, running_ensemble
from patience import PATIENCE_S
from unit.munged import Munged

from rmsplugin.api.binding import Engine
from rmsplugin.client import EngineClient
from rmsplugin.errors import RmspluginError

SESSION_S = 6.0
CYCLE_S = 1.0
#: Cycles of all engines in a window.
CYCLES = 9
NAMES = ("one", "two", "three")
GROUPS = {f"g{number}": f"n{number}" for number in (1, 2, 3)}
SAYS = "this engine reads Slurm itself"


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    if not JAR.exists() or shutil.which("java") is None or shutil.which("munged") is None:
        pytest.skip("needs Debian's libzookeeper-java, a Java that runs it, and munged")
    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    with tempfile.TemporaryDirectory() as name:
        daemon = Munged(Path(name))
        yield daemon
        daemon.stop()


class Window(NamedTuple):
    """The readings of a while, by process, the cycles that have ended in it, and its seconds."""

    readings: Counter[int]
    cycles: int
    seconds: float


class MungedManager(ManagerProcess):
    """A manager that knows only the tests' own munged; ``old``: one of a release that hands nothing down."""

    def __init__(self, name: str, settings: Path, munge_socket: str, *, old: bool = False) -> None:
        lines = [
            "import sys",
            "from rmsplugin.adapters import munge",
            f"own = {{'socket': {munge_socket!r}}}",
            "encode, decode = munge.encode, munge.decode",
            "munge.encode = lambda *words, **options: encode(*words, **{**options, **own})",
            "munge.decode = lambda *words, **options: decode(*words, **{**options, **own})",
            "from rmsplugin.cli.main import main",
        ]
        if old:
            lines += [
                "from rmsplugin.manager.entry import Entry",
                "table = Entry.table",
                "Entry.table = lambda self: [each for each in table(self) if not each.route.name.startswith('slurm_')]",
            ]
        self.PROGRAM = "\n".join([*lines, "sys.exit(main())"])
        super().__init__(name, settings)


class Site:
    """Managers at one Slurm."""

    def __init__(self, directory: Path, ensemble: Ensemble, munged: Munged, path: str) -> None:
        self._directory, self._munged = directory, munged
        self._servers = ", ".join(f'"{each}"' for each in ensemble.addresses)
        self._path = path
        self.slurm = CountedSlurm(directory / "slurm", tuple(GROUPS.values()))
        self._ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
        (directory / "shared").mkdir(mode=0o700)
        self.managers: dict[str, MungedManager] = {}

    def start(self, *names: str, old: bool = False) -> None:
        for name in names:
            place = self._directory / name
            place.mkdir()
            self.slurm.install(place)
            cluster = (
                f'coordination = "zookeeper"\nservers = [{self._servers}]\nsession_s = {SESSION_S}\n'
                f'path = "{self._path}"\nshared_dir = "{self._directory}/shared"\n'
                + "".join(f'[group.{group}]\nhosts = "{host}"\n' for group, host in GROUPS.items())
            )
            address = f"127.0.0.1:{self._ports[name]}"
            more = f'url = "http://{address}"\ntrusted_hosts = ["127.0.0.1"]\ncycle_s = {CYCLE_S}\n'
            settings = write_settings(place, cluster, listen=address, more=more)
            # The commands are shells here, and the machine may be busy.
            settings.write_text(settings.read_text().replace("command_timeout_s = 0.5", "command_timeout_s = 30"))
            (place / "munge.sock").symlink_to(self._munged.socket)
            self.managers[name] = MungedManager(name, settings, str(place / "munge.sock"), old=old)

    def has_munge(self, name: str, *, there: bool) -> None:
        """Have munge of a manager's host end, or be there again."""
        own = self._directory / name / "munge.sock"
        own.unlink(missing_ok=True)
        if there:
            own.symlink_to(self._munged.socket)

    def status(self, place: str) -> dict[str, object]:
        try:
            return dict(Engine([EngineClient.unix(str(self._directory / place))]).status())
        except RmspluginError:
            return {}

    def groups_at(self, name: str) -> set[str]:
        """The groups that have answered at a manager, and that this one has itself."""
        sockets = (self._directory / name / "groups").glob("*.sock")
        return {each.stem for each in sockets if self.status(f"{name}/groups/{each.name}").get("last_cycle")}

    def cycles(self) -> int:
        """How many cycles all engines have run."""
        found = 0
        for name in self.managers:
            for group in self.groups_at(name):
                cycles = self.status(f"{name}/groups/{group}.sock").get("cycles")
                found += cycles["number"] if isinstance(cycles, dict) else 0
        return found

    def leader(self) -> str:
        """The name of the manager whose squeue stays; empty: there is none, or others have some, too."""
        names = {manager.process.pid: name for name, manager in self.managers.items()}
        found = [names.get(pid, "") for pid in self.slurm.staying()]
        return found[0] if len(found) == 1 else ""

    def own_reading(self, name: str) -> str:
        """Why the engine at this manager says that it reads Slurm itself."""
        told = [self.status(f"{name}/groups/{group}.sock").get("problems") for group in self.groups_at(name)]
        found = [problem for problems in told if isinstance(problems, list) for problem in problems]
        return " ".join(problem for problem in found if SAYS in problem)

    def has_read(self, seen: Window) -> bool:
        """Whether managers alone have read Slurm, for some cycles at a time."""
        pids = {manager.process.pid for manager in self.managers.values()}
        # Each engine may have a cycle under way at either end, and the leader reads for itself once in a cycle's time.
        most = seen.cycles + 2 * len(GROUPS) + seen.seconds / CYCLE_S + 1
        return seen.readings.keys() <= pids and seen.readings.total() <= most

    def engines(self) -> set[int]:
        return {pid for manager in self.managers.values() for pid in manager.engines()}

    def window(self) -> Window:
        """What is read of Slurm while the engines run some cycles from now on."""
        began, before, begin = time.monotonic(), self.slurm.readings(), self.cycles()
        wait_until(lambda: self.cycles() >= begin + CYCLES, "engines run cycles")
        cycles = self.cycles() - begin
        return Window(self.slurm.readings() - before, cycles, time.monotonic() - began)

    def one_reads(self) -> Window:
        """The first one from now on in which no engine has read Slurm itself."""
        while True:
            seen = self.window()
            if not self.engines() & seen.readings.keys():
                return seen

    def end(self) -> None:
        self.slurm.end()
        for each in self.managers.values():
            each.end()


_numbers = itertools.count()


@pytest.fixture
def site(ensemble: Ensemble, munged: Munged, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, ensemble, munged, f"/once{next(_numbers)}")
    yield made
    made.end()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def test_the_manager_that_leads_reads_slurm_for_all_engines_and_they_go_on_when_it_stands_still(site: Site) -> None:
    site.start("one")
    wait_until(lambda: site.groups_at("one") == GROUPS.keys(), "one manager has all groups")
    alone = site.one_reads()
    assert site.has_read(alone)
    site.start("two", "three")
    wait_until(lambda: all(len(site.groups_at(name)) == 1 for name in NAMES), "each manager has a group")
    shared = site.one_reads()
    print(f"readings of Slurm: one manager {alone}, three managers {shared}")
    assert site.has_read(shared)
    wait_until(lambda: bool(site.leader()), "one squeue stays for all")
    stopped = site.managers[leads := site.leader()]
    others = {pid for name in {*NAMES} - {leads} for pid in site.managers[name].engines()}
    before = site.slurm.readings()
    stopped.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: bool(others & (site.slurm.readings() - before).keys()), "engines read Slurm themselves")
    left = {*NAMES} - {leads}
    wait_until(lambda: set().union(*map(site.groups_at, left)) == GROUPS.keys(), "others have all groups")
    stopped.process.kill()
    assert site.has_read(site.one_reads())
    wait_until(lambda: site.leader() in left, "one squeue stays for all")
    assert not [manager.said() for manager in site.managers.values() if "Traceback" in manager.said()]


@pytest.mark.long
def test_engines_read_slurm_themselves_beside_a_leader_of_a_release_that_hands_nothing_down(site: Site) -> None:
    site.start("one", old=True)
    wait_until(lambda: site.groups_at("one") == GROUPS.keys(), "it has all groups")
    site.start("two")
    wait_until(lambda: bool(site.groups_at("two")), "the newer one has a group")
    (engine,) = site.managers["two"].engines()
    wait_until(lambda: site.window().readings[engine] > 1, "its engine reads Slurm itself")
    wait_until(lambda: "of a release that hands nothing down" in site.own_reading("two"), "its engine says why")
    wait_until(lambda: engine in site.slurm.staying(), "a squeue of its own stays")


@pytest.mark.long
def test_a_manager_whose_host_has_lost_munge_leads_no_more_and_its_groups_go_on_elsewhere(site: Site) -> None:
    site.start("one")
    wait_until(lambda: site.groups_at("one") == GROUPS.keys(), "one manager has all groups")
    site.start("two")
    wait_until(lambda: bool(site.groups_at("two")), "the other one has a group")
    wait_until(lambda: site.leader() == "one", "one squeue stays for all")
    site.has_munge("one", there=False)
    began = time.monotonic()
    wait_until(lambda: site.leader() == "two", "the other one leads")
    wait_until(lambda: site.groups_at("two") == GROUPS.keys(), "and has all groups")
    print(f"the other one has all groups {time.monotonic() - began:.1f} s after munge has ended")
    wait_until(lambda: not site.managers["one"].engines(), "this one has none")
    cluster = site.status("two/engine.sock")["cluster"]
    assert isinstance(cluster, dict)
    assert "is unfit: it cannot hear: munged does not answer" in " ".join(cluster["degraded"])
    wait_until(lambda: site.has_read(site.one_reads()), "it reads Slurm for all")
    site.has_munge("one", there=True)
    wait_until(lambda: bool(site.groups_at("one")), "this one has a group again")
    assert site.leader() == "two", "the lead stays"
    assert not [manager.said() for manager in site.managers.values() if "Traceback" in manager.said()]
