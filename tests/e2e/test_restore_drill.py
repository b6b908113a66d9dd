"""Restore drills: ledger, keys and settings of the engine are lost, and come back from copies by the guide's commands.

Each vjob is accounted for: what ran, slept and was paused at the copy, and what has moved, slept or ended since.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import REPOSITORY, SHARED, Cluster
from e2e.conftest import minicluster
from e2e.rooms import count, finish, last_number, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]

_GUIDE = REPOSITORY / "docs/operator/restoring.md"
_STATE, _SETTINGS, _BACKUPS = "/var/lib/rmsplugin", "/etc/rmsplugin", "/var/backups"
_COPIES = ("rmsplugin.sqlite", "rmsplugin.tar.gz")
#: Pauses a vjob in the engine's place: nobody pauses one by hand.
_PAUSER = """
import sys, time
from pathlib import Path
from rmsplugin.engine.daemon import open_context
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.settings import load

settings = load(Path("/etc/rmsplugin/rmsplugin.toml"))
context = open_context(settings, settings.engine.state_dir)
executor = Executor(context, workers=2, on_end=lambda: None)
executor.begin(int(sys.argv[1]), OperationKind.PAUSE, "for the drill", resumes=False)
while executor.busy():
    time.sleep(0.05)
executor.close()
"""


def commands(heading: str) -> list[str]:
    """The commands below a heading of the guide, one a line."""
    _, _, text = _GUIDE.read_text().partition(f"# {heading}\n")
    found = re.findall(r"^    (\S.*?)(?: +#.*)?$", text.partition("\n#")[0], re.MULTILINE)
    assert found, f"no commands below {heading!r}"
    return found


def say(cluster: Cluster, *lines: str) -> None:
    """Run the guide's commands on the controller, as root."""
    for line in lines:
        cluster.ok("sh", "-c", line.replace("shared/rmsplugin", SHARED[1:]))


def take_copies(cluster: Cluster, elsewhere: Path, *, shared: bool = False) -> None:
    """Copy what the guide says is to be kept to a place that outlives the host."""
    cluster.ok("install", "-d", _BACKUPS)
    ledger, files_of_one, files_of_two = commands("What to keep")
    say(cluster, ledger, files_of_two if shared else files_of_one)
    for name in _COPIES:
        shutil.copy2(cluster.host_path("head", f"{_BACKUPS}/{name}"), elsewhere / name)


def bring_copies(cluster: Cluster, elsewhere: Path) -> None:
    """Have the copies on the new host."""
    cluster.ok("install", "-d", _BACKUPS)
    for name in _COPIES:
        shutil.copy2(elsewhere / name, cluster.host_path("head", f"{_BACKUPS}/{name}"))


def lose_host(cluster: Cluster) -> None:
    """All that the engine has on its host is gone; the packages make its state directory again."""
    cluster.kill("head", "engine")
    cluster.ok("sh", "-c", f"rm -rf {_STATE} {_SETTINGS} {_BACKUPS} && install -d -o slurm -m 700 {_STATE}")


def counting(cluster: Cluster) -> int:
    """A vjob that has begun to count; one after the other, for many boots at once take long."""
    job = count(cluster)
    wait_number(cluster, job)
    return job


def state_of(cluster: Cluster, job: int) -> str:
    vjob = cluster.vjob(job)
    return "" if vjob is None else str(vjob["state"])


def ordered(cluster: Cluster, order: str, job: int, state: str) -> None:
    told = cluster.plugin(order, str(job))
    assert told.code == 0, told.err
    cluster.wait_vjob(job, state)


def paused(cluster: Cluster, job: int) -> None:
    cluster.kill("head", "engine")
    cluster.ok(str(REPOSITORY / ".venv/bin/python"), "-c", _PAUSER, str(job), user="slurm")
    cluster.restart_engine()
    assert state_of(cluster, job) == "paused", cluster.describe(job)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Cluster]:
    yield from minicluster("hold")


