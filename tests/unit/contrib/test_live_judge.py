"""What the live campaign calls wrong after a fault: each rule, on a minicluster where it is broken."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from e2e.live import campaign, history, judge, well
from e2e.live import site as live_site
from e2e.live.acts import Acts, Row, fates
from e2e.live.campaign import Campaign
from e2e.live.dice import Order, Throw
from e2e.live.gaps import Gaps
from e2e.live.history import History
from e2e.live.judge import begun, left_over, of_vjob, of_vms
from e2e.live.work import VJob
from journal.check import check
from minicluster_lib.layout import Cluster as Layout

WHOLE = "1\n2\ncounted to 2\n"
ENDED = "JobId=7 JobState=COMPLETED Restarts=0 EndTime=2026-11-28T12:00:00 ExitCode=0:0"
RUNS = "JobId=7 JobState=RUNNING Restarts=0 EndTime=Unknown"


class Site:
    """As the campaign's minicluster: what it says of vjob 7 is set by the test."""

    def __init__(self, home: Path) -> None:
        self._home = self.directory = home
        self.groups: dict[str, tuple[str, ...]] = {}
        self.missed = 0
        self.told, self.text, self.left, self.states = RUNS, "1\n", list[list[str]](), {7: "running"}
        (home / "started.7").write_text("started\n")

    def run(self, *words: str, **_: object) -> SimpleNamespace:
        assert words[:3] == ("scontrol", "-o", "show")
        return SimpleNamespace(out=self.told, err="" if self.told else "Invalid job id specified", code=0)

    def output(self, job: int, user: str) -> str:
        assert (job, user) == (7, "alice")
        return self.text

    def home(self, user: str) -> Path:
        return self._home

    def logs(self) -> dict[str, str]:
        return {}

    def vjobs(self) -> list[dict[str, Any]]:
        return [{"job_id": job, "state": state} for job, state in self.states.items()]

    def ends_missed(self, job: int) -> int:
        assert job == 7
        return self.missed

    def leftovers(self, job: int) -> list[str]:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


@pytest.fixture
def site(tmp_path: Path) -> Any:
    return Site(tmp_path)


def counting() -> VJob:
    return VJob(7, Order(2, ()), 0.0)


# --- one vjob ---


def test_a_vjob_that_runs_and_one_that_has_ended_well_are_right(site: Any) -> None:
    vjob = counting()
    assert of_vjob(site, vjob) == [] and not vjob.ended
    site.told, site.text = ENDED, WHOLE
    assert of_vjob(site, vjob) == [] and vjob.ended


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"])
def test_a_job_that_ended_badly_is_wrong(site: Any, state: str) -> None:
    site.told = f"JobState={state} Reason=NodeDown ExitCode=1:0"
    assert of_vjob(site, counting()) == [f"vjob 7: its job is {state}, NodeDown, 1:0"]


def test_a_job_that_was_requeued_is_wrong_unless_its_slurmctld_was_lost(site: Any) -> None:
    site.told = RUNS.replace("Restarts=0", "Restarts=1")
    assert of_vjob(site, counting()) == ["vjob 7: its job was requeued 1 times"]
    known = counting()
    assert of_vjob(site, known, forgets=True) == []
    assert of_vjob(site, known) == [], "nor is it later"
    site.told = RUNS.replace("Restarts=0", "Restarts=2")
    assert of_vjob(site, known) == ["vjob 7: its job was requeued 2 times"]


def test_a_job_that_was_requeued_because_slurm_missed_its_end_is_right_as_often_as_that_was(site: Any) -> None:
    """Seen: its script had ended while slurmctld was cut off; the one that came back requeued it 150 s later."""
    site.told, site.missed = RUNS.replace("Restarts=0", "Restarts=1"), 1
    assert of_vjob(site, counting()) == []
    site.told = RUNS.replace("Restarts=0", "Restarts=2")
    assert of_vjob(site, counting()) == ["vjob 7: its job was requeued 2 times"]


def test_a_script_that_began_twice_is_wrong_also_where_a_slurmctld_was_lost(site: Any, tmp_path: Path) -> None:
    (tmp_path / "started.7").write_text("started\nstarted\n")
    assert begun(site, counting()) == 2
    assert of_vjob(site, counting(), forgets=True) == ["vjob 7: its script began 2 times"]
    (tmp_path / "started.7").unlink()
    assert begun(site, counting()) == 0


