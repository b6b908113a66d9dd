"""Every manager answers every request: by the engine that owns what is asked about, wherever that is."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from unit.manager.managed import Managed
from unit.served import ME, Served

from rmsplugin.api.binding import Engine
from rmsplugin.api.routes import ROUTES
from rmsplugin.cli.main import main
from rmsplugin.client import EngineClient
from rmsplugin.energy.lateness import Lateness, LateSums
from rmsplugin.engine.context.durations import MeasuredDuration
from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.serve import routes, views
from rmsplugin.engine.serve.asked import Asked
from rmsplugin.engine.serve.doors import LOCAL, Origin
from rmsplugin.engine.serve.live_pages import LivePages
from rmsplugin.engine.serve.parsing import Body, Query
from rmsplugin.errors import RefusedError
from rmsplugin.groups.given import Place
from rmsplugin.live_page.scene import Scene, Viewer
from rmsplugin.live_page.values import FORM, scene_of, values_of
from rmsplugin.manager import entry, merging
from rmsplugin.manager.handing import Handed
from rmsplugin.manager.site_page import SitePage
from rmsplugin.manager.where import WHERE
from rmsplugin.model.vjob import VJobState

_PAGES = {"": "", "a": "?group=a", "b": "?group=b"}


def test_every_request_of_the_api_has_an_engine_or_several() -> None:
    assert WHERE.keys() == {route.name for route in ROUTES}


def test_a_vjob_is_asked_about_where_it_is(manager: Managed) -> None:
    for job in ("12", "13", "14", "30_1"):
        status, answer = manager.ask("GET", f"/v1/jobs/{job}")
        assert (status, answer["vjob"]["display_id"]) == (200, job)


def test_an_element_of_an_array_is_found_by_the_id_that_slurm_gave_it(manager: Managed) -> None:
    for _ in range(2):
        status, answer = manager.ask("POST", "/v1/jobs/31/epilog")
        assert (status, answer["reason"]) == (200, "for a test")


def test_hooks_of_many_elements_ask_for_their_arrays_once_and_only_groups_that_may_have_them(
    manager: Managed, engines: dict[str, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    elements = range(41, 61)
    for index, job in enumerate(elements):
        engines["b"].add_vjob(job, ME, display_id=f"30_{index + 2}")
    del manager.placed.given.vjobs[12], manager.placed.given.vjobs[14]
    manager.placed.given.vjobs[70] = Place("a")
    asked: list[str] = []
    ask_each = manager.entry._hands.ask_each

    async def counted(requests: Mapping[str, Handed], within_s: float) -> Any:
        asked.extend(group for group, each in requests.items() if each.target.startswith("/v1/vjobs?"))
        return await ask_each(requests, within_s)

    monkeypatch.setattr(manager.entry._hands, "ask_each", counted)
    with ThreadPoolExecutor(len(elements)) as hooks:
        told = list(hooks.map(lambda job: manager.ask("POST", f"/v1/jobs/{job}/epilog"), elements))
    assert {(status, answer["reason"]) for status, answer in told} == {(200, "for a test")}
    assert asked == ["b"]


def test_an_element_whose_array_is_known_does_not_wait_for_a_group_that_is_silent_about_another(
    manager: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert manager.ask("POST", "/v1/jobs/31/epilog")[0] == 200, "now its array is known"
    asked, answers = threading.Event(), threading.Event()
    ask_each = manager.entry._hands.ask_each

    async def silent(requests: Mapping[str, Handed], within_s: float) -> Any:
        if any(each.target.startswith("/v1/vjobs?") for each in requests.values()):
            asked.set()
            await asyncio.to_thread(answers.wait, PATIENCE_S)
        return await ask_each(requests, within_s)

    monkeypatch.setattr(manager.entry._hands, "ask_each", silent)
    with ThreadPoolExecutor(1) as hooks:
        other = hooks.submit(manager.ask, "POST", "/v1/jobs/40/epilog")
        assert asked.wait(PATIENCE_S)
        try:
            assert manager.ask("POST", "/v1/jobs/31/epilog")[1]["reason"] == "for a test"
            assert not other.done()
        finally:
            answers.set()
        other.result()


def test_an_element_is_found_after_slurm_has_begun_its_job_ids_again(
    manager: Managed, engines: dict[str, Served]
) -> None:
    """Its id is then lower than that of its array."""
    manager.placed.given.vjobs[998_000] = Place("b")
    engines["b"].add_vjob(1, ME, display_id="998000_7")
    status, answer = manager.ask("POST", "/v1/jobs/1/epilog")
    assert (status, answer["reason"]) == (200, "for a test")
    Path(engines["b"].socket).unlink()
    assert manager.ask("POST", "/v1/jobs/2/prolog")[0] == 503


def test_an_epilog_of_a_job_that_no_group_has_needs_no_group_that_is_silent(
    manager: Managed, engines: dict[str, Served]
) -> None:
    """Its answer lets no job begin."""
    Path(engines["b"].socket).unlink()
    assert manager.ask("POST", "/v1/jobs/99/epilog")[0] == 200


def test_a_hook_of_an_element_whose_group_does_not_answer_is_told_to_ask_again(
    manager: Managed, engines: dict[str, Served]
) -> None:
    """Another group would say that the job is waiting: then its prolog lets it start."""
    Path(engines["b"].socket).unlink()
    assert manager.ask("POST", "/v1/jobs/31/prolog")[0] == 503


def test_a_wrapper_whose_job_no_group_has_is_told_to_ask_again(manager: Managed) -> None:
    assert manager.ask("POST", "/v1/jobs/99/attached")[0] == 503
    assert manager.ask("GET", "/v1/jobs/99")[0] == 404


def test_a_job_that_no_group_has_is_told_of_by_the_engine_that_remembers_it_or_as_of_one_that_nobody_knows(
    manager: Managed, engines: dict[str, Served]
) -> None:
    engines["b"].add_vjob(77, ME, VJobState.TERMINATED)
    for each in engines.values():
        each.world.tick()
    assert manager.ask("GET", "/v1/jobs/77")[1]["vjob"]["state"] == "terminated"
    assert manager.ask("GET", "/v1/jobs/77/decisions") == (200, {"decisions": []})
    status, answer = manager.ask("POST", "/v1/jobs/77/suspend")
    assert status == 409 and "terminated" in answer["error"], "and not that there is none"
    assert manager.ask("GET", "/v1/jobs/99") == (404, {"error": "no vjob 99"})
    new = engines["b"].world.submit(vms=1)
    answer = manager.ask("GET", f"/v1/jobs/{new}")[1]["vjob"]
    assert (answer["state"], answer["reason"].partition(":")[0]) == ("waiting", "no group has it yet")
    assert engines["a"].world.submit(vms=1) == new, "Slurm tells both engines of it"
    engines["b"].world.tick()
    assert "no group has it" not in manager.ask("GET", f"/v1/jobs/{new}")[1]["vjob"]["reason"]
    Path(engines["b"].socket).unlink()
    status, answer = manager.ask("GET", "/v1/jobs/99")
    assert status == 503 and answer["error"].startswith("no group has a vjob 99, but group b does not answer: ")


def test_what_an_operator_prefers_is_kept_by_the_engine_of_the_vjobs_group(
    manager: Managed, engines: dict[str, Served]
) -> None:
    for each in engines.values():
        each.world.tick()
    owner = next(each for each in engines.values() if 12 in {row.job_id for row in each.ledger.vjobs()})
    kept = {"vjobs": ["12"], "refused": {}}
    assert manager.ask("POST", "/v1/jobs/12/prefer", b'{"state": "sleeping"}') == (200, kept)
    assert owner.ledger.vjob(12).preference == "sleeping"
    assert manager.ask("GET", "/v1/jobs/12")[1]["vjob"]["preference"] == "sleeping"
    assert manager.ask("POST", "/v1/jobs/99/prefer", b'{"state": "running"}')[0] == 404


def test_lists_have_what_all_groups_have_in_the_order_of_one(manager: Managed) -> None:
    assert [each["job_id"] for each in manager.ask("GET", "/v1/vjobs")[1]["vjobs"]] == [12, 13, 14, 31]
    assert [each["vjob"] for each in manager.ask("GET", "/v1/vms")[1]["vms"]] == ["12", "13", "14", "30_1"]
    for path in (
        "/v1/nodes",
        "/v1/groups",
        "/v1/cycles",
        "/v1/schedule",
        "/v1/states",
        "/v1/config",
        "/v1/openapi.json",
    ):
        assert manager.ask("GET", path)[0] == 200


def test_a_page_is_that_of_all_groups_or_of_one(manager: Managed, engines: dict[str, Served]) -> None:
    for each in engines.values():
        each.world.tick()
    pages = {group: manager.ask("GET", f"/v1/page{query}")[1]["html"] for group, query in _PAGES.items()}
    drawn = {group: page.count('<li class="node') for group, page in pages.items()}
    assert drawn == {"": 6, "a": 3, "b": 3}  # the engines of the test see three nodes each
    titles = [f'<a href="?group={name}">Group {name}</a> (3)' for name in "ab"]
    assert all(title in pages[""] for title in titles) and "?group=" not in pages["b"]
    assert "Group a: The engine on " in pages[""]
    assert all(f">{job}<" in pages[""] or f">{job} " in pages[""] for job in ("14", "13", "30_1"))
    assert "Its state is " in manager.ask("GET", "/v1/page?node=n2")[1]["html"]
    assert manager.ask("GET", "/v1/page?group=c")[0] == 404
    assert manager.ask("GET", "/v1/page/news?group=b")[1]["changed"]


def test_a_page_of_all_groups_is_another_one_when_that_of_a_group_is(
    manager: Managed, engines: dict[str, Served]
) -> None:
    for each in engines.values():
        each.world.tick()
    time.sleep(1.1)  # pages are made anew once in a second
    number = manager.ask("GET", "/v1/page")[1]["number"]
    for _ in range(10):  # pages of one user that wait at once are counted
        assert manager.ask("GET", f"/v1/page/news?after={number}") == (200, {"number": number, "changed": False})
    engines["b"].add_vjob(44, ME)
    news = manager.ask("GET", f"/v1/page/news?after={number}&wait=15")[1]
    assert news["changed"] and news["number"] != number
    assert ">44<" in manager.ask("GET", "/v1/page")[1]["html"]


def test_a_group_whose_engine_is_silent_is_named_on_the_page(manager: Managed, engines: dict[str, Served]) -> None:
    for each in engines.values():
        each.world.tick()
    Path(engines["b"].socket).unlink()
    page = manager.ask("GET", "/v1/page")[1]["html"]
    assert "group b is missing on this page: " in page
    assert "?group=a" in page and "?group=b" not in page
    Path(engines["a"].socket).unlink()
    assert manager.ask("GET", "/v1/page")[0] == 503


@pytest.mark.parametrize("tells", ["nothing", "a scene of another form", "a scene of a newer form"])
def test_a_page_without_a_group_whose_engine_is_of_another_release_is_not_asked_for_again_and_again(
    manager: Managed, engines: dict[str, Served], monkeypatch: pytest.MonkeyPatch, tells: str
) -> None:
    """Its news are told all the same. If the page had another number than they, a browser would ask without a pause."""
    for each in engines.values():
        each.world.tick()
    newest, newer = LivePages.scene, list[Scene]()

    def values(scene: Scene) -> dict[str, Any]:
        return {**values_of(scene), **({"form": FORM + 1} if any(scene is each for each in newer) else {})}

    def scene(pages: LivePages, viewer: Viewer, node: str) -> Any:
        found = newest(pages, viewer, node)
        if pages is not engines["b"].service._answers.pages:
            return found
        if tells == "nothing":
            raise RefusedError("there is no such key: scene")
        if tells.endswith("newer form"):
            newer.append(found)
            return found
        return make_dataclass("Other", ["number", "nodes"])(found.number, "n[1-3]")

    monkeypatch.setattr(LivePages, "scene", scene)
    monkeypatch.setattr(routes, "values_of", values)
    page = manager.ask("GET", "/v1/page")[1]
    assert "group b is missing on this page: " in page["html"]
    assert ("of a newer release than the manager on " in page["html"]) == bool(newer)
    assert f'data-number="{page["number"]}"' in page["html"]
    news = manager.ask("GET", f"/v1/page/news?after={page['number']}")
    assert news == (200, {"number": page["number"], "changed": False})


def test_a_scene_of_a_release_that_names_no_form_is_read() -> None:
    values = values_of(Scene(number=7))
    assert values.pop("form") == FORM
    assert scene_of(values) == Scene(number=7)


def test_engines_are_told_from_which_host_a_page_of_all_groups_is_asked_for(
    manager: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root of another host must not see what root of an engine's sees."""
    handed: list[str] = []

    async def ask_each(requests: Mapping[str, Handed], within_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
        handed.extend(each.origin for each in requests.values())
        return {}, {}

    monkeypatch.setattr(manager.entry._hands, "ask_each", ask_each)
    for origin in (LOCAL, Origin.of("10.0.0.9", "10.0.0.1")):
        asked = Asked(0, {}, Query.parse("/v1/page/news", ()), Body.parse(b"", ()), origin)
        asyncio.run(SitePage(manager.entry._page_parts, lambda: None).news(asked))  # type: ignore[arg-type,return-value]
    assert handed == ["", "", "10.0.0.9", "10.0.0.9"]


def test_durations_as_measured_are_told_by_who_measured_most(manager: Managed, engines: dict[str, Served]) -> None:
    for name, count in (("a", 40), ("b", 12)):
        measured = MeasuredDuration("suspend", {"suspend_s": float(count)}, count, 1_763_700_000.0 + count)
        engines[name].world.context.durations.measured = {"suspend": measured}
    engines["a"].world.context.durations.measured |= {"run": MeasuredDuration("run", {"run_s": 4.0}, 7, 6.0)}
    engines["b"].world.context.durations.measured |= {"run": MeasuredDuration("run", {"run_s": 3.0}, 10, 5.0)}
    assert manager.ask("GET", "/v1/config")[1]["measured"] == {
        "durations.suspend_s": {"value": 40.0, "count": 40, "since": 1_763_700_040.0},
        "durations.run_s": {"value": 3.0, "count": 10, "since": 5.0},
    }
    told = manager.ask("GET", "/v1/status")[1]["durations"]
    assert {each["action"]: each["count"] for each in told} == {"suspend": 40, "run": 10}
    Path(engines["a"].socket).unlink()
    assert manager.ask("GET", "/v1/config")[1]["measured"]["durations.suspend_s"]["count"] == 12


def test_the_next_context_switch_is_that_of_all_groups(manager: Managed, engines: dict[str, Served]) -> None:
    jobs = [each.world.submit(vms=1) for each in engines.values()]
    for each in engines.values():
        each.world.tick()
    status, answer = manager.ask("GET", "/v1/plan")
    assert status == 200, answer
    assert {str(job) for job in jobs} <= answer["now"].keys() | answer["decision"].keys() | answer["left_out"].keys()


def test_the_command_shows_the_next_context_switch_of_all_groups(
    manager: Managed,
    engines: dict[str, Served],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for each in engines.values():
        each.world.tick()
    (tmp_path / "site.toml").write_text(f'[engine]\nsocket = "{manager.socket}"\n[slurm]\n')
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(tmp_path / "site.toml"))
    assert main(["plan", "--live"]) == 0
    assert "proven lower bound" in capsys.readouterr().out
    assert main(["plan", "--live", "--dot", "-"]) == 0
    assert capsys.readouterr().out.count("digraph ") == len(engines)


def test_plans_of_groups_stand_beside_each_other_pool_by_pool() -> None:
    def preview(cost: int, pools: list[list[str]], **more: Any) -> dict[str, Any]:
        span = {"pools": float(cost), "dependencies": 1.0}
        plan = {"pools": pools, "cost": cost, "lower_bound": cost - 1, "optimal": cost == 1, "makespan_s": span}
        empty: dict[str, Any] = {key: {} for key in ("decision", "target", "now", "left_out", "out_of_reach")}
        words = dict.fromkeys(("sentence", "fault", "fallback", "summary"), "")
        return {**empty, **words, "plan": plan, "steps": [], "paused": None, "time": 1.0, **more}

    two = {"a": preview(1, [["a1", "a2"]]), "b": preview(5, [["b1"], ["b2"]])}
    assert merging.merged("plan", two, 1)["plan"] == {
        "pools": [["a1", "a2", "b1"], ["b2"]],
        **{"cost": 6, "lower_bound": 4, "optimal": False, "makespan_s": {"pools": 5.0, "dependencies": 1.0}},
    }
    none = preview(1, [], plan=None)
    mixed = {"c": none, **two, "d": {**none, "fault": "a step is wrong"}}
    mixed["a"]["fault"] = "the solver failed"
    told = merging.merged("plan", mixed, 1)
    assert told["plan"]["cost"] == 6
    assert told["undecided"] == {"c": "nothing could be decided", "d": "a step is wrong"}
    assert told["fault"] == "a: the solver failed"
    told = merging.merged("plan", {"c": none, "d": none}, 1)
    assert (told["plan"], told["fault"]) == (None, "c: nothing could be decided; d: nothing could be decided")
    assert "undecided" not in told


def test_the_command_shows_the_plan_of_the_groups_that_have_one_and_says_why_others_have_none(
    manager: Managed,
    engines: dict[str, Served],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for each in engines.values():
        each.world.tick()
    (tmp_path / "site.toml").write_text(f'[engine]\nsocket = "{manager.socket}"\n[slurm]\n')
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(tmp_path / "site.toml"))
    cycle = engines["b"].world.cycle
    found = cycle.preview()
    without = replace(found, prepared=replace(found.prepared, proposal=None, steps=(), fault="the solver failed"))
    monkeypatch.setattr(cycle, "preview", lambda: without)
    assert main(["plan", "--live"]) == 1
    told = capsys.readouterr()
    assert "proven lower bound" in told.out
    assert told.err == "rmsplugin plan: group b has no plan: the solver failed\n"


def test_pages_of_vjobs_have_each_vjob_once(
    manager: Managed, engines: dict[str, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOST_AT_ONCE", 10)
    many = [*range(100, 140), *range(500, 505)]
    for job in many:
        engines["a" if job % 3 else "b"].add_vjob(job, ME)
    seen, after = [], 0
    for _ in range(9):
        page = manager.ask("GET", f"/v1/vjobs?after={after}")[1]
        seen += [each["job_id"] for each in page["vjobs"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == [12, 13, 14, 31, *many]


def test_the_newest_that_have_ended_are_those_of_all_groups(manager: Managed, engines: dict[str, Served]) -> None:
    for job in range(100, 110):
        engines["a" if job % 2 else "b"].add_vjob(job, ME, VJobState.TERMINATED, submitted=float(job))
    answer = manager.ask("GET", "/v1/vjobs?ended=1&limit=3")[1]
    assert [each["job_id"] for each in answer["vjobs"] if each["state"] == "terminated"] == [107, 108, 109]
    assert (answer["ended"], answer["more"], answer["older"]) == (3, True, 107)
    assert manager.ask("GET", "/v1/vjobs?before=105")[0] == 409, "it has offered no such page"


def test_pages_of_older_vjobs_have_each_that_ended_once(manager: Managed, engines: dict[str, Served]) -> None:
    for job in range(100, 120):
        engines["a" if job % 3 else "b"].add_vjob(job, ME, VJobState.TERMINATED, submitted=1.7e9 + job // 4 * 0.1)
    pages, older = [], ""
    while older is not None:
        answer = manager.ask("GET", f"/v1/vjobs?ended=1&limit=3{older}")[1]
        pages.append([each["job_id"] for each in answer["vjobs"] if each["state"] == "terminated"])
        older = f"&before={answer['older']}" if answer["older"] else None
    assert [job for page in reversed(pages) for job in page] == [*range(100, 120)]
    assert {len(page) for page in pages[:-1]} == {3}


@pytest.mark.parametrize("deaths", [1, 2])
def test_pages_of_older_vjobs_are_asked_for_anew_once_where_another_manager_answers(
    manager: Managed, engines: dict[str, Served], monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """A manager dies between two pages: the next one has offered none."""
    for job in range(100, 120):
        engines["a" if job % 3 else "b"].add_vjob(job, ME, VJobState.TERMINATED, submitted=float(job))
    monkeypatch.setattr(entry, "_ROWS", 6)
    asked: list[str] = []

    class Dying(EngineClient):
        def request(self, method: str, path: str, *words: Any, **options: Any) -> dict[str, Any]:
            asked.append(path)
            if sum("before" in each for each in asked) <= deaths:
                manager.entry._submitted.clear()
            return super().request(method, path, *words, **options)

    binding = Engine([Dying.unix(manager.socket)])
    if deaths > 1:
        with pytest.raises(RefusedError, match="begin with the first one"):
            binding.vjobs(ended=20)
        return
    assert [each["job_id"] for each in binding.vjobs(ended=20)][-20:] == [*range(100, 120)]
    assert sum("before" not in each for each in asked) == 2


def test_events_of_all_groups_are_in_the_order_of_time_and_go_on_from_a_number(
    manager: Managed, engines: dict[str, Served]
) -> None:
    for number in range(4):
        engines["ab"[number % 2]].ledger.event("test", f"number {number}", vjob="12")
        for each in engines.values():
            each.world.pass_time(1.0)
    events = [each for each in manager.ask("GET", "/v1/events")[1]["events"] if each["kind"] == "test"]
    assert [each["message"] for each in events] == [f"number {number}" for number in range(4)]
    later = manager.ask("GET", f"/v1/events?since={events[1]['id']}")[1]["events"]
    assert [each["message"] for each in later] == ["number 2", "number 3"]
    assert len(manager.ask("GET", "/v1/events?limit=3")[1]["events"]) == 3


def test_numbers_of_operations_tell_the_group(manager: Managed, engines: dict[str, Served]) -> None:
    for name, job in (("a", 12), ("b", 13)):
        engines[name].ledger.begin_operation(job, OperationKind.SUSPEND, "test")
        number = manager.ask("GET", f"/v1/jobs/{job}")[1]["vjob"]["operation"]["id"]
        answer = manager.ask("GET", f"/v1/operations/{number}")[1]
        assert (answer["vjob"], answer["id"]) == (str(job), number)
    assert manager.ask("GET", "/v1/operations/1999")[0] == 404


def test_a_pause_is_one_of_all_groups_and_status_tells_of_it(manager: Managed, engines: dict[str, Served]) -> None:
    assert manager.ask("POST", "/v1/pause")[1]["changed"]
    assert all(each.ledger.plans.pause for each in engines.values())
    status = manager.ask("GET", "/v1/status")[1]
    assert (status["epoch"], bool(status["paused"])) == (3, True)
    assert manager.ask("POST", "/v1/unpause")[1]["changed"]


def test_status_tells_how_late_the_vjobs_of_the_group_are_that_are_the_latest(
    manager: Managed, engines: dict[str, Served]
) -> None:
    assert manager.ask("GET", "/v1/status")[1]["lateness"] is None
    for late_s, served in enumerate(engines.values()):
        sums = LateSums(late_s=float(late_s), vjobs_s=100.0, seen_s=1.0)
        served.world.cycle.powering.felt.lateness = Lateness(0.02, sums)
    lateness = manager.ask("GET", "/v1/status")[1]["lateness"]
    assert lateness["share"] == (len(engines) - 1) / 100
    assert lateness["sentence"].startswith(f"group {[*engines][-1]}: vjobs spent ")


def test_where_one_engine_is_dead_orders_say_so_and_lists_are_those_of_the_others(
    manager: Managed, engines: dict[str, Served], tmp_path: Path
) -> None:
    Path(engines["b"].socket).unlink()
    answer = manager.ask("GET", "/v1/vjobs")[1]
    assert ([each["job_id"] for each in answer["vjobs"]], answer["silent"]) == ([12, 14], ["b"])
    status, answer = manager.ask("POST", "/v1/pause")
    assert status == 503 and answer["error"].startswith("done in a, but not everywhere; do it again. group b: ")
    assert manager.ask("GET", "/v1/jobs/13")[0] == 503
    assert manager.ask("GET", "/v1/jobs/12")[0] == 200
    assert manager.ask("GET", "/v1/status")[0] == 200


def test_orders_about_nodes_go_to_their_group_and_unknown_ones_nowhere(manager: Managed) -> None:
    status, answer = manager.ask("POST", "/v1/nodes/m1/back")
    assert (status, "no group" in answer["error"]) == (404, False), "the simulated cluster has no such node"
    assert manager.ask("POST", "/v1/nodes/n1/gone")[0] == 503, "its engine has not looked yet"
    status, answer = manager.ask("POST", "/v1/nodes/x9/gone")
    assert (status, answer["error"]) == (404, "no group has a node x9; `rmsplugin groups` lists them")


def test_what_is_held_back_is_confirmed_where_it_is(manager: Managed) -> None:
    both = json.dumps({"vjobs": ["12", "13"]}).encode()
    assert manager.ask("POST", "/v1/confirm", both) == (200, {"confirmed": []})
    assert manager.ask("POST", "/v1/confirm", b'{"vjobs": ["77"]}')[0] == 404


def test_an_engine_decides_who_may_and_its_words_arrive(manager: Managed, engines: dict[str, Served]) -> None:
    engines["a"].add_vjob(50, ME + 1)
    engines["a"].ledger.event("x", "y")
    manager.placed.given.vjobs[50] = manager.placed.given.vjobs[12]
    status, answer = manager.ask("POST", "/v1/jobs/12/suspend?x=1")
    assert (status, "x" in answer["error"]) == (400, True)
    assert manager.ask("GET", "/v1/reports/1000")[0] == 409


def test_a_group_is_handed_over_by_the_manager_itself(manager: Managed) -> None:
    assert manager.ask("POST", "/v1/handover", b"{}")[0] == 409
    assert manager.ask("POST", "/v1/handover", b'{"group": "x"}')[0] == 404
    assert manager.ask("POST", "/v1/handover", b'{"group": "a b"}')[0] == 400
    assert manager.kept == []
    status, answer = manager.ask("POST", "/v1/handover", b'{"group": "a", "to": "any"}')
    assert (status, answer["to"], answer["group"]) == (200, "", "a")
    assert [wish[:2] for wish in manager.kept] == [("a", "")]


def test_a_report_on_request_is_of_all_groups_whichever_engine_makes_it(
    manager: Managed, engines: dict[str, Served], tmp_path: Path
) -> None:
    for name, each in engines.items():
        (tmp_path / "shared" / "groups" / name).mkdir(parents=True)
        ledger_care.backup(each.ledger.path, tmp_path / "shared" / "groups" / name / "ledger-3.sqlite")
    for dead in (False, True):
        if dead:
            Path(engines["a"].socket).unlink()
        number = manager.ask("POST", "/v1/reports", b"{}")[1]["report"]
        assert number % 1000 == int(dead), "the first group's engine makes it, or the next one"
        while not (told := manager.ask("GET", f"/v1/reports/{number}?wait=10")[1])["made"]:
            pass
        ids = [json.loads(line)["id"] for line in told["text"].splitlines()[1:]]
        assert (told["bytes"], ids) == (len(told["text"]), ["12", "13", "14", "30_1"])
    asked = json.dumps({"jobs": ["77"]}).encode()
    number = manager.ask("POST", "/v1/reports", asked)[1]["report"]
    while (answer := manager.ask("GET", f"/v1/reports/{number}?wait=10"))[0] == 200:
        pass
    assert answer == (404, {"error": "the ledger has no job 77"})


def test_a_request_that_waits_is_answered_when_its_engine_answers(manager: Managed, engines: dict[str, Served]) -> None:
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.settimeout(30)
        waiting.connect(manager.socket)
        waiting.sendall(b"GET /v1/jobs/13/access?wait=100 HTTP/1.1\r\nHost: x\r\n\r\n")
        while not engines["b"].waiting:
            time.sleep(0.01)
        waiting.shutdown(socket.SHUT_RDWR)
    while engines["b"].waiting:
        time.sleep(0.01)
