"""Two controllers whose shared directories come by NFS from a third host: the network between them fails, or it does.

The faults, and what has to be well after each, are those of ``contrib/run-campaign live``.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.cluster import PROGRAM, SHARED, Cluster
from e2e.conftest import minicluster
from e2e.live import cut, well
from e2e.live.history import History
from e2e.live.site import CONTROLLERS, Keeper, Site
from e2e.rooms import count, finish, have, wait_number
from minicluster_lib.layout import Cluster as Layout
from minicluster_lib.shared_nfs import PATHS

from rmsplugin.engine.ledger.shared_files import epoch_of

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

#: A slurmctld that is killed forgets at most five seconds.
_SAVED_S = 6
_AWAY_S = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from minicluster("hold", "--controllers", "2", "--shared", "nfs")


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Site:
    return Site(cluster.directory)


def server(site: Site) -> str:
    """The host of the file server."""
    layout = Layout.load(site.directory)
    assert layout is not None and layout.file_server is not None
    return layout.file_server.name


@contextlib.contextmanager
def well_again(site: Site) -> Iterator[None]:
    """After what is done in the block all has to be well, without a breach; deciders that end are started again."""
    keeper, history, recovery = Keeper(site), History(site), well.begin_recovery(site)
    with keeper.keeping():
        begun = time.time()
        assert well.until_well(site, begun, begun, recovery, history) == []
        begun, recovery = time.time(), well.begin_recovery(site)
        yield
        healed = time.time()
        assert well.until_well(site, begun, healed, recovery, history) == []
    print(f"away {healed - begun:.1f} s, no decision for {recovery.gaps.longest_s}, well after {recovery.well_s} s")
    assert well.checks_of_ledger(site) == ""
    history.read()
    assert history.breaches() == []


def one_runs_and_one_sleeps(site: Site) -> tuple[int, int]:
    """Two vjobs that count, as slurmctld has them in its files."""
    runs, sleeps = count(site), count(site)
    for job in (runs, sleeps):
        wait_number(site, job, 2)
    have(site, sleeps, "suspend", "sleeping")
    time.sleep(_SAVED_S)
    return runs, sleeps


def test_the_shared_directory_is_checked_on_nfs(site: Site) -> None:
    with well_again(site):
        pass
    for host in CONTROLLERS:
        mounts = [line.split()[:3] for line in site.ok("cat", "/proc/mounts", host=host).splitlines()]
        for path in PATHS:
            [(source, _, kind)] = [mount for mount in mounts if mount[1] == path]
            assert source.endswith(f":{path}") and kind in ("nfs4", "fuse.nfs")
        told = site.run(str(PROGRAM), "check", "--json", host=host)
        found = json.loads(told.out)["findings"]
        assert [each for each in found if each["level"] == "error"] == []
        [about] = [each for each in found if each["subject"] == SHARED and "write takes" in each["what"]]
        assert about["level"] == "ok" and "nfs" in about["what"], about


def test_a_backup_slurmctld_takes_over_with_slurm_s_state_on_nfs(site: Site) -> None:
    with well_again(site):
        runs, sleeps = one_runs_and_one_sleeps(site)
        site.kill("head", "slurmctld")
        site.wait("the backup to answer", lambda: well.slurm_answers(site), 120)
        assert site.daemons("head")["slurmctld"]["pid"] is None
        assert {str(runs), str(sleeps)} <= {*site.ok("squeue", "-h", "-o", "%i").split()}
        wait_number(site, runs, 2)
        have(site, sleeps, "resume", "running")
        have(site, runs, "suspend", "sleeping")
    have(site, runs, "resume", "running")
    finish(site, runs, sleeps)


def test_the_next_engine_leads_while_the_host_of_the_first_is_cut_off_from_nfs_too(site: Site) -> None:
    runs, sleeps = one_runs_and_one_sleeps(site)
    first = site.leader()
    [other] = {*CONTROLLERS} - {first}
    before = epoch(site)
    with well_again(site):
        site.cut(first, cut.of_host())
        try:
            see_it_hang(site, first)
            site.wait(f"{other} to lead", lambda: site.ask_on(other, "/v1/status"), 60)
            assert epoch(site) > before
        finally:
            site.mend(first)
    for job in (runs, sleeps):
        have(site, job, "resume", "running")
    finish(site, runs, sleeps)


def see_it_hang(site: Site, host: str) -> None:
    """See that a host waits for its shared directory, and that who is killed does not."""
    listed = site.run("timeout", "--signal=KILL", "3", "ls", SHARED, host=host)
    assert listed.code != 0, f"{host} has its shared directory by another way: {listed.out}"


def epoch(site: Site) -> int:
    """The epoch of the newest ledger in the shared directory, as its server has it."""
    found = epoch_of(site.ledger())
    assert found is not None
    return found


@contextlib.contextmanager
def stopped(site: Site, host: str) -> Iterator[None]:
    site.signal(host, "nfs", signal.SIGSTOP)
    yield
    site.signal(host, "nfs", signal.SIGCONT)


@contextlib.contextmanager
def killed(site: Site, host: str) -> Iterator[None]:
    site.kill(host, "nfs")
    yield
    site.start(host, "nfs")


@pytest.mark.parametrize("away", [stopped, killed])
def test_all_is_well_after_the_file_server_was_away_in_a_suspend(
    site: Site, away: Callable[[Site, str], contextlib.AbstractContextManager[None]]
) -> None:
    runs, sleeps = one_runs_and_one_sleeps(site)
    before = epoch(site)
    with well_again(site):
        told = site.plugin("suspend", str(runs), "--no-wait")
        assert told.code == 0, told.err
        site.wait_action(runs, "suspend")
        with away(site, server(site)):
            for each in CONTROLLERS:
                see_it_hang(site, each)
            time.sleep(_AWAY_S)
    assert epoch(site) == before, "the same engine leads: it has lost neither its ledger nor the lock of it"
    have(site, runs, "suspend", "sleeping")
    for job in (runs, sleeps):
        have(site, job, "resume", "running")
    finish(site, runs, sleeps)


def test_who_is_locked_out_by_the_other_controller_is_told_so(site: Site) -> None:
    """Locks are the server's. A second engine of the same epoch would not get the ledger."""
    leads = site.leader()
    [other] = {*CONTROLLERS} - {leads}
    ledger = Path(SHARED) / "groups" / "all" / site.ledger().name
    lock = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=1).execute('select * from epoch').fetchall()"
    told = site.run("python3", "-c", lock, str(ledger), host=other, user="slurm")
    assert told.code != 0 and "locked" in told.err, told
