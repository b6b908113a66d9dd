"""The live page in a real browser: it follows the engine, draws moves, and is there for everybody."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_scenes import HOSTILE, scene
from page.browser import Browser, browser
from page.live import engine
from page.reading import tab_to
from unit.served import ME, Served

from rmsplugin.engine.serve.live_pages import LivePages
from rmsplugin.live_page.scene import Scene
from rmsplugin.model.vjob import VJobState

SIZES = {"phone": 390, "tablet": 820, "wide": 1600}


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Served, str]]:
    with engine(tmp_path) as found:
        yield found


def show(served: Served, shown: Scene) -> None:
    """Have the engine's page show this, from the next question on."""
    pages = served.service._answers.pages
    pages._make = lambda number: replace(shown, number=number)
    served.service.page_changed()


# -- the engine is followed --------------------------------------------------------------------------------------------


def test_the_page_shows_a_new_vjob_without_being_loaded_again(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    window.open(address)
    window.value("window.same = true")
    served.add_vjob(4711, ME, VJobState.RUNNING, job_name="appeared")
    window.wait_for("document.body.textContent.includes('4711')")
    assert window.value("window.same && document.getElementById('news').textContent").startswith(
        "This page follows the engine."
    )
    assert window.console == []


def test_a_move_is_drawn_from_node_to_node(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    window.open(address)
    assert window.value("document.querySelectorAll('.ways path').length") == 0
    show(served, scene())
    window.wait_for("document.querySelectorAll('.ways path').length === 1")
    ends = window.value(
        """(() => {
            const [one, other] = ['n-n1', 'n-n3'].map((id) => document.getElementById(id));
            const way = document.querySelector('.ways path'), last = way.getPointAtLength(way.getTotalLength());
            const first = way.getPointAtLength(0);
            const inside = (point, box) => point.x > box.offsetLeft && point.x < box.offsetLeft + box.offsetWidth
                && point.y > box.offsetTop && point.y < box.offsetTop + box.offsetHeight;
            return [inside(first, one), inside(last, other)];
        })()"""
    )
    assert ends == [True, True]
    show(served, replace(scene(), acts=()))
    window.wait_for("document.querySelectorAll('.ways path').length === 0")


def test_the_focus_stays_where_it_was_when_the_page_changes(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    show(served, scene())
    window.open(address)
    tab_to(window, "n2")
    show(served, replace(scene(), cycle="something else"))
    window.wait_for("document.getElementById('main').textContent.includes('something else')")
    assert window.value("document.activeElement.textContent") == "n2"


def test_a_page_that_is_held_still_does_not_change(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    window.open(address)
    tab_to(window, "Hold still")
    window.press(" ")
    assert window.value("document.activeElement.getAttribute('aria-pressed')") == "true"
    assert window.value("document.getElementById('news').textContent") == "This page holds still. "
    show(served, replace(scene(), cycle="something else"))
    assert served.ask("GET", "/v1/page/news?after=1")[1]["changed"]
    assert not window.value("document.getElementById('main').textContent.includes('something else')")
    window.press(" ")
    window.wait_for("document.getElementById('main').textContent.includes('something else')")


def test_answers_without_news_are_no_silence(
    window: Browser, live: tuple[Served, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LivePages, "patience_s", 0.0)
    window.open(live[1])
    window.value(
        """(() => {
            const news = document.getElementById('news');
            window.said = new Set([news.textContent]);
            new MutationObserver(() => window.said.add(news.textContent))
                .observe(news, {subtree: true, childList: true, characterData: true});
        })()"""
    )
    window.wait_for("performance.getEntriesByType('resource').length >= 3")
    assert window.value("[...window.said]") == ["This page follows the engine. "]


def test_an_engine_that_comes_back_is_followed_again(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    window.open(address)
    served.leads = lambda: False
    served.service.page_changed()
    window.wait_for("document.getElementById('news').textContent.startsWith('The engine does not answer')", calm=False)
    assert window.value("document.querySelectorAll('.node').length") == 3, "what was known is still shown"
    served.leads = lambda: True
    window.wait_for("document.getElementById('news').textContent.startsWith('This page follows')", calm=False)
    window.console.clear()


def test_without_scripts_the_page_is_whole(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    show(served, scene())
    window.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        window.open(address, scripts=False)
        page = window.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        told = window.call("DOM.getOuterHTML", nodeId=page)["outerHTML"]
    finally:
        window.call("Emulation.setScriptExecutionDisabled", value=False)
    for words in ("n1", "leaving", "it waits behind render", "3.2 s", "The engine on controller is alone."):
        assert words in told


# -- who may make it ask -----------------------------------------------------------------------------------------------


def test_names_of_users_run_nothing(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    show(served, scene(hostile=True))
    window.open(address)
    assert window.value("window.owned") is None
    assert window.value("document.getElementById('waiting').textContent.includes('window.owned=1')")
    show(served, replace(scene(hostile=True), cycle=HOSTILE))
    window.wait_for("document.getElementById('main').textContent.includes('Last cycle')")
    assert window.value("window.owned") is None
    assert window.console == []
    asked = {url.partition("?")[0] for url in window.requested if not url.startswith("data:")}
    assert asked <= {address, f"{address}/news"}


def test_the_policy_stops_what_is_not_of_the_page(window: Browser, live: tuple[Served, str]) -> None:
    window.open(live[1])
    window.value(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.owned = 1'}))"
    )
    window.value("fetch('http://127.0.0.1:9/').catch(() => 0)")
    assert window.value("window.owned") is None
    complaints = " ".join(window.console)
    window.console.clear()
    assert "script-src" in complaints and "connect-src" in complaints


def test_a_page_of_another_site_reads_nothing_and_gives_no_order(
    window: Browser, live: tuple[Served, str], tmp_path: Path
) -> None:
    served, address = live
    elsewhere = tmp_path / "evil.html"
    elsewhere.write_text("<!doctype html><html data-ready=yes><title>evil</title>")
    window.open(elsewhere.as_uri())
    pause = address.replace("/page", "/pause")
    window.value(f"fetch('{pause}', {{method: 'POST', mode: 'no-cors', body: '{{}}'}}).catch(() => 0)")
    assert window.value(f"fetch('{address}').then(() => 'read', () => 'refused')") == "refused"
    window.console.clear()
    assert served.ask("GET", "/v1/status")[1]["paused"] is None


# -- for everybody -----------------------------------------------------------------------------------------------------


def test_a_screen_reader_has_headings_tables_drawings_and_names(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    show(served, scene())
    window.open(f"{address}?node=n1")
    nodes = [each for each in window.call("Accessibility.getFullAXTree")["nodes"] if not each["ignored"]]
    told: dict[str, list[str]] = {}
    for each in nodes:
        told.setdefault(each["role"]["value"], []).append(str(each.get("name", {}).get("value", "")))
    headings = [
        *("VM jobs: controller", "Now", "Notices (1)", "Node n1", "Nodes (3)", "Under way", "Queue (2)"),
        *("Paused (1)", "Sleeping (1)", "Last context switches"),
    ]
    assert told["heading"] == headings
    assert set(told["table"]) >= {"Jobs that wait, in their order", "Jobs that stand still in memory"}
    assert "CPUs and memory of n1, and what its VMs have of them" in told["image"]
    for role in ("link", "button", "image", "region", "table", "heading", "columnheader"):
        assert told[role] and all(told[role]), role
    assert len(told["main"]) == len(told["banner"]) == len(told["contentinfo"]) == len(told["status"]) == 1


def test_the_keyboard_reaches_all_and_may_skip_the_nodes(window: Browser, live: tuple[Served, str]) -> None:
    served, address = live
    show(served, scene())
    window.open(address)
    window.press("Tab")
    assert window.value("document.activeElement.textContent") == "Skip to the queue"
    window.press("Enter")
    window.wait_for("document.activeElement.id === 'waiting-h'")
    window.press("Tab")
    assert window.value("document.activeElement.getAttribute('aria-labelledby')") == "waiting-what"
    window.open(address)
    tab_to(window, "n1")
    window.press("Enter")
    window.wait_for("document.getElementById('machines') !== null && document.documentElement.dataset.ready === 'yes'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_and_all_words_can_be_read(
    window: Browser, live: tuple[Served, str], tmp_path: Path, size: str, scheme: str
) -> None:
    served, address = live
    show(served, scene(nodes=12, vms=5, hostile=True))
    window.open(f"{address}?node=n1", width=SIZES[size], scheme=scheme)
    picture = Path(os.environ.get("RMSPLUGIN_PICTURES", tmp_path)) / f"live-{size}-{scheme}.png"
    window.screenshot(picture)
    assert picture.stat().st_size > 10_000
    assert window.value("document.documentElement.scrollWidth") <= SIZES[size]
    pairs = window.value(
        """[...document.querySelectorAll('main p, main td, main th, main a, main caption, h1, h2, .facts, .code, .why')]
        .map((each) => {
            let ground = each;
            while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)' && ground.parentElement)
                ground = ground.parentElement;
            return [getComputedStyle(each).color, getComputedStyle(ground).backgroundColor, each.textContent];
        })"""
    )
    assert pairs
    assert [text for ink, ground, text in pairs if contrast(ink, ground) < 4.5] == []


def contrast(one: str, other: str) -> float:
    """The ratio of two colours as WCAG counts it."""
    lights = sorted((_light(one), _light(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _light(colour: str) -> float:
    parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
