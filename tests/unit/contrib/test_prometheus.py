"""The alerts for Prometheus and the board for Grafana, tried with a real Prometheus that reads an engine's metrics."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from patience import PATIENCE_S
from prometheus_client import CONTENT_TYPE_LATEST
from scenarios.world import CPUS, NODES, World
from unit.listening import Listening, free_port
from unit.told_metrics import metrics_of, tick

from rmsplugin.engine.metrics.catalogue import METRICS, Kind

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "contrib/prometheus/rmsplugin.rules.yml"
TRIALS = ROOT / "contrib/prometheus/rmsplugin.rules.test.yml"
BOARD = json.loads((ROOT / "contrib/grafana/rmsplugin.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
_SERIES = re.compile(r"\brmsplugin_\w+")


class Prometheus:
    """A Prometheus that reads the metrics at ``target`` each second."""

    def __init__(self, directory: Path, target: int) -> None:
        self._port = free_port()
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {"job_name": "rmsplugin", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]},
            ],
        }
        file = directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(settings))
        address = f"127.0.0.1:{self._port}"
        options = [f"--config.file={file}", f"--storage.tsdb.path={directory}/data", f"--web.listen-address={address}"]
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log)

    def ask(self, path: str, **words: str) -> Any:
        """The data of an answer of its API."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        """What it finds now."""
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has read an engine under which vjobs run, wait and sleep, and one more went to sleep meanwhile."""
    directory = tmp_path_factory.mktemp("prometheus")
    world = World(directory)
    metrics = metrics_of(world)
    world.sleeping(cpus=CPUS)
    world.context.ledger.tally.answered("/v1/vjobs", 200)
    tick(world, metrics)
    with Listening(metrics.text, content_type=CONTENT_TYPE_LATEST) as listening:
        found = Prometheus(directory, listening.port)
        try:
            _until(lambda: _answers(found) and found.query("rmsplugin_build_info") != [], "a first reading")
            for _ in NODES:
                world.running(cpus=CPUS)
            world.submit(vms=1, cpus=CPUS)
            tick(world, metrics)
            read = 'count_over_time(rmsplugin_action_duration_seconds_count{kind="run",outcome="done"}[1h])'
            _until(lambda: any(float(each["value"][1]) > 2 for each in found.query(read)), "later readings")
            yield found
        finally:
            found.process.terminate()
            found.process.wait(PATIENCE_S)
            world.close()


def _answers(found: Prometheus) -> bool:
    assert found.process.poll() is None, "Prometheus has ended"
    try:
        found.query("1")
    except OSError:
        return False
    return True


def _series() -> set[str]:
    """The names of all samples that engines tell."""
    plain = {metric.full_name for metric in METRICS if metric.kind is not Kind.HISTOGRAM}
    parts = {
        f"{metric.full_name}_{part}"
        for metric in METRICS
        if metric.kind is Kind.HISTOGRAM
        for part in ("bucket", "sum", "count")
    }
    return plain | parts


def test_each_alert_is_tried_and_promtool_finds_that_all_hold() -> None:
    tried = {
        case["alertname"] for test in yaml.safe_load(TRIALS.read_text())["tests"] for case in test["alert_rule_test"]
    }
    assert tried == {alert["alert"] for alert in ALERTS}
    told = {
        case["alertname"]
        for test in yaml.safe_load(TRIALS.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert told == tried, "each is told once at least"
    found = subprocess.run(["promtool", "test", "rules", TRIALS], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_alerts_and_the_board_name_only_metrics_that_engines_tell() -> None:
    expressions = [alert["expr"] for alert in ALERTS]
    expressions += [target["expr"] for panel in PANELS for target in panel["targets"]]
    named = {name for expression in expressions for name in _SERIES.findall(expression)}
    assert named <= _series()
    assert len(named) > 30


def test_the_guide_says_of_each_alert_what_to_do() -> None:
    guide = (ROOT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `(Rmsplugin\w+)` \| (\w+) \|", guide, re.MULTILINE)
    assert rows == [(alert["alert"], alert["labels"]["severity"]) for alert in ALERTS]


def test_prometheus_loads_the_alerts_and_raises_none_for_an_engine_that_is_well(prometheus: Prometheus) -> None:
    def evaluated() -> bool:
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
        assert [rule["name"] for rule in rules] == [alert["alert"] for alert in ALERTS]
        assert not any(rule.get("lastError") for rule in rules)
        return all(rule["health"] == "ok" for rule in rules)

    _until(evaluated, "the first evaluation of all alerts")
    assert prometheus.ask("alerts")["alerts"] == []


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_each_panel_shows_what_the_engine_tells(prometheus: Prometheus, panel: dict[str, Any]) -> None:
    assert panel["description"] and panel["fieldConfig"]["defaults"]["unit"]
    for target in panel["targets"]:
        expression = target["expr"].replace("$instance", ".*")
        prometheus.query(expression)  # refused if it is none
        found: list[Any] = []

        def shows(words: str = expression.removesuffix(" > 0"), found: list[Any] = found) -> bool:
            """A reading that took more than its second, on a loaded machine, leaves nothing until the next one."""
            found[:] = prometheus.query(words)
            return bool(found)

        _until(shows, expression)
        labels = re.findall(r"{{(\w+)}}", target["legendFormat"])
        assert all(label in each["metric"] for label in labels for each in found), target["legendFormat"]


def test_panels_have_their_own_ids_and_places_and_the_chosen_source() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        assert all('instance=~"$instance"' in target["expr"] for target in panel["targets"])
