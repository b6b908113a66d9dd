"""The live page as the engine serves it: to browsers, to proxies, and to nobody that a foreign page makes ask."""

from __future__ import annotations

import http.client
import os
import pwd
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from others import open_directory
from unit.served import ME, PATIENCE_S, Served

from rmsplugin.adapters.rms.base import Readings
from rmsplugin.engine.serve import live_pages
from rmsplugin.engine.serve.browsers import Browsers
from rmsplugin.engine.serve.live_pages import LivePages
from rmsplugin.engine.serve.waits import TooManyError
from rmsplugin.errors import ForbiddenError, SettingsError
from rmsplugin.live_page import drawing
from rmsplugin.live_page.scene import Act, Machine, Node, Scene, Viewer
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings.page import Page

NOBODY = pwd.getpwnam("nobody")
HOST = {"Host": "localhost:8080"}
HTML = {**HOST, "Accept": "text/html,*/*;q=0.8"}
EVENTS = {**HOST, "Accept": "text/event-stream"}

as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """An engine; a parameter has settings of its page."""
    with open_directory() as place:  # other users have to reach the socket
        served = Served(place, page=getattr(request, "param", None))
        yield served
        served.close()


def answer(served: Served, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers and text of the answer to a browser."""
    with served.connect() as connection:
        lines = [f"{method} {path} HTTP/1.1", "Content-Length: 0", *(f"{key}: {headers[key]}" for key in headers)]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        return response.status, dict(response.getheaders()), response.read().decode()


# -- what browsers get -------------------------------------------------------------------------------------------------


def test_a_browser_gets_a_document_and_other_programs_get_json(served: Served) -> None:
    served.add_vjob(12, ME, VJobState.RUNNING, job_name="<b>x</b>")
    served.world.cycle.run()
    status, headers, text = answer(served, "/v1/page", HTML)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert 'id="n-n1"' in text and "<b>x" not in text
    status, found = served.ask("GET", "/v1/page")
    assert (status, found["html"][:15]) == (200, "<!doctype html>")


def test_what_a_running_vm_was_seen_to_need_is_told(served: Served) -> None:
    served.world.cycle.run()
    served.add_vjob(12, ME, VJobState.RUNNING)
    served.add_vjob(13, ME, VJobState.PAUSED)
    for vm in ("vjob12-0", "vjob13-0"):
        served.ledger.update_vm(vm, centi_cpus=50, memory_demand_mib=256)
    assert "needed: 0.5 CPUs (1 of 2 VMs), 256 MiB (1 of 2 VMs)" in answer(served, "/v1/page", HTML)[2]


def test_a_saved_state_that_is_copied_is_no_vm_that_comes(served: Served) -> None:
    served.world.cycle.run()
    served.add_vjob(12, ME, VJobState.RUNNING)

    def states() -> dict[str, list[str]]:
        scene = served.service._answers.pages._make(1)
        return {node.name: [each.state for each in node.machines] for node in scene.nodes if node.machines}

    enter = partial(served.ledger.enter_phase, "vjob12-0")
    enter(VMPhase.MIGRATING, destination="n3")
    assert states() == {"n1": ["leaving"], "n3": ["arriving"]}
    enter(VMPhase.LIVE, host="n1")
    enter(VMPhase.SEALING, image_node="n1")
    enter(VMPhase.SEALED, image_bytes=1, image_blake2b="d")
    enter(VMPhase.SAVED)
    enter(VMPhase.MOVING, destination="n3")
    assert states() == {}


def test_a_node_that_did_not_change_is_drawn_once_for_all_who_look(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "FRESH_S", 0.0)
    names: list[str] = []
    box = drawing.box
    monkeypatch.setattr(drawing, "box", lambda node: names.append(node.name) or box(node))
    served.world.cycle.run()
    answer(served, "/v1/page", HTML)
    for job in (12, 13):
        served.add_vjob(job, ME)
        assert f">{job}<" in answer(served, "/v1/page", HTML)[2]
        assert len(names) == len(set(names)) > 0
    served.ask("GET", "/v1/page?scene=1")
    assert len(names) == len(set(names))


def test_vms_of_a_vjob_that_comes_while_a_page_is_made_are_on_the_next_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_pages, "FRESH_S", 0.0)
    served.world.cycle.run()
    served.add_vjob(12, ME, VJobState.RUNNING)
    with monkeypatch.context() as early:
        early.setattr(type(served.ledger), "vjobs", lambda *_, **__: [])
        status, _, text = answer(served, "/v1/page", HTML)
    assert (status, "0 VMs on" in text) == (200, True)
    served.service.page_changed()
    assert "1 VM on" in answer(served, "/v1/page", HTML)[2]


def test_the_queue_has_jobs_that_the_engine_has_not_met(served: Served) -> None:
    served.world.cycle.run()
    job = served.world.submit()
    served.world.cycle.seen = replace(served.world.cycle.seen, rms=served.world.rms.snapshot())
    assert f"<td>{job}</td>" in answer(served, "/v1/page", HTML)[2]


def test_what_a_switch_was_expected_to_take_is_unknown_until_the_last_ones_were_right(served: Served) -> None:
    served.world.until(served.world.submit(vms=1), VJobState.RUNNING)
    assert "<td>unknown</td>" in re.sub("<td[^>]*>", "<td>", answer(served, "/v1/page", HTML)[2])


def test_an_event_source_is_told_of_a_change_at_once_and_of_none_when_its_time_is_over(served: Served) -> None:
    served.ask("GET", "/v1/page")
    number = served.ask("GET", "/v1/page/news")[1]["number"]
    status, headers, text = answer(served, f"/v1/page/news?after={number}", EVENTS)
    assert (status, headers["Content-Type"], text) == (
        *(200, "text/event-stream; charset=utf-8"),
        "retry: 1000\n: nothing new\n\n",
    )
    waiting = served.send("GET", f"/v1/page/news?after={number}&wait=300")
    with waiting:
        waiting.settimeout(PATIENCE_S / 2)  # its own time is longer: it has to be woken
        threading.Timer(0.1, lambda: served.add_vjob(12, ME)).start()
        response = http.client.HTTPResponse(waiting)
        response.begin()
        assert f'"number": {number + 1}, "changed": true'.encode() in response.read()
    told = answer(served, f"/v1/page/news?after={number}", EVENTS)[2]
    assert told == f"retry: 1000\nevent: changed\ndata: {number + 1}\n\n"


def test_the_end_of_a_cycle_is_news(served: Served) -> None:
    number = served.ask("GET", "/v1/page")[1]["number"]
    served.service.page_changed()
    assert served.ask("GET", f"/v1/page/news?after={number}&wait=60")[1]["changed"]


def test_before_the_first_look_a_user_is_told_nothing_of_others(served: Served) -> None:
    served.add_vjob(12, NOBODY.pw_uid, job_name="secret")
    pages = served.service._answers.pages
    assert "secret" in pages.document(Viewer(), "")[1]
    assert "secret" not in pages.document(Viewer("alice", sees_all=False), "")[1]


@as_root
def test_where_jobs_are_private_the_peer_of_the_socket_is_who_looks(served: Served) -> None:
    served.world.rms.private = frozenset({"jobs"})
    served.add_vjob(12, ME, job_name="of-root")
    served.add_vjob(13, NOBODY.pw_uid, user="nobody", job_name="of-nobody")
    served.world.cycle.run()
    told = {who: ("of-root" in text, "of-nobody" in text) for who, text in both(served, HTML)}
    assert told == {"root": (True, True), "nobody": (False, True)}


def both(served: Served, headers: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The pages that root and nobody get."""
    yield "root", answer(served, "/v1/page", headers)[2]
    os.seteuid(NOBODY.pw_uid)
    try:
        yield "nobody", answer(served, "/v1/page", headers)[2]
    finally:
        os.seteuid(0)


# -- how often, and how many -------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pages_of(made: list[int], clock: Clock, **scene: object) -> LivePages:
    def make(number: int) -> Scene:
        made.append(number)
        return Scene(number=number, **scene)  # type: ignore[arg-type]

    return LivePages(make, clock)


def test_a_scene_is_made_once_a_second_at_most_and_only_after_a_change() -> None:
    made: list[int] = []
    clock = Clock()
    pages = pages_of(made, clock)
    first = pages.renew()
    assert pages.due_s is None
    pages.note_change()
    assert (pages.due_s, pages.renew(), len(made)) == (1.0, first, 1)
    clock.now += 1
    assert (pages.due_s, pages.renew(), pages.due_s, len(made)) == (0.0, first + 1, None, 2)


def test_while_vms_move_the_page_is_made_anew_without_a_change() -> None:
    made: list[int] = []
    clock = Clock()
    pages = pages_of(made, clock, acts=(Act("1", "u", "migrate", "vjob1-0", "n1", "n2", None, 0.0),))
    pages.renew()
    assert (pages.patience_s, pages.due_s) == (live_pages.PROGRESS_S, None)
    clock.now += live_pages.PROGRESS_S
    pages.renew()
    assert len(made) == 2


def test_a_change_while_a_scene_cannot_be_made_is_not_forgotten() -> None:
    fails = [True]

    def make(number: int) -> Scene:
        if fails.pop():
            raise OSError
        return Scene(number=number)

    pages = LivePages(make, Clock())
    with pytest.raises(OSError):
        pages.renew()
    fails.append(False)
    before = pages.number
    assert pages.renew() == before + 1


def test_viewers_who_see_the_same_share_a_document() -> None:
    pages = pages_of([], Clock())
    texts = [pages.document(Viewer(name, sees_all=False), "")[1] for name in ("alice", "bob")]
    assert texts[0] is texts[1]


def test_nodes_are_drawn_once_for_viewers_who_see_the_same_and_veiled_for_those_who_may_not() -> None:
    nodes = (Node("n1", "mixed", True, "", 4.0, 8192, (Machine("12", "bob", "render", 1.0, 1024, "running"),)),)
    pages = pages_of([], Clock(), nodes=nodes)
    alice, bob = (pages.scene(Viewer(name, sees_all=False), "") for name in ("alice", "bob"))
    assert alice is bob
    pages = pages_of([], Clock(), nodes=nodes, private=True)
    alice, bob = (pages.scene(Viewer(name, sees_all=False), "n1") for name in ("alice", "bob"))
    assert ["bob" in each.drawings[0].boxes for each in (alice, bob)] == [False, True]
    assert ["bob" in str(each.nodes) for each in (alice, bob)] == [False, True]


def test_a_drawing_is_kept_until_something_has_changed() -> None:
    clock = Clock()
    pages = pages_of([], clock, nodes=(Node("n1", "mixed", True, "", 4.0, 8192),))
    first = pages.scene(Viewer(), "")
    pages.note_change()
    clock.now += 1.0
    assert pages.scene(Viewer(), "").number == first.number + 1


def test_so_many_pages_may_wait_and_no_more() -> None:
    pages = pages_of([], Clock())
    waiting = [pages.waiting() for _ in range(live_pages.MOST_WAITING + 1)]
    for each in waiting[:-1]:
        each.__enter__()
    with pytest.raises(TooManyError), waiting[-1]:
        pass
    waiting[0].__exit__(None, None, None)
    with pages.waiting():
        pass


# -- foreign pages, and proxies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "engine", "a.localhost", "%2Frun%2Fa.sock", ""],
)
def test_a_request_by_a_name_of_this_host_is_taken(host: str) -> None:
    Browsers().refuse_foreign("GET", {"Host": host})


