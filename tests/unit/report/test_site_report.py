"""Reports and other commands over the ledgers of groups: what one ledger would tell of all, each vjob once."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.cli.json_documents import answer_of
from unit.reported import NOON, K, Told

from rmsplugin.cli.check.unknown_vms import judge_unknown, probe_unknown
from rmsplugin.cli.main import main
from rmsplugin.energy.lateness import LateSums
from rmsplugin.engine.ledger.gathering import reading_all
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.ledger_file import open_database
from rmsplugin.engine.ledger.parting import Change, joined_again, own_part
from rmsplugin.engine.ledger.power_book import LateSpan
from rmsplugin.engine.ledger.shared_files import name_of
from rmsplugin.engine.ledger.site_ledgers import site_ledgers
from rmsplugin.engine.ledger.takeover import take_over
from rmsplugin.errors import LedgerError, UnavailableError
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.report.ledger import LedgerReader
from rmsplugin.report.power import late_in
from rmsplugin.settings import load

GROUPS = {"a": ("n1",), "b": ("n2",)}
CLUSTER = '[cluster]\ncoordination = "zookeeper"\nservers = ["z:2181"]\nshared_dir = "{shared}"\n'
ASKED = ("--without-slurm", "--until", "2025-11-04", "--nodes", "2", "--cpus-per-node", "4")

Tell = Callable[[Told, Told], None]


class Site:
    """A shared directory, and settings that name it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.groups = directory, directory / "shared" / "groups"
        self.groups.mkdir(parents=True)
        self._numbers = iter(range(100))

    def told(self) -> Told:
        """A ledger that belongs to no engine yet."""
        directory = self.directory / f"told{next(self._numbers)}"
        directory.mkdir()
        return Told(directory)

    def keep(self, told: Told, name: str, epoch: int = 5) -> Path:
        """A ledger is that of a group, or ``all``, or was put away."""
        told.ledger.epochs.begin_turn(epoch)
        told.ledger.close()
        (self.groups / name).mkdir(exist_ok=True)
        return Path(shutil.copy(told.path, self.groups / name / name_of(epoch)))

    @property
    def settings(self) -> Path:
        path = self.directory / "rmsplugin.toml"
        if not path.exists():
            text = self.told().settings.read_text()
            path.write_text(text + CLUSTER.format(shared=self.groups.parent))
        return path

    def part(self, group: str, epoch: int) -> Path:
        """The first ledger of a group, made of that of all."""
        (self.groups / "all" / "split").write_text(json.dumps(GROUPS))
        change = Change(own_part(group, GROUPS, lambda _group, _address: True), self.groups / "all")
        return take_over(self.groups / group, epoch, leads=lambda: True, change=change)

    def go_on(self, path: Path) -> Told:
        """Write on in the ledger of an engine."""
        told = self.told()
        told.ledger.close()
        told.path.unlink()
        shutil.copy(path, told.path)
        told.ledger = Ledger(told.path, clock=lambda: told.now)
        return told

    @staticmethod
    def start_on_n2(told: Told, job: int) -> None:
        """It runs on a host of the second group."""
        told.start(told.submit(job, user="carol"), "n2")
        told.ledger.set_vms(job, [replace(vm, host="n2", touched=("n2",)) for vm in told.ledger.vms(job)])

    def put_back(self, told: Told, path: Path) -> None:
        told.ledger.close()
        shutil.copy(told.path, path)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def report(site: Site, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def ask(*words: str) -> dict[str, Any]:
        assert main(["report", "--config", str(site.settings), "--json", *ASKED, *words]) == 0
        found: dict[str, Any] = answer_of(capsys.readouterr().out)
        found.pop("made")
        return found

    return ask


def lives(one: Told, other: Told) -> None:
    """Vjobs live in two ledgers, or in one."""
    one.at(0).start(one.submit(1, user="alice", vms=2), "n1", "n1")
    other.at(5).start(other.submit(2, user="bob"), "n2")
    one.at(20).demand(1, 0, 150)
    other.at(30).demand(2, 0, 50)
    one.at(100).switch([1], K.SUSPEND, 100, 30.0)
    one.at(130).suspend(1)
    other.at(200).submit(3, user="bob")
    one.at(300).resume(1, "n1", "n1")
    other.at(400).end(2)
    one.at(500).end(1)
    other.at(600).cancel_waiting(3)


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    """Without numbers that tell the ledger."""
    switches = [{**each, "id": 0} for each in document["switches"]]
    return {**document, "switches": switches}


def test_a_report_of_two_groups_is_that_of_one_engine(site: Site, report: Callable[..., dict[str, Any]]) -> None:
    whole, a, b = site.told(), site.told(), site.told()
    lives(whole, whole)
    lives(a, b)
    alone = site.keep(whole, "x")
    of_one = report("--ledger", str(alone))
    shutil.rmtree(alone.parent)
    site.keep(a, "a")
    site.keep(b, "b", epoch=7)
    of_two = report()
    assert in_order(of_two) == in_order(of_one)
    assert len(of_two["jobs"]) == 3 and of_two["switches"] and of_two["costs"]["suspend"]["actions"] == 2
    assert [job["id"] for job in report("--user", "bob")["jobs"]] == ["2", "3"]


def test_a_parted_ledger_is_told_as_if_it_had_never_been(site: Site, report: Callable[..., dict[str, Any]]) -> None:
    whole, engine = site.told(), site.told()
    for each in (whole, engine):
        lives(each, each)
        each.at(700).start(each.submit(4, user="carol"), "n1")
        site.start_on_n2(each, 5)
        each.at(800).submit(6, user="carol")
        each.ledger.set_vms(6, [])
    site.keep(engine, "all", epoch=3)
    for number, group in enumerate(GROUPS):
        path = site.part(group, 4 + number)
        if not number:
            assert {job["id"] for job in report()["jobs"]} == {"1", "2", "3", "4", "5", "6"}, "b has not begun"
        told = site.go_on(path)
        told.at(900).end(4 + number)
        site.put_back(told, path)
    assert {job["id"] for job in report()["jobs"]} == {"1", "2", "3", "4", "5"}, "6 is in no ledger that goes on"
    whole.ledger.transition(6, whole.ledger.vjob(5).state.TERMINATED, "cancelled")
    whole.at(900).end(4)
    whole.at(900).end(5)
    alone = report("--ledger", str(site.keep(whole, "x")), "--job", "1,2,3,4,5")
    shutil.rmtree(site.groups / "x")
    assert report("--job", "1,2,3,4,5")["jobs"] == alone["jobs"]
    assert report()["costs"] == alone["costs"]


def test_what_ended_with_groups_is_told_when_one_engine_goes_on(
    site: Site, report: Callable[..., dict[str, Any]]
) -> None:
    engine = site.told()
    lives(engine, engine)
    site.start_on_n2(engine.at(700), 4)
    site.keep(engine, "all", epoch=3)
    for number, group in enumerate(GROUPS):
        path = site.part(group, 4 + number)
        told = site.go_on(path)
        if group == "b":
            told.at(900).end(4)
        told.at(950).start(told.submit(10 + number), f"n{number + 1}")
        told.at(990).end(10 + number)
        site.put_back(told, path)
    before = report()
    take_over(site.groups / "all", 9, leads=lambda: True, change=Change(joined_again(GROUPS, GROUPS)))
    (site.groups / "all" / "split").unlink()
    for group in GROUPS:
        (site.groups / group).rename(site.groups / f".before-9-{group}")
    after = report()
    assert [job["id"] for job in after["jobs"]] == ["1", "2", "3", "4", "10", "11"]
    assert in_order(after) == in_order(before)


def test_a_vjob_that_two_ledgers_know_counts_once_as_it_is_where_it_changed_last(
    site: Site, report: Callable[..., dict[str, Any]]
) -> None:
    a, b = site.told(), site.told()
    for each in (a, b):
        each.at(0).start(each.submit(1), "n1")
        each.at(100).suspend(1)
    b.at(300).resume(1, "n2")
    b.at(500).end(1)
    site.keep(a, "a")
    site.keep(b, "b")
    found = report()
    (job,) = found["jobs"]
    assert (job["state"], job["suspends"], job["resumes"], found["costs"]["suspend"]["actions"]) == ("ended", 1, 1, 1)


def test_an_operation_that_was_under_way_where_a_ledger_was_left_is_told_by_the_one_in_which_it_ended(
    site: Site,
) -> None:
    a, b = site.told(), site.told()
    for each in (a, b):
        each.at(0).submit(1)
        operation = each.ledger.begin_operation(1, K.START, "engine")
    b.at(9).ledger.end_operation(operation.id)
    site.keep(a, "a")
    site.keep(b, "b")
    with reading_all(site_ledgers(load(site.settings))) as found:
        assert found.execute("select state, ended from operations").fetchall() == [("done", NOON + 9)]


def test_keys_are_not_gathered(site: Site) -> None:
    for name in GROUPS:
        told = site.told()
        told.submit(ord(name))
        told.ledger._db.execute("update vjobs set private_key = 'secret'")
        site.keep(told, name)
    with reading_all(site_ledgers(load(site.settings))) as found:
        assert "secret" not in "".join(found.iterdump())


def test_a_ledger_that_was_put_away_by_an_older_release_is_read(
    site: Site, report: Callable[..., dict[str, Any]]
) -> None:
    old, new = site.told(), site.told()
    lives(old, old)
    path = site.keep(old, ".before-4-a")
    new.at(900).submit(9)
    site.keep(new, "all", epoch=6)
    with closing(sqlite3.connect(path)) as db:
        db.executescript("drop table given; drop table released")
        db.execute("delete from _sqlite_migrations where name = 'm024_given'")
        db.commit()
    content = path.read_bytes()
    assert [job["id"] for job in report()["jobs"]] == ["1", "2", "3", "9"]
    assert path.read_bytes() == content
    with closing(sqlite3.connect(path)) as db:
        db.execute("update _sqlite_migrations set name = 'm999_tomorrow' where name = 'm023_epoch'")
        db.commit()
    with pytest.raises(LedgerError, match="a newer release"), reading_all(site_ledgers(load(site.settings))):
        pass


def test_each_ledger_is_checked_and_copied_and_asked(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, before = site.told(), site.told(), site.told()
    lives(a, b)
    site.keep(a, "a")
    damaged = site.keep(b, "b")
    site.keep(before, ".before-2-c")

    def ledger(*words: str) -> tuple[int, list[str], str]:
        status = main(["ledger", *words[:1], "--config", str(site.settings), *words[1:]])
        said = capsys.readouterr()
        return status, said.out.splitlines(), said.err

    status, lines, _ = ledger("check")
    assert (status, len(lines)) == (0, 3)
    sql = "select job_id from vjobs order by job_id"
    assert ledger("query", "--csv", sql)[1] == ["group,job_id", "a,1", "b,2", "b,3"]
    assert ledger("query", "--csv", "--group", "b", sql)[1] == ["job_id", "2", "3"]
    status, lines, said = ledger("query", "--csv", "--limit", "2", sql)
    assert lines == ["group,job_id", "a,1", "b,2"] and "more rows" in said
    assert ledger("query", "--group", "c", "--tables")[0] == 2, "one from before is asked by --ledger"
    assert [line.partition(" ")[0].partition("/groups/")[2][:2] for line in ledger("backup")[1]] == ["a/", "b/"]
    with pytest.raises(SystemExit):
        ledger("backup", str(site.directory / "copy"))
    assert "say --group NAME" in capsys.readouterr().err
    assert ledger("backup", "--group", "b", str(site.directory / "copy"))[0] == 0
    assert ledger("check", str(site.directory / "copy"))[0] == 0
    damaged.write_bytes(b"")
    status, lines, said = ledger("check")
    assert (status, len(lines), said.count("\n")) == (1, 2, 1)
    status, _, said = ledger("check", "--group", "x")
    assert status == 2 and "no ledger of a group x" in said


def test_durations_are_calibrated_by_what_all_groups_measured(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(GROUPS):
        told = site.told()
        for job in range(6):
            told.at(100 * job).start(told.submit(10 * number + job + 1), "n1", seconds=7 + job)
        site.keep(told, name)
    assert main(["calibrate", "--config", str(site.settings), "--json"]) == 0
    counts = {each["action"]: each["count"] for each in answer_of(capsys.readouterr().out)["actions"]}
    assert counts["run"] == 12


def test_switches_of_nodes_of_all_groups_count_each_once(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    watts = "idle_w = 100\nbusy_w = 200\noff_w = 5\ntransition_w = 85\noff_s = 30\non_s = 120\n"
    site.settings.write_text(site.settings.read_text() + f"[[power.classes]]\n{watts}")
    together = site.told()
    for number in range(6):
        book = together.at(100.0 * number).ledger.power
        book.forget(book.begin(f"n{1 + number % 2}", NodeActionKind.POWER_ON, "needed"), took_s=100.0)
    site.keep(together, "all")
    for group in GROUPS:  # each has what was measured of its own nodes, which the ledger of all has, too
        told = site.go_on(site.part(group, 6))
        book = told.at(1000.0).ledger.power
        for _ in range(4):
            told.now += 1.0
            book.forget(book.begin(GROUPS[group][0], NodeActionKind.POWER_ON, "needed"), took_s=90.0)
        told.ledger.close()
        shutil.copy(told.path, site.groups / group / name_of(6))
    assert main(["calibrate", "--config", str(site.settings), "--json"]) == 0
    off, on = json.loads(capsys.readouterr().out)["power"]
    assert (off["count"], on["count"], on["measured_s"]) == (0, 14, 90.0)


def test_a_site_of_one_engine_has_its_one_ledger(site: Site, tmp_path: Path) -> None:
    assert site_ledgers(load(site.settings)) == []
    (path,) = [site.keep(site.told(), "all", epoch=6)]
    assert [(each.path, each.left) for each in site_ledgers(load(site.settings))] == [(path, False)]
    alone = site.told()
    assert [each.path for each in site_ledgers(load(alone.settings))] == [alone.path]
    open_database(alone.path).close()


def test_check_names_vms_whose_vjobs_no_group_knows(site: Site) -> None:
    for name, job in (("a", 1), ("b", 2)):
        told = site.told()
        told.submit(job)
        site.keep(told, name)

    class Nodes:
        def list_vms(self, node: str) -> dict[str, object]:
            if node == "silent":
                raise UnavailableError("no answer")
            return dict.fromkeys({"n1": ["vjob1-0", "vjob7-0", "other"], "n2": ["vjob2-0"]}[node])

    settings, names = load(site.settings), ("n1", "n2", "silent")
    found = probe_unknown(settings, Nodes(), names)  # type: ignore[arg-type]
    assert found == {"vjob7-0": "n1"}
    [finding] = judge_unknown(found)
    assert "of 1 VMs, which engines leave alone: vjob7-0 on n1" in finding.what and "backup" in finding.remedy
    shutil.rmtree(site.groups / "b")
    assert probe_unknown(settings, Nodes(), names).keys() == {"vjob7-0", "vjob2-0"}, "the ledger of a group is lost"  # type: ignore[arg-type]
    assert not [*judge_unknown({})]


def test_what_a_ledger_that_was_left_says_of_a_vjob_of_an_engine_does_not_count(site: Site) -> None:
    for name, user, seconds in ((".before-4-a", "bob", 100), ("all", "alice", 50)):
        told = site.told().at(seconds)
        told.cancel_waiting(told.submit(1, user=user))
        site.keep(told, name)
    with reading_all(site_ledgers(load(site.settings))) as found:
        assert found.execute("select user from vjobs").fetchall() == [("alice",)]


def test_actions_of_what_is_known_already_are_nobody_elses(site: Site) -> None:
    ledgers = [site.told() for _ in range(3)]
    for each in ledgers[:2]:
        each.at(0).start(each.submit(1), "n1")
        each.at(100).suspend(1)
    for job in range(2, 6):
        ledgers[2].at(200).start(ledgers[2].submit(job), "n2")
    for name, each in zip("abc", ledgers, strict=True):
        site.keep(each, name)
    with reading_all(site_ledgers(load(site.settings))) as found:
        kinds = found.execute("select job_id, kind, count(*) from operations group by 1, 2 order by 1, 2").fetchall()
        assert kinds == [(1, "start", 1), (1, "suspend", 1), *((job, "start", 1) for job in range(2, 6))]
        of_job = "select job_id, count(*) from actions join operations on operations.id = operation_id group by 1"
        assert found.execute(of_job).fetchall() == [(1, 2), *((job, 1) for job in range(2, 6))]


def test_lateness_that_several_ledgers_know_counts_once(site: Site) -> None:
    """The first group takes over what the engine of all has seen, and both see how late their vjobs are."""
    told = site.told()
    told.ledger.power.note_late(LateSpan(NOON, NOON + 60, LateSums(1.0, 100.0)))
    site.keep(told, "all")
    groups = [site.part(name, epoch) for epoch, name in enumerate(GROUPS, 7)]
    for number, path in enumerate(groups):
        told = site.go_on(path)
        assert len(told.ledger.power.late_spans(0.0)) == (number == 0)
        told.ledger.power.note_late(LateSpan(NOON + 100 + number, NOON + 160, LateSums(10.0, 100.0)))
        told.ledger.close()
        shutil.copy(told.path, path)
    with reading_all(site_ledgers(load(site.settings))) as found:
        assert late_in(found, NOON, NOON + 1000).late_s == pytest.approx(1.0 + 10.0 * len(GROUPS))


def test_the_oldest_entry_of_all_is_where_a_report_begins(site: Site) -> None:
    for name, seconds in (("a", 500), ("b", 100)):
        told = site.told().at(seconds)
        told.ledger.event("x", "y")
        site.keep(told, name)
    with reading_all(site_ledgers(load(site.settings))) as found:
        assert LedgerReader(found, NOON + 1000).begins() == NOON + 100
