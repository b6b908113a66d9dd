"""Root of a host of the cluster, who can make a credential of any user, may no more than that host's own part."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from others import open_directory
from security.from_host import ADDRESSES, ADMIN, LOGIN, STRANGER, Host, serve_over_munge
from unit.munged import Munged
from unit.served import Served

from rmsplugin import hook
from rmsplugin.client import EngineClient
from rmsplugin.errors import ForbiddenError
from rmsplugin.model.vjob import VJobState

pytestmark = [
    pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed"),
    pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as several users"),
]

ALICE, BOB = 65534, 65533


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    with open_directory() as place:
        daemon = Munged(place)
        yield daemon
        daemon.stop()


class Site:
    """A served engine of a cluster whose nodes have addresses, with a vjob of alice's that runs."""

    def __init__(self, directory: Path, munged: Munged) -> None:
        self.munged = munged
        self.served = Served(
            directory, tcp=True, operators=("nobody",), login_hosts=(LOGIN,), trusted_hosts=(f"{ADMIN}/32",)
        )
        self.world = self.served.world
        for name, address in ADDRESSES.items():
            self.world.rms.nodes[name] = dataclasses.replace(self.world.rms.nodes[name], address=address)
        self.job = self.world.submit(vms=1, memory_mib=128)
        self.world.until(self.job, VJobState.RUNNING)
        self.front = self.world.rms.job(self.job).batch_host
        self.other_front = next(front for front in ("front1", "front2") if front != self.front)
        self.rooms = {node: room.job_id for node, room in self._seen().rooms.by_node.items()}
        self.access = f"/v1/jobs/{self.job}/access"

    def _seen(self):  # type: ignore[no-untyped-def]
        assert self.world.cycle.seen is not None
        return self.world.cycle.seen

    def host(self, name: str) -> Host:
        """A node by its name, or the host with this address."""
        return Host(self.served, self.munged, ADDRESSES.get(name, name))

    def report(self, host: str, node: str, room_of: str) -> int:
        body = {"hook": "epilog", "node": node, "problem": "", "ended": []}
        return self.host(host).ask(0, "POST", f"/v1/rooms/{self.rooms[room_of]}/report", body)[0]