@pytest.mark.parametrize(
    "given",
    [
        {"Host": "evil.example:8080"},  # its name server says 127.0.0.1
        {"Host": "evil.example."},
        {"Host": "10.0.0.5:8080"},
        {"Host": "[2001:db8::1]:8080"},
        {**HOST, "Origin": "https://evil.example"},
        {**HOST, "Origin": "null"},
        {**HOST, "Origin": "http://localhost:9090"},
        {**HOST, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {**HOST, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
    ids=str,
)
def test_what_a_foreign_page_may_make_a_browser_ask_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ForbiddenError):
        Browsers().refuse_foreign("GET", given)


def test_a_link_of_another_site_opens_the_page_and_its_form_gives_no_order() -> None:
    visit = {**HOST, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    Browsers().refuse_foreign("GET", visit)
    with pytest.raises(ForbiddenError):
        Browsers().refuse_foreign("POST", visit)


def test_names_of_the_settings_are_taken_as_host_and_as_origin() -> None:
    browsers = Browsers(Page(hosts=("portal.example.org",)))  # type: ignore[call-arg]
    browsers.refuse_foreign("GET", {"Host": "portal.example.org", "Origin": "https://portal.example.org"})
    browsers.refuse_foreign("GET", {"Host": "localhost", "Origin": "https://portal.example.org"})


def test_no_order_is_taken_from_a_page_of_another_site(served: Served) -> None:
    for headers in ({"Host": "evil.example"}, {**HOST, "Origin": "https://evil.example"}):
        status, _, text = answer(served, "/v1/pause", headers, "POST")
        assert status == 403 and "error" in text
    assert served.ask("GET", "/v1/status")[1]["paused"] is None


@as_root
@pytest.mark.parametrize("served", [Page(proxies=("nobody",))], indirect=True)  # type: ignore[call-arg]
def test_a_proxy_asks_for_whom_it_names_and_for_the_page_alone(served: Served) -> None:
    served.world.rms.private = frozenset({"jobs"})
    served.add_vjob(12, 1, user=pwd.getpwuid(1).pw_name, job_name="of-daemon")
    served.world.cycle.run()
    os.seteuid(NOBODY.pw_uid)
    try:
        named = {**HTML, "X-Remote-User": pwd.getpwuid(1).pw_name}
        assert "of-daemon" in answer(served, "/v1/page", named)[2]
        assert "of-daemon" not in answer(served, "/v1/page", {**HTML, "X-Remote-User": "nobody"})[2]
        for path, headers, method in (
            ("/v1/page", HTML, "GET"),
            ("/v1/page", {**HTML, "X-Remote-User": "no such user"}, "GET"),
            ("/v1/vjobs", named, "GET"),
            ("/v1/pause", named, "POST"),
        ):
            assert answer(served, path, headers, method)[0] == 403
    finally:
        os.seteuid(0)


def test_a_header_of_somebody_who_is_no_proxy_means_nothing(served: Served) -> None:
    assert Browsers().caller(ME, route_of_page(served), {"X-Remote-User": "root"}) == ME


def route_of_page(served: Served) -> object:
    return next(each.route for each in served.service._answers.table() if each.route.name == "page")


def test_a_proxy_has_an_account_of_its_own() -> None:
    for name in ("root", "no such account"):
        with pytest.raises(SettingsError):
            Browsers(Page(proxies=(name,)), {0})  # type: ignore[call-arg]


def test_energy_is_told_as_it_is_measured(served: Served) -> None:
    world = served.world
    world.rms.nodes["n1"] = replace(world.rms.nodes["n1"], readings=Readings(watts=310))
    world.cycle.run()
    assert "<p>Measured: 310 W on 1 node.</p>" in answer(served, "/v1/page", HTML)[2]
