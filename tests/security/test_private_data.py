"""What Slurm's PrivateData keeps from a user, no request of the API tells him: asked by real peers of the socket."""

from __future__ import annotations

import json
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from others import open_directory
from unit.served import Served, until

from rmsplugin.adapters.rms.base import Overseers
from rmsplugin.api.routes import ROUTES, Route, Who, path_of
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.veil import NOT_TOLD, veiled
from rmsplugin.model.vjob import VJobState

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as other users")

S = VJobState
NOBODY = pwd.getpwnam("nobody")
#: Another user; by this name in Slurm alone.
SECRET, SECRET_UID = "mallory", 1
#: Ids from here on occur nowhere else.
FIRST_ID = 471100
#: Lists and single things that are for anyone.
READS = [route for route in ROUTES if route.method == "GET" and route.who is Who.ANYONE]


@dataclass
class Site:
    """An engine with a vjob of another user, one of nobody's that waits for it, and one that Slurm alone knows."""

    served: Served
    theirs: int
    own: int
    unmet: int

    def ask(self, path: str, method: str = "GET", body: object = None) -> tuple[int, str]:
        """Status and answer, as nobody gets them."""
        with as_nobody():
            status, answer = self.served.ask(method, path, body)
        return status, json.dumps(answer)

    def keep(self, *private: str) -> None:
        """Have Slurm keep these private, and the engine look."""
        self.served.world.rms.private = frozenset(private)
        self.served.world.tick()
        if "jobs" in private:
            until(lambda: secrets(self, page(self)) == [], "a page that was made since")


@contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(NOBODY.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with open_directory() as place:
        served = Served(place)
        try:
            yield inhabited(served)
        finally:
            served.close()


def inhabited(served: Served) -> Site:
    """The engine's site, once there is something to be told of both users."""
    world = served.world
    world.rms._last_id = FIRST_ID
    theirs = world.running(vms=2, cpus=2, user=SECRET, uid=SECRET_UID, name="secretname")
    own = world.submit(vms=2, cpus=2, user="nobody", uid=NOBODY.pw_uid, name="ownname")
    world.tick()
    reason = f"makes way for {theirs}: {SECRET} has waited longer"
    served.ledger.update_vjob(own, reason=reason)
    served.ledger.event("vjob-waiting", reason, vjob=str(own))
    world.ask(theirs, OperationKind.SUSPEND)
    world.until(theirs, S.SLEEPING)
    unmet = world.rms.submit(partition="vjob", user=SECRET, uid=SECRET_UID, name="secretname", held=True)
    world.cycle.run()
    return Site(served, theirs, own, unmet)


@pytest.fixture(autouse=True)
def nothing_is_kept_afterwards(site: Site) -> Iterator[None]:
    yield
    site.served.world.rms.known_overseers = Overseers()
    site.served.world.cycle.overseers.newest = Overseers()


def paths(site: Site, route: Route, job: int) -> list[str]:
    """Requests of this kind: of nothing, of a vjob, and with all that it may be asked for."""
    number = site.served.ledger.plans.plans(1)[-1].id
    path = path_of(route, {"id": str(job), "number": str(number), "name": "n1"})
    keys = {key.name for key in route.query}
    asked = [f"vjob={job}"] * ("vjob" in keys) + [f"user={SECRET}"] * ("user" in keys)
    asked += ["ended=1"] * ("ended" in keys) + ["dot=1&starts=1"] * ("dot" in keys) + ["node=n1"] * ("node" in keys)
    asked += [f"before={FIRST_ID * 2}"] * ("before" in keys)
    return [path, *(f"{path}?{each}" for each in asked)]


def secrets(site: Site, answer: str) -> list[str]:
    """What is in an answer that nobody may not know."""
    return [each for each in (SECRET, "secretname", str(site.theirs), str(site.unmet)) if each in answer]


@pytest.mark.parametrize("route", READS, ids=lambda route: route.name)
def test_no_request_tells_of_jobs_of_others(site: Site, route: Route) -> None:
    site.keep("jobs")
    for job in (site.theirs, site.own, site.unmet):
        for path in paths(site, route, job):
            status, answer = site.ask(path)
            told = [each for each in secrets(site, answer) if f"no vjob {each}" not in answer]
            assert told == [], f"{path}: {status} {answer}"


def test_there_is_something_to_be_told(site: Site) -> None:
    site.keep()
    telling = {
        route.name
        for route in READS
        for job in (site.theirs, site.own)
        for path in paths(site, route, job)
        if secrets(site, site.ask(path)[1])
    }
    lists = {"vjobs", "unmet", "vjob", "vms", "decisions", "events", "page", "plan"}
    assert lists <= telling, "or the test before shows nothing"


def test_ones_own_jobs_are_told(site: Site) -> None:
    site.keep("jobs")
    for path in ("/v1/vjobs", f"/v1/jobs/{site.own}", f"/v1/jobs/{site.own}/decisions", "/v1/events", "/v1/page"):
        status, answer = site.ask(path)
        assert (status, str(site.own) in answer) == (200, True), path
    site.served.ledger.update_vjob(site.own, reason=f"makes way for {site.theirs}")
    [event] = [each for each in json.loads(site.ask("/v1/events")[1])["events"] if "way" in each["message"]] or [None]
    assert event is None, "its sentence names another job"
    assert NOT_TOLD in site.ask("/v1/events")[1]


@pytest.mark.parametrize(
    "what", ["suspend", "resume", "migrate", "resize", "usage", "access", "decisions", "", "operation"]
)
def test_a_vjob_of_another_user_is_none(site: Site, what: str) -> None:
    site.keep("jobs")
    method = "POST" if what in ("suspend", "resume", "migrate", "resize") else "GET"
    body: dict[str, int] | None = None if method == "GET" else {"cpus": 1} if what == "resize" else {}
    path = f"/v1/jobs/{site.theirs}/{what}".rstrip("/")
    if what == "operation":
        path = "/v1/operations/1"
        assert site.served.ledger.operation(1).job_id == site.theirs
    status, answer = site.ask(path, method, body)
    if what == "migrate":
        assert (status, SECRET in answer) == (403, False)
        return
    assert (status, json.loads(answer)) == (404, {"error": f"no vjob {site.theirs}"})
    site.keep()
    assert site.ask(path, method, body)[0] in (200, 403), "else it is told whose it is"


def test_root_is_told_all(site: Site) -> None:
    site.keep("jobs", "nodes")
    for path in ("/v1/vjobs", "/v1/vms", "/v1/events", "/v1/plan", f"/v1/jobs/{site.theirs}"):
        assert str(site.theirs) in json.dumps(site.served.ask("GET", path)[1]), path
    assert site.served.ask("GET", "/v1/nodes")[1]["nodes"]


def test_operators_of_slurm_are_told_all_and_coordinators_of_their_accounts(site: Site) -> None:
    site.keep("jobs")
    rms, overseers = site.served.world.rms, site.served.world.cycle.overseers
    for known in (Overseers(operators=frozenset({"nobody"})), Overseers(coordinators={"users": frozenset({"nobody"})})):
        rms.known_overseers = known
        site.served.world.pass_time(301)
        site.served.world.tick()
        until(lambda known=known: overseers.newest == known, "the overseers")
        assert str(site.theirs) in site.ask("/v1/vjobs")[1]
        assert site.ask(f"/v1/jobs/{site.theirs}")[0] == 200
    overseers.newest = Overseers(coordinators={"others": frozenset({"nobody"})})
    assert site.ask(f"/v1/jobs/{site.theirs}")[0] == 404


def page(site: Site) -> str:
    site.served.service.page_changed()
    return site.ask("/v1/page")[1]


def test_where_nodes_are_private_none_is_told(site: Site) -> None:
    site.keep()
    assert json.loads(site.ask("/v1/nodes")[1])["nodes"] and "n1" in site.ask("/v1/page")[1]
    site.keep("nodes")
    assert json.loads(site.ask("/v1/nodes")[1]) == {"nodes": []}
    assert json.loads(site.ask("/v1/groups")[1]) == {"groups": []}
    until(lambda: "tells you of no nodes" in page(site), "a page that was made since")
    assert "n3" not in page(site)
    assert str(site.theirs) in site.ask("/v1/vjobs")[1], "jobs are not"


def test_where_only_events_of_nodes_are_private_those_of_vjobs_are_told(site: Site) -> None:
    site.served.ledger.event("node-silent", "n1 does not answer", node="n1")
    site.keep()
    assert "node-silent" in site.ask("/v1/events")[1]
    site.keep("events")
    told = site.ask("/v1/events")[1]
    assert ("node-silent" in told, str(site.theirs) in told) == (False, True)


# --- sentences ---


@pytest.mark.parametrize(
    "sentence",
    [
        "needs 9 CPUs and 9216 MiB in 9 VMs; 4 CPUs and 1.5 CPUs are free",
        "moved to node-12 at 10.0.0.3",
        "reserved to start in at most 300 s",
        "since 2026-11-29 10:31",
        "vjob 12 sleeps; vjob12-0 is on n1",
        "",
    ],
)
def test_a_sentence_of_its_own_job_is_told(sentence: str) -> None:
    assert veiled(sentence, ("12",)) == sentence


@pytest.mark.parametrize(
    "sentence", ["makes way for 13", "after 12_1, 14 and 3 more", "vjob13-0 is in the way", "(13)"]
)
def test_a_sentence_with_another_job_is_not(sentence: str) -> None:
    assert veiled(sentence, ("12",)) == NOT_TOLD


def test_where_jobs_are_private_a_cursor_is_that_of_the_users_own_events(site: Site) -> None:
    """Behind it comes nothing that was told, nor from before the time that was asked about; nothing of others shows."""
    site.keep("jobs")
    ledger = site.served.ledger
    newest = max(event.id for event in ledger.events(users={"nobody"}))
    ledger.event("vjob-waiting", "of another one", vjob=str(site.theirs))
    for asked in (f"from={time.time() + 60:.6f}", f"after={newest}", f"after={newest + 1000}", "limit=1"):
        told = json.loads(site.ask(f"/v1/events?{asked}")[1])
        assert told["cursor"].partition(":")[0] == str(newest), asked
    assert json.loads(site.ask(f"/v1/events?after={told['cursor']}")[1])["events"] == []
    of_own = json.loads(site.ask(f"/v1/events?vjob={site.own}&from={time.time() + 60:.6f}")[1])
    assert of_own["cursor"].partition(":")[0] == str(newest)