@pytest.fixture
def site(munged: Munged, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    serve_over_munge(munged, monkeypatch)
    with open_directory() as place:
        site = Site(place, munged)
        yield site
        site.served.close()


@pytest.mark.parametrize("host", ["n1", "n2", "other front", STRANGER])
@pytest.mark.parametrize("uid", [0, ALICE])
def test_no_host_gets_the_key_of_a_vjob_whose_wrapper_is_elsewhere(site: Site, host: str, uid: int) -> None:
    name = site.other_front if host == "other front" else host
    status, answer = site.host(name).ask(uid, "GET", site.access)
    assert (status, "private_key" in answer) == (403, False)
    status, answer = site.host(name).ask(uid, "GET", f"{site.access}?wrapper=1")
    assert (status, "private_key" in answer) == (503, False), "a wrapper may be where nobody has seen its job yet"


@pytest.mark.parametrize("host", ["its front", LOGIN, ADMIN])
def test_its_user_gets_it_where_his_wrapper_is_and_where_he_logs_in(site: Site, host: str) -> None:
    name, wrapper = (site.front, "?wrapper=1") if host == "its front" else (host, "")
    assert "private_key" in site.host(name).ask(ALICE, "GET", site.access + wrapper)[1]
    assert site.host(name).ask(BOB, "GET", site.access + wrapper)[0] == 403


@pytest.mark.parametrize("verb", ["started", "attached", "finished"])
def test_a_front_speaks_for_its_own_wrappers_only(site: Site, verb: str) -> None:
    path = f"/v1/jobs/{site.job}/{verb}"
    assert site.host(site.front).ask(ALICE, "POST", path)[0] == 200
    assert site.host(site.front).ask(0, "POST", path)[0] == 403, "root there is no owner"
    for host in (site.other_front, "n1", STRANGER):
        assert site.host(host).ask(ALICE, "POST", path)[0] == 503


_ACTS = (
    ("POST", "/v1/pause"),
    ("POST", "/v1/unpause"),
    ("POST", "/v1/handover"),
    ("POST", "/v1/nodes/n1/gone"),
    ("POST", "/v1/nodes/n1/back"),
    ("POST", "/v1/nodes/n1/fence"),
    ("POST", "/v1/confirm"),
    ("POST", "/v1/new-store"),
    ("POST", "/v1/jobs/{job}/migrate"),
    ("POST", "/v1/jobs/{job}/prefer"),
    ("POST", "/v1/jobs/{job}/prolog"),
)


@pytest.mark.parametrize(("method", "path"), _ACTS)
def test_root_and_operators_are_such_on_the_controller_only(site: Site, method: str, path: str) -> None:
    for host in ("n1", site.front, LOGIN, STRANGER):
        for uid in (0, ALICE):  # alice is an operator
            status, answer = site.host(host).ask(uid, method, path.format(job=site.job))
            assert (status, "is for the controller" in answer["error"]) == (403, True)
    assert site.host("127.0.0.1").ask(0, method, path.format(job=site.job))[0] != 403
    assert site.host(ADMIN).ask(0, method, path.format(job=site.job))[0] != 403


def test_an_operator_on_a_login_host_acts_on_his_own_vjobs(site: Site) -> None:
    site.served.add_vjob(77, BOB, VJobState.RUNNING)
    for uid in (0, ALICE):
        assert site.host(LOGIN).ask(uid, "POST", "/v1/jobs/77/suspend")[0] == 403
        assert site.host(LOGIN).ask(uid, "POST", "/v1/jobs/77/resize", {"cpus": 1})[0] == 403
        assert site.host(LOGIN).ask(uid, "GET", "/v1/states") == (200, {"states": [], "next": None})
    assert site.host(ADMIN).ask(ALICE, "POST", "/v1/jobs/77/suspend")[0] != 403
    for host in ("n1", STRANGER):
        assert site.host(host).ask(BOB, "POST", "/v1/jobs/77/suspend")[0] == 403
        assert site.host(host).ask(BOB, "GET", "/v1/states")[0] == 403
        assert site.host(host).ask(BOB, "POST", "/v1/reports", {})[0] == 403


def test_a_node_proves_nothing_of_another_one(site: Site) -> None:
    clean = site.served.ledger.room_reports.clean_epilog
    assert site.report("n1", node="n2", room_of="n2") == 403
    assert site.report("n1", node="n2", room_of="n1") == 403
    assert site.report(STRANGER, node="n2", room_of="n2") == 403
    assert site.report(site.front, node="n2", room_of="n2") == 403
    assert site.report("n1", node="n1", room_of="n2") == 403, "a room is on one node"
    assert (clean("n1"), clean("n2")) == (0.0, 0.0)
    assert site.report("n2", node="n2", room_of="n2") == 200
    assert (clean("n1"), clean("n2") > 0) == (0.0, True)


def test_only_root_reports_for_a_node(site: Site) -> None:
    body = {"hook": "epilog", "node": "n1", "problem": "", "ended": []}
    assert site.host("n1").ask(ALICE, "POST", f"/v1/rooms/{site.rooms['n1']}/report", body)[0] == 403


@pytest.mark.parametrize("verb", ["account", "epilog"])
def test_hooks_of_a_job_are_heard_from_its_front_only(site: Site, verb: str) -> None:
    path = f"/v1/jobs/{site.job}/{verb}"
    facts = {"name": "nobody", "uid": ALICE, "gid": ALICE, "gecos": "", "home": "/", "shell": "/bin/sh"}
    body = {**facts, "groups": [], "people": []} if verb == "account" else None
    for host in (site.other_front, "n1", LOGIN, STRANGER):
        assert site.host(host).ask(0, "POST", path, body)[0] == 403
    assert site.host(site.front).ask(0, "POST", path, body)[0] == 200
    assert site.host(site.front).ask(ALICE, "POST", path, body)[0] == 403


def test_a_wrapper_is_known_where_its_job_has_just_started(site: Site) -> None:
    """Slurm is asked when the newest look at the cluster is older than the start of the job."""
    (job,) = [each for each in site.world.rms._jobs.values() if each.node == site.front]
    job.cores = {site.other_front: 0}  # it was requeued, and started there
    assert site.host(site.other_front).ask(ALICE, "GET", f"{site.access}?wrapper=1")[0] == 200


def test_lists_are_for_everybody(site: Site) -> None:
    for path in ("/v1/vjobs", "/v1/nodes", "/v1/status", f"/v1/jobs/{site.job}", "/v1/events"):
        assert site.host(STRANGER).ask(BOB, "GET", path)[0] == 200


class BackupController:
    """A host where slurmctld runs after a failover; no engine listens at its socket."""

    def __init__(self, site: Site, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._site, self._monkeypatch = site, monkeypatch
        self.socket = directory / "nobody.sock"
        self.settings = directory / "rmsplugin.toml"
        self.settings.write_text(
            f'[engine]\nsocket = "{self.socket}"\nurl = "http://127.0.0.1:{site.served.port}"\nuser = "root"\n'
            '[slurm]\npartitions = ["vjob"]\nprolog_wait_s = 1\n'
        )
        self.log: list[str] = []
        monkeypatch.setattr(hook, "_log", self.log.append)
        tcp = functools.partial(EngineClient.tcp, munge_socket=site.munged.socket)
        monkeypatch.setattr(EngineClient, "tcp", tcp)

    def run(self, name: str, address: str) -> None:
        """Run a hook as the host with this address."""
        connect = functools.partial(socket.create_connection, source_address=(address, 0))
        environment = {"SLURM_JOB_PARTITION": "vjob", "SLURM_JOB_ID": str(self._site.job)}
        with self._monkeypatch.context() as patch:
            patch.setattr(socket, "create_connection", connect)
            hook.run(name, {"RMSPLUGIN_CONFIG": str(self.settings), **environment})


@pytest.fixture
def backup(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackupController:
    return BackupController(site, tmp_path, monkeypatch)


@pytest.mark.parametrize("left", [False, True], ids=["no socket", "a socket that nobody listens at"])
@pytest.mark.parametrize("name", ["prolog_slurmctld", "epilog_slurmctld"])
def test_hooks_of_a_backup_controller_find_the_engine(backup: BackupController, name: str, left: bool) -> None:
    if left:
        with socket.socket(socket.AF_UNIX) as old:
            old.bind(str(backup.socket))
    backup.run(name, ADMIN)
    assert backup.log == [], "it would say that the engine cannot be reached"


def test_hooks_of_other_hosts_are_none_of_a_controller(backup: BackupController) -> None:
    with pytest.raises(ForbiddenError, match=f"{STRANGER} is none; see engine.trusted_hosts"):
        backup.run("prolog_slurmctld", STRANGER)
    assert backup.log == []