def test_an_output_with_a_gap_or_without_its_end_is_wrong(site: Any) -> None:
    site.text = "1\n3\n"
    assert of_vjob(site, counting()) == ["vjob 7: line 2 is '3'"]
    site.told, site.text = ENDED, "1\n2\n"
    (said,) = of_vjob(site, counting())
    assert said.startswith("vjob 7: it does not end as it should")


def test_a_job_that_slurm_has_forgotten_has_to_have_ended_well(site: Any) -> None:
    site.told, site.text = "", WHOLE
    vjob = counting()
    assert of_vjob(site, vjob) == [] and vjob.ended
    site.text = "1\n2\n"
    (said,) = of_vjob(site, counting())
    assert said.startswith("vjob 7: Slurm does not know it: Invalid job id specified; it does not end")


def test_an_end_that_slurm_missed_is_told_by_slurm_on_either_controller_or_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "slurmctld: Batch JobId={} missing from batch node n1 (not found BatchStartTime), Requeuing job\n"
    minicluster = live_site.Site(tmp_path)
    for host, job in (("head", 7), ("front2", 77)):
        (tmp_path / "log" / host).mkdir(parents=True)
        (tmp_path / "log" / host / "slurmctld.log").write_text(line.format(job) + line.format(7))
    said = {"7": 1, "8": 2}
    monkeypatch.setattr(live_site, "ledger", lambda site, sql, job: [(said.get(job, 0),)])
    assert [minicluster.ends_missed(job) for job in (7, 77, 8, 9)] == [3, 1, 2, 0]


# --- a slurmctld that does not end ---


@pytest.fixture
def stuck(tmp_path: Path) -> live_site.Site:
    """Two controllers; the slurmctld of one has begun to end, and says nothing more."""
    said = {"head": "slurmctld: Running as primary controller\n", "front2": f"slurmctld: error: {live_site._STUCK}\n"}
    for host, line in said.items():
        (tmp_path / "log" / host).mkdir(parents=True)
        (tmp_path / "log" / host / "slurmctld.log").write_text("slurmctld: older\n" * 50 + line)
    Layout(tmp_path, fronts=2, controllers=2).save()
    return live_site.Site(tmp_path)


def test_a_slurmctld_whose_log_ends_with_its_end_is_stuck_until_it_says_more(stuck: live_site.Site) -> None:
    assert stuck.stuck_slurmctlds() == ["front2"]
    with (stuck.directory / "log" / "front2" / "slurmctld.log").open("a") as log:
        log.write("slurmctld: slurmctld version 22.05.8 started on cluster minicluster\n" * 5)
    assert stuck.stuck_slurmctlds() == []


@pytest.mark.parametrize(("healed_ago_s", "killed"), [(10.0, []), (100.0, [("front2", "slurmctld")])])
def test_a_stuck_slurmctld_is_ended_by_hand_once_there_was_time_to_end(
    healed_ago_s: float, killed: list[tuple[str, str]], stuck: live_site.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[str, str]] = []
    monkeypatch.setattr(live_site.Site, "kill", lambda site, host, daemon: ended.append((host, daemon)))
    for name in ("start_all", "resume_forgetful_if_told", "watch"):
        monkeypatch.setattr(well, name, lambda *_: None)
    monkeypatch.setattr(well, "missing", lambda site: [])
    recovery, now = well.Recovery(Gaps([""])), time.time()
    recovery.gaps.last[""] = now + 1
    assert well.until_well(stuck, now - healed_ago_s - 5, now - healed_ago_s, recovery, History(stuck)) == []
    assert ended == killed and recovery.ended == [host for host, _ in killed]


