"""`rmsplugin calibrate`: from a ledger to a section of the settings file."""

from __future__ import annotations

import os
import sqlite3
import time
import tomllib
from contextlib import closing
from pathlib import Path

import pytest
from fresh_ledger import laid_down
from unit.cli.json_documents import answer_of

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.power_book import SwitchState
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.settings.deciding import Durations

SETTINGS = """
[engine]
state_dir = "{directory}"
[slurm]
partitions = ["vjob"]
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.0.10-10.0.0.20"
prefix_length = 24
[durations]
stop_s = 3.25
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
"""


class Site:
    """A ledger, and the settings file that names its directory."""

    def __init__(self, directory: Path) -> None:
        self.now = 1_000_000.0
        self.path = directory / "ledger.sqlite"
        self.ledger = Ledger(laid_down(self.path), clock=lambda: self.now)
        self.settings = directory / "rmsplugin.toml"
        self.settings.write_text(SETTINGS.format(directory=directory))

    def suspend(self, job_id: int, memory_mib: int, seconds: float, error: str = "") -> None:
        """A suspend of a vjob of one VM; Slurm and the seal take one second together."""
        geometry = Geometry(vms=1, cpus=1, memory_mib=memory_mib)
        name = str(job_id)
        self.ledger.add_vjob(
            VJobRow(job_id, name, "alice", 1, "vjob", geometry, VJobState.RUNNING, "", self.now, self.now)
        )
        operation = self.ledger.begin_operation(job_id, OperationKind.SUSPEND, "engine")
        self.now += 0.5
        action = self.ledger.begin_action(operation.id, "suspend", f"vjob{job_id}-0", "n1")
        self.now += seconds - 1
        self.ledger.end_action(action, error)
        self.now += 0.5
        self.ledger.end_operation(operation.id, error)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site whose suspends take 4 s and 10 ms for each MiB."""
    site = Site(tmp_path)
    for number, memory_mib in enumerate([256, 512, 1024, 2048] * 4, start=1):
        site.suspend(number, memory_mib, 4 + 0.01 * memory_mib)
    return site


def run(site: Site, *arguments: str) -> int:
    return main(["calibrate", "--config", str(site.settings), *arguments])


def test_the_section_that_is_printed_is_one_that_the_settings_take(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    before = site.path.read_bytes()
    assert run(site) == 0
    out = capsys.readouterr().out
    found = Durations.model_validate(tomllib.loads(out)["durations"]).model_dump()
    assert found == {**DEFAULTS, "stop_s": 3.25, "suspend_s": 4.0, "suspend_s_per_mib": 0.01}
    [measured] = [line.split() for line in out.splitlines() if line.startswith("# suspend")]
    assert measured[2:] == ["16", "11.68", "24.48", "28.27", "0.00", "-"]
    assert "stop_s = 3.25  # kept: 0 measured, 10 are needed" in out
    assert site.path.read_bytes() == before


def test_json_has_the_same(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(site, "--json") == 0
    answer = answer_of(capsys.readouterr().out)
    assert answer["durations"]["suspend_s_per_mib"] == 0.01
    [suspend] = [each for each in answer["actions"] if each["action"] == "suspend"]
    assert (suspend["count"], suspend["fitted"], suspend["median_s"]) == (16, True, 11.68)


def test_what_failed_is_not_measured(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(100, 200):
        site.suspend(number, 512, 900, error="no space")
    assert run(site, "--json") == 0
    assert answer_of(capsys.readouterr().out)["durations"]["suspend_s"] == 4.0


def test_what_switches_of_nodes_took_is_told_beside_the_settings(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    watts = "idle_w = 100\nbusy_w = 200\noff_w = 5\ntransition_w = 85\noff_s = 30\non_s = 120\n"
    site.settings.write_text(site.settings.read_text() + f'[[power.classes]]\nnodes = ["n[1-3]"]\n{watts}')
    book = site.ledger.power
    for number in range(10):
        node = f"n{1 + number % 4}"  # n4 is of no class
        book.enter(book.begin(node, NodeActionKind.POWER_OFF, "idle"), SwitchState.OFF, took_s=20.0 + number)
        book.forget(book.begin(node, NodeActionKind.POWER_ON, "needed"), took_s=100.0)
    book.forget(book.begin("n1", NodeActionKind.POWER_ON, "needed"), "it hung", took_s=900.0)
    for _ in range(2):
        book.forget(book.begin("n1", NodeActionKind.POWER_ON, "needed"), took_s=100.0)
    assert run(site) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# power-")]
    assert told == [
        "# power-off of nodes n[1-3]: the engine uses off_s = 30 of the settings (8 measured, 10 are needed)",
        "# power-on of nodes n[1-3]: the engine uses 100 s, the median of 10 measured, in place of on_s = 120",
    ]
    assert run(site, "--json") == 0
    assert answer_of(capsys.readouterr().out)["power"] == [
        {"nodes": "n[1-3]", "action": "power-off", "count": 8, "set_s": 30.0, "measured_s": None},
        {"nodes": "n[1-3]", "action": "power-on", "count": 10, "set_s": 120.0, "measured_s": 100.0},
    ]


def test_since_leaves_out_what_was_before(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(site, "--since", "1h") == 1  # the ledger's clock is far in the past
    assert "too little is measured" in capsys.readouterr().err
    site.now = time.time() - 7200
    for number in range(100, 116):
        site.suspend(number, 512 * (1 + number % 2), 2)
    assert run(site, "--since", "3h", "--json") == 0
    answer = answer_of(capsys.readouterr().out)
    assert answer["durations"]["suspend_s"] == 2.0
    assert abs(answer["since"] - (time.time() - 3 * 3600)) < 60


def test_too_little_is_refused_and_says_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path)
    assert run(site) == 1
    assert capsys.readouterr().err == (
        f"rmsplugin calibrate: too little is measured in {site.path}: nothing; 10 of an action are needed\n"
    )
    site.suspend(1, 512, 9)
    assert run(site) == 1
    captured = capsys.readouterr()
    assert "suspend 1; 10 of an action" in captured.err
    assert not captured.out


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("absent", "there is no ledger"),
        ("text", "cannot be read: file is not a database"),
        ("empty", "is no ledger of rmsplugin's"),
        ("older", "is of an older release"),
        ("newer", "is of a newer release"),
    ],
)
def test_what_is_no_ledger_of_this_release_is_refused(
    site: Site, what: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.sqlite"
    if what == "text":
        path.write_text("no database, but long enough to be read as one" * 100)
    elif what == "empty":
        path.touch()
    elif what != "absent":
        Ledger(path).close()
        with closing(sqlite3.connect(path)) as connection:
            if what == "older":
                connection.execute("delete from _sqlite_migrations where name like 'm007%'")
            else:
                connection.execute(
                    "insert into _sqlite_migrations (migration_set, name, applied_at) values (?, 'm999_new', '')",
                    ["rmsplugin-ledger"],
                )
            connection.commit()
    assert run(site, str(path)) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert not captured.out


@pytest.mark.parametrize("text", ["last week", "7", "7w", "2026-13-01", "9999-01-01", "999999d", "-1d"])
def test_a_time_that_is_none_is_refused(site: Site, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(site, f"--since={text}")
    assert ended.value.code == 2
    assert "--since" in capsys.readouterr().err


def test_a_day_is_one_of_this_hosts_time_zone(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "TZ", "UTC-2")  # two hours before UTC
    time.tzset()
    try:
        assert run(site, "--since", "1970-01-02", "--json") == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    assert answer_of(capsys.readouterr().out)["since"] == 22 * 3600
    assert run(site, "--least", "1", "--json") == 0
    [suspend] = [each for each in answer_of(capsys.readouterr().out)["actions"] if each["count"]]
    assert (suspend["fitted"], suspend["fitted_error_s"]) == (True, 0.0)