def test_each_vjob_is_accounted_for_after_the_engines_host_was_lost(one: Cluster, tmp_path: Path) -> None:
    cluster = one
    runs, sleeps, stands, ends, slept_since, woken_since = (counting(cluster) for _ in range(6))
    jobs = {runs, sleeps, stands, ends, slept_since, woken_since}
    ordered(cluster, "suspend", sleeps, "sleeping")
    ordered(cluster, "suspend", woken_since, "sleeping")
    paused(cluster, stands)

    take_copies(cluster, tmp_path)

    finish(cluster, ends)
    cluster.wait_gone(ends)
    ordered(cluster, "suspend", slept_since, "sleeping")
    ordered(cluster, "resume", woken_since, "running")
    wait_number(cluster, woken_since, 2)
    unknown = counting(cluster)

    lose_host(cluster)
    bring_copies(cluster, tmp_path)
    say(cluster, *commands("A new host"))
    cluster.restart_engine()
    assert cluster.plugin("ledger", "check").code == 0

    # Those that run go on where they are, whatever the ledger knew of them.
    for job in (runs, woken_since, unknown):
        wait_number(cluster, job, 5)
    cluster.wait_vjob(woken_since, "running")
    cluster.wait_vjob(runs, "running")
    cluster.wait_vjob(ends, "terminated")
    assert (state_of(cluster, sleeps), state_of(cluster, stands)) == ("sleeping", "paused")
    stood = last_number(cluster, stands)

    # What slept since is held back until an operator has looked.
    cluster.wait("the offer", lambda: "saved states" in cluster.plugin("confirm").out, 120)
    assert cluster.plugin("confirm", "--yes", str(slept_since)).code == 0
    for job in (sleeps, stands):
        ordered(cluster, "resume", job, "running")
    for job in (sleeps, stands, slept_since):  # the last one goes on by itself: this ledger knows of no suspend
        wait_number(cluster, job)
    assert last_number(cluster, stands) > stood
    finish(cluster, *sorted(jobs - {ends}))
    for job in sorted(jobs):
        cluster.wait_gone(job)

    finish(cluster, unknown)
    cluster.wait_gone(unknown)
    for job in sorted({*jobs, unknown}):
        cluster.accounted(job, "JobID")
        rows = cluster.sacct(job, "JobID,State", "--duplicates")
        assert [row["State"] for row in rows] == ["COMPLETED"], rows


@pytest.fixture
def two() -> Iterator[Cluster]:
    yield from minicluster("hold", "--controllers", "2", "--fronts", "2")


def test_two_controllers_go_on_after_their_shared_directory_was_lost(two: Cluster, tmp_path: Path) -> None:
    cluster = two
    runs, sleeps, slept_since = (counting(cluster) for _ in range(3))
    ordered(cluster, "suspend", sleeps, "sleeping")
    take_copies(cluster, tmp_path, shared=True)
    ordered(cluster, "suspend", slept_since, "sleeping")

    for host in ("head", "front2"):
        cluster.kill(host, "engine")
    cluster.ok("sh", "-c", f"rm -rf {SHARED}")
    lose_host(cluster)
    bring_copies(cluster, tmp_path)
    say(cluster, *commands("A lost shared directory"))
    cluster.restart_engine()
    cluster.start("front2", "engine")

    wait_number(cluster, runs, 5)
    assert state_of(cluster, sleeps) == "sleeping"
    cluster.wait("the offer", lambda: "saved states" in cluster.plugin("confirm").out, 120)
    assert cluster.plugin("confirm", "--yes", str(slept_since)).code == 0
    ordered(cluster, "resume", sleeps, "running")
    for job in (sleeps, slept_since):
        wait_number(cluster, job)
    told = cluster.plugin("handover")
    assert told.code == 0, told.err
    finish(cluster, runs, sleeps, slept_since)
    for job in (runs, sleeps, slept_since):
        cluster.wait_gone(job)