# --- VMs, and what is left ---


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The VMs that run, by name; nothing is under way with any of them."""
    running: list[str] = []

    def machine(site: object) -> SimpleNamespace:
        return SimpleNamespace(guests=lambda: [SimpleNamespace(vm=vm) for vm in running])

    monkeypatch.setattr(judge, "Machine", machine)
    monkeypatch.setattr(judge, "ledger", lambda site, sql, vm: [])
    return running


def test_a_vm_that_runs_twice_is_wrong_unless_it_is_on_its_way(
    site: Any, guests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    guests += ["vjob7-0"]
    assert of_vms(site, [counting()]) == []
    guests += ["vjob7-0"]
    assert of_vms(site, [counting()]) == ["vjob7-0 has 2 QEMUs"]
    monkeypatch.setattr(judge, "ledger", lambda site, sql, vm: [(1,)])
    assert of_vms(site, [counting()]) == []


def test_a_vjob_that_sleeps_and_whose_vm_runs_is_wrong(site: Any, guests: list[str]) -> None:
    site.states[7] = "sleeping"
    assert of_vms(site, [counting()]) == []
    guests += ["vjob7-0", "vjob77-0"]
    assert of_vms(site, [counting()]) == ["vjob 7 sleeps, and 1 of its VMs run"]


def test_what_is_left_of_a_vjob_is_wrong_once_there_was_time_to_clear_up(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    site.left = [["QEMU on n1"], []]
    assert left_over(site, [counting()]) == []
    monkeypatch.setattr(judge, "_CLEARED_S", 0.0)
    site.left = [["QEMU on n1"]]
    assert left_over(site, [counting()]) == ["vjob 7 has left: QEMU on n1"]


def test_a_ledger_that_is_not_whole_is_wrong(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said = SimpleNamespace(code=1, out="1 row is damaged\n", err="")
    monkeypatch.setattr(site, "run", lambda *words, **_: said)
    assert well.checks_of_ledger(site) == "ledger check: 1 row is damaged "
    said.code = 0
    assert well.checks_of_ledger(site) == ""


# --- all of it ---


@pytest.fixture
def whole(site: Any, guests: list[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """A campaign with one vjob: judges it, with these acts of the first engine."""
    made = Campaign(site, 1, print, None, "")
    made.work.all.append(counting())
    site.left = [[]]
    monkeypatch.setattr(well, "checks_of_ledger", lambda site: "")
    monkeypatch.setattr(history, "turns", lambda logs, of: {5: ("head", 0.0), 9: ("front2", 20.0)})
    monkeypatch.setattr(History, "read", lambda self: None)
    monkeypatch.setattr(judge, "_CLEARED_S", 0.0)

    def judged(*rows: Row) -> list[str]:
        made.history._acts[""].read(5, 0.0, rows)
        return made._new(made._judged())

    return judged


def test_after_a_fault_all_rules_are_asked_and_each_breach_is_told_once(
    whole: Callable[..., list[str]], site: Any, guests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert whole() == []
    site.told, site.left = ENDED, [["QEMU on n1"]]
    guests += ["vjob8-0", "vjob8-0"]
    monkeypatch.setattr(well, "checks_of_ledger", lambda site: "ledger check: damaged")
    output, vms, left, ledger, act = whole(Row(1, "vjob7-0", "boot", "n1", "", "done", 30.0, 31.0))
    assert output.startswith("vjob 7: it does not end") and act == "head (5) and front2 (9) may both act at 20.0"
    assert [vms, left, ledger] == ["vjob8-0 has 2 QEMUs", "vjob 7 has left: QEMU on n1", "ledger check: damaged"]
    assert whole() == []


@pytest.mark.parametrize(("kind", "told"), [("slurmctld", ["vjob 7: its job was requeued 1 times"]), ("nfs", [])])
def test_a_fault_does_not_excuse_what_was_wrong_before_it(
    whole: Callable[..., list[str]], site: Any, monkeypatch: pytest.MonkeyPatch, kind: str, told: list[str]
) -> None:
    """Seen: jobs whose starts had failed, seconds before a slurmctld was killed."""
    monkeypatch.setattr(campaign, "_SAVED_S", 0.0)
    made = Campaign(site, 1, print, None, "")
    made.work.all.append(counting())
    site.told, site.left = RUNS.replace("Restarts=0", "Restarts=1"), [[]]
    assert made._before(Throw(kind, "kill", 5.0, 0.0, "", 0.0, False)) == told


# --- the journal of ledgers ---


def test_a_ledger_s_rows_become_acts_as_the_checker_reads_them() -> None:
    acts = Acts()
    acts.read(5, 100.0, [Row(1, "vjob7-0", "migrate", "n2", "n1", "done", 100.0, 104.0), OPEN])
    lead, first, second = [json.loads(line) for line in acts.lines({5: ("head", 100.0)})]
    assert lead == {"kind": "lead", "who": "head", "epoch": 5, "begin": 100.0, "end": 110.001}
    assert first == {
        "kind": "act",
        "who": "head",
        "epoch": 5,
        "asked": 100.0,
        "begin": 100.0,
        "end": 104.0,
        "outcome": "done",
        "where": "hypervisor",
        "what": "migrate",
        "vm": "vjob7-0",
        "vjob": 7,
        "nodes": ["n1", "n2"],
    }
    assert (second["end"], second["outcome"], second["nodes"]) == (None, "open", ["n1"])


OPEN = Row(2, "vjob7-1", "boot", "n1", "", "running", 110.0, 0.0)
DONE = Row(2, "vjob7-1", "boot", "n1", "", "done", 110.0, 120.0)


@pytest.mark.parametrize(("first", "then"), [(OPEN, DONE), (DONE, OPEN)])
def test_the_end_of_an_act_is_taken_from_whichever_ledger_has_it(first: Row, then: Row) -> None:
    acts = Acts()
    acts.read(5, 100.0, [first])
    acts.read(9, 200.0, [then])
    act = json.loads([*acts.lines({5: ("head", 100.0), 9: ("front2", 200.0)})][-1])
    assert (act["epoch"], act["end"], act["outcome"]) == (5, 120.0, "done")


def test_an_act_of_before_in_a_copy_of_the_ledger_is_not_that_of_who_copied_it() -> None:
    acts = Acts()
    acts.read(9, 200.0, [DONE])
    assert [json.loads(line)["kind"] for line in acts.lines({9: ("front2", 200.0)})] == ["lead"]


def test_an_act_that_was_written_late_is_that_of_the_ledger_in_which_it_was_first() -> None:
    acts, late = Acts(), Row(3, "vjob7-0", "boot", "n1", "", "done", 210.0, 211.0)
    acts.read(5, 100.0, [late])
    acts.read(9, 200.0, [late])
    breaches = check(acts.lines({5: ("head", 100.0), 9: ("front2", 200.0)})).breaches
    assert breaches == ["head (5) and front2 (9) may both act at 200.0"]


def test_acts_of_an_engine_that_no_log_knows_are_left_out() -> None:
    acts = Acts()
    acts.read(5, 100.0, [DONE])
    assert [*acts.lines({})] == []


BEFORE = Row(2, "vjob7-0", "suspend", "n1", "", "done", 110.0, 113.0)
COPIED = Row(3, "vjob7-0", "copy", "n1", "n3", "done", 114.0, 116.0)
#: As the ledger of the group has them to which the vjob has gone, with numbers of that one; and what it does then.
CAME = [replace(BEFORE, id=21), replace(COPIED, id=22)]
AFTER = Row(23, "vjob7-0", "resume", "n3", "n3", "done", 120.0, 121.0)


def test_acts_that_come_with_a_vjob_from_another_group_are_those_of_that_one() -> None:
    left, right = Acts("left", ["n1"]), Acts("right", ["n2", "n3"])
    left.read(9, 105.0, [BEFORE, COPIED])
    right.read(5, 100.0, [*CAME, AFTER])
    lines = [*left.lines({9: ("head", 105.0)}), *right.lines({5: ("front2", 100.0)})]
    told = [(each["of"], each.get("what", ""), each.get("nodes", [])) for each in map(json.loads, lines)]
    assert told == [
        ("left", "", []),
        ("left", "suspend", ["n1"]),
        ("left", "copy", ["n1"]),
        ("right", "", []),
        ("right", "resume", ["n3"]),
    ]
    assert check(lines).breaches == [], "epochs of two groups are not compared"


def test_an_act_of_a_group_s_engine_after_its_turn_is_found() -> None:
    left, late = Acts("left", ["n1"]), replace(BEFORE, created=210.0, ended=212.0)
    left.read(5, 100.0, [late])
    left.read(9, 200.0, [Row(4, "vjob8-0", "boot", "n1", "", "done", 205.0, 206.0)])
    breaches = check(left.lines({5: ("head", 100.0), 9: ("front2", 200.0)})).breaches
    assert breaches[0] == "head (5) and front2 (9) may both act at 200.0"
    assert any("was let do, after" in each for each in breaches)


def test_a_vjob_s_fate_is_when_it_was_submitted_how_often_it_began_and_whether_it_ended() -> None:
    def told(starts: int, ended: float) -> list[tuple[str, str, float]]:
        entries = map(json.loads, fates(7, 10.0, starts, ended))
        return [(entry["kind"], entry["is"], entry["time"]) for entry in entries]

    submitted, begins = ("vjob", "submitted", 10.0), ("script", "begins", 10.0)
    assert told(0, 0.0) == [submitted]
    assert told(2, 20.0) == [submitted, begins, begins, ("script", "ends", 20.0), ("vjob", "ended", 20.0)]
