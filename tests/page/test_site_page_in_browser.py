"""The live page of all groups in a real browser, from a manager."""

from __future__ import annotations

from pathlib import Path

from page.browser import browser
from page.live import forwarded
from unit.manager.managed import Managed, engine, given
from unit.served import ME

from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.cluster import Cluster

GROUPS = {"a": ("n1", "n2"), "b": ("m1",)}


def test_a_page_of_all_groups_follows_each_of_them(tmp_path: Path) -> None:
    cluster = Cluster(coordination="zookeeper", servers=("z:1",), shared_dir=tmp_path / "shared")
    engines = {name: engine(tmp_path / name, cluster) for name in GROUPS}
    engines["a"].add_vjob(12, ME, VJobState.RUNNING)
    engines["b"].add_vjob(13, ME)
    for each in engines.values():
        each.world.tick()
    sockets = {name: each.socket for name, each in engines.items()}
    places = given(GROUPS, j12="a", j13="b")
    addresses = {"m": "http://127.0.0.1:9"}
    manager = Managed(tmp_path, "m", sockets, dict.fromkeys(GROUPS, "m"), addresses, places, base=engines["a"])
    try:
        with forwarded(manager.socket) as port, browser() as window:
            window.open(f"http://localhost:{port}/v1/page")
            titles = window.value("[...document.querySelectorAll('h3')].map((each) => each.textContent)")
            assert titles == ["Group a (3)", "Group b (3)"]
            engines["b"].add_vjob(44, ME)
            window.wait_for("document.querySelector('[aria-labelledby=waiting-h]').textContent.includes('44')")
            window.open(window.value("document.querySelector('h3 a').href"))
            assert window.value("document.querySelectorAll('h3').length") == 0, "the page of one group"
            assert window.value("document.querySelectorAll('li.node').length") == 3
            assert window.console == []
    finally:
        manager.close()
        for each in engines.values():
            each.close()
