"""The program that checks journals of acts finds each kind of breach, and shares no code with what it checks."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from journal import check
from journal.journal import Act, Journal

CHECKER = Path(check.__file__)


class Course:
    """A journal that is written by hand."""

    def __init__(self) -> None:
        self.time = 0.0
        self.journal = Journal(lambda: self.time)
        self.journal.lead("one", 5, 10.0)

    def act(self, who: str, epoch: int, what: str, *, where: str = "hypervisor", vm: int = 0, node: str = "n1") -> Act:
        name = f"vjob7-{vm}" if where == "hypervisor" else ""
        act = self.journal.act(who, epoch, where, what, name, 7, [node] if where != "rms" else [])
        act.accepted(self.time)
        return act

    def next_leads(self, time: float = 20.0) -> None:
        self.time = time
        self.journal.lead("two", 9, time + 10)

    def found(self) -> check.Findings:
        return check.check(self.journal.lines())


@pytest.fixture
def course() -> Course:
    return Course()


def whole_life(course: Course) -> None:
    """A vjob that is booted by one engine, moved by the next, and ends."""
    journal = course.journal
    course.act("one", 5, "boot").ended(3.0, "done")
    journal.vm(7, "vjob7-0", "n1", "running")
    journal.script(7, "begins")
    course.next_leads()
    course.act("two", 9, "migrate").ended(25.0, "done")
    journal.vm(7, "vjob7-0", "n1", "gone")
    journal.vm(7, "vjob7-0", "n2", "running")
    journal.script(7, "ends")
    journal.vjob(7, "submitted")
    journal.vjob(7, "ended")
    journal.over()


def test_a_course_without_fault_shows_no_breach(course: Course) -> None:
    whole_life(course)
    found = course.found()
    assert found.breaches == []
    assert (found.acts, found.turns, found.refused, found.late, found.gap_s) == (2, 2, 0, 0, 10.0)


def two_lead(course: Course) -> None:
    course.next_leads(9.0)


def epoch_falls(course: Course) -> None:
    course.time = 20.0
    course.journal.lead("two", 4, 30.0)


def epoch_of_two(course: Course) -> None:
    course.time = 20.0
    course.journal.lead("two", 5, 30.0)


def acts_after_its_lease(course: Course) -> None:
    course.time = 11.0
    course.act("one", 5, "boot")


def deposed_is_let_do(course: Course) -> None:
    old = course.act("one", 5, "unpause")
    course.next_leads()
    course.act("two", 9, "stop").ended(21.0, "done")
    old.fields["begin"] = 22.0
    old.ended(22.0, "done")


def deposed_acts_on_another_vm_of_the_vjob(course: Course) -> None:
    old = course.act("one", 5, "unpause", vm=1, node="n3")
    course.next_leads()
    course.act("two", 9, "obey", where="agent", node="n3").ended(20.0, "done")
    course.act("two", 9, "save").ended(21.0, "done")
    old.fields["begin"] = 22.0
    old.ended(22.0, "done")


def deposed_acts_on_the_node(course: Course) -> None:
    old = course.act("one", 5, "drop_state", where="agent")
    old.fields["vjob"] = 8
    course.next_leads()
    course.act("two", 9, "obey", where="agent").ended(20.0, "done")
    old.fields["begin"] = 22.0


def two_act_at_once(course: Course) -> None:
    course.act("one", 5, "save").ended(30.0, "done")
    course.next_leads()
    course.act("two", 9, "migrate").ended(22.0, "done")


def runs_twice(course: Course) -> None:
    course.journal.vm(7, "vjob7-0", "n1", "running")
    course.journal.vm(7, "vjob7-0", "n2", "running")


def begins_twice(course: Course) -> None:
    course.journal.script(7, "begins")
    course.journal.script(7, "begins")


def never_ends(course: Course) -> None:
    course.journal.vjob(7, "submitted")
    course.journal.script(7, "begins")
    course.journal.over()


def ends_twice(course: Course) -> None:
    whole_life(course)
    course.journal.vjob(7, "ended")


def ends_without_its_script(course: Course) -> None:
    course.journal.vjob(7, "submitted")
    course.journal.script(7, "begins")
    course.journal.vjob(7, "ended")
    course.journal.over()


def script_ends_alone(course: Course) -> None:
    course.journal.vjob(7, "submitted")
    course.journal.script(7, "ends")
    course.journal.over()


def two_lead_after_a_renewal(course: Course) -> None:
    """Its lease was until 10, and it has renewed it."""
    course.journal.lead("one", 5, 25.0, begin=8.0)
    course.next_leads()


def two_lead_by_a_word_that_comes_late(course: Course) -> None:
    """The journal's lines are in no order: the first word of the next one comes last."""
    course.journal.lead("two", 9, 30.0, begin=20.0)
    course.journal.lead("two", 9, 20.0, begin=9.0)


def acts_before_it_leads(course: Course) -> None:
    course.act("two", 9, "boot")
    course.next_leads()


def acts_as_its_lease_ends(course: Course) -> None:
    course.time = 10.0
    course.act("one", 5, "boot")


def acts_by_an_epoch_of_before(course: Course) -> None:
    """It leads again, and acts as if it still led for the first time."""
    course.time = 20.0
    course.journal.lead("one", 9, 30.0)
    course.act("one", 5, "boot")


def deposed_migrates_to_a_node_that_has_heard(course: Course) -> None:
    old = course.act("one", 5, "migrate")
    old.fields["nodes"] = ["n1", "n2"]
    course.next_leads()
    course.act("two", 9, "stop", node="n2").ended(21.0, "done")
    old.fields["begin"] = 22.0


def runs_twice_and_is_gone_elsewhere(course: Course) -> None:
    course.journal.vm(7, "vjob7-0", "n1", "running")
    course.journal.vm(7, "vjob7-0", "n3", "gone")
    course.journal.vm(7, "vjob7-0", "n2", "running")


def is_two_groups(course: Course) -> None:
    course.journal.vm(7, "vjob7-0", "n1", "standing", of="left")
    course.journal.vm(7, "vjob7-1", "n2", "running", of="right")


def two_decide_in_one_epoch(course: Course) -> None:
    course.journal.given("one", 5, 0, {})
    course.journal.given("two", 5, 1, {})


def a_text_is_two(course: Course) -> None:
    course.journal.given("one", 5, 0, {})
    course.journal.given("one", 5, 0, {"7": ["left", None]})


def a_group_goes_back(course: Course) -> None:
    for serial in (0, 1):
        course.journal.given("one", 5, serial, {})
    course.journal.took("left", 5, 1)
    course.journal.took("left", 5, 0)


def a_group_follows_nobody(course: Course) -> None:
    course.journal.took("left", 5, 0)


def the_next_leader_forgets(course: Course) -> None:
    course.journal.given("one", 5, 0, {"7": ["left", None]})
    course.journal.given("one", 5, 1, {"7": ["right", None]})
    course.journal.took("right", 5, 1)
    course.journal.given("two", 9, 0, {"7": ["left", None]})
    course.journal.took("left", 9, 0)


def the_next_leader_forgets_what_one_group_follows(course: Course) -> None:
    """Another group still follows the text before."""
    for serial, group in enumerate(("left", "right")):
        course.journal.given("one", 5, serial, {"7": [group, None]})
    course.journal.took("right", 5, 1)
    course.journal.took("left", 5, 0)
    course.journal.given("two", 9, 0, {"7": ["left", None]})
    course.journal.took("left", 9, 0)


def the_third_leader_forgets_the_second(course: Course) -> None:
    for epoch, who, group in ((5, "one", "left"), (9, "two", "left"), (12, "three", "left")):
        course.journal.given(who, epoch, 0, {"7": [group, None]})
        if epoch == 9:
            course.journal.given(who, epoch, 1, {"7": ["right", None]})
        course.journal.took("right", epoch, int(epoch == 9))


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (two_lead, "one (5) and two (9) may both act at 9.0"),
        (epoch_falls, "epoch 4 of two comes after 5"),
        (epoch_of_two, "epoch 5 is that of one and of two"),
        (acts_after_its_lease, "its engine did not lead when it asked for it"),
        (
            deposed_is_let_do,
            "unpause of vjob 7 on n1 at 22.0 by one (5) was let do, after stop of vjob 7 on n1 at 20.0",
        ),
        (deposed_acts_on_another_vm_of_the_vjob, "unpause of vjob 7 on n3 at 22.0 by one (5) was let do, after obey"),
        (deposed_acts_on_the_node, "drop_state of vjob 8 on n1 at 22.0 by one (5) was let do, after obey"),
        (two_act_at_once, "migrate of vjob 7 on n1 at 20.0 by two (9) while save of vjob 7"),
        (runs_twice, "vjob7-0 runs on ['n1', 'n2'] at 0.0"),
        (begins_twice, "the script of vjob 7 began 2 times, and 0 of its VMs were killed"),
        (never_ends, "vjob 7 is lost: it ended 0 times, its script 0 times"),
        (is_two_groups, "vjob 7 is two groups' at 0.0"),
        (two_decide_in_one_epoch, "two and one have both decided in epoch 5"),
        (a_text_is_two, "text 0 of epoch 5 is two texts"),
        (a_group_goes_back, "group left goes back to text 0 of epoch 5"),
        (a_group_follows_nobody, "group left follows text 0 of epoch 5, which nobody has written"),
        (the_next_leader_forgets, "the leader of epoch 9 does not go on from text 1 of epoch 5"),
        (ends_twice, "vjob 7 is lost: it ended 2 times, its script 1 times"),
        (ends_without_its_script, "vjob 7 is lost: it ended 1 times, its script 0 times"),
        (script_ends_alone, "vjob 7 is lost: it ended 0 times, its script 1 times"),
        (two_lead_after_a_renewal, "one (5) and two (9) may both act at 20.0"),
        (two_lead_by_a_word_that_comes_late, "one (5) and two (9) may both act at 9.0"),
        (acts_before_it_leads, "boot of vjob 7 on n1 at 0.0 by two (9): its engine did not lead when it asked for it"),
        (acts_as_its_lease_ends, "its engine did not lead when it asked for it"),
        (acts_by_an_epoch_of_before, "its engine did not lead when it asked for it"),
        (deposed_migrates_to_a_node_that_has_heard, "migrate of vjob 7 on n1, n2 at 22.0 by one (5) was let do, after"),
        (runs_twice_and_is_gone_elsewhere, "vjob7-0 runs on ['n1', 'n2'] at 0.0"),
        (the_next_leader_forgets_what_one_group_follows, "the leader of epoch 9 does not go on from text 1 of epoch 5"),
        (the_third_leader_forgets_the_second, "the leader of epoch 12 does not go on from text 1 of epoch 9"),
    ],
)
def test_a_breach_is_found_and_said(course: Course, what: Callable[[Course], None], sentence: str) -> None:
    what(course)
    assert any(sentence in breach for breach in course.found().breaches), course.found().breaches


def test_leaders_that_follow_each_other_and_groups_side_by_side_are_no_breach(course: Course) -> None:
    journal = course.journal
    journal.lead("left's", 6, 10.0, of="left")
    journal.given("one", 5, 0, {"7": ["left", None]})
    journal.took("left", 5, 0)
    journal.given("one", 5, 1, {"7": ["right", None]})
    journal.given("two", 9, 0, {"7": ["right", None]})
    journal.took("left", 9, 0)
    journal.took("left", 9, 0)
    assert course.found().breaches == []


def test_a_group_that_is_behind_another_goes_not_back(course: Course) -> None:
    for serial in (0, 1):
        course.journal.given("one", 5, serial, {})
    course.journal.took("right", 5, 1)
    course.journal.took("left", 5, 0)
    assert course.found().breaches == []


def test_a_vjob_that_has_gone_to_another_group_is_that_one_s(course: Course) -> None:
    course.journal.vm(7, "vjob7-0", "n1", "standing", of="left")
    course.journal.vm(7, "vjob7-0", "n1", "gone", of="left")
    course.journal.vm(7, "vjob7-0", "n2", "running", of="right")
    assert course.found().breaches == []


def test_epochs_of_two_groups_are_not_compared(course: Course) -> None:
    journal = course.journal
    journal.lead("left's", 9, 10.0, of="left")
    journal.lead("right's", 6, 10.0, of="right")
    for who, epoch, group, node in (("left's", 9, "left", "n1"), ("right's", 6, "right", "n2")):
        course.time += 1
        journal.act(who, epoch, "hypervisor", "boot", "vjob7-0", 7, [node], of=group).accepted(course.time)
    found = course.found()
    assert (found.breaches, found.unheard) == ([], 0)


def test_lines_of_turns_are_in_any_order(course: Course) -> None:
    course.next_leads()
    lines = [*reversed(course.journal.lines())]
    found = check.check(lines)
    assert (found.breaches, found.gap_s) == ([], 10.0)


def test_a_vjob_that_has_not_ended_yet_is_not_lost(course: Course) -> None:
    course.journal.vjob(7, "submitted")
    assert course.found().breaches == []


def test_an_engine_acts_on_what_it_acts_on_already(course: Course) -> None:
    course.act("one", 5, "migrate").ended(9.0, "done")
    course.act("one", 5, "unpause").ended(2.0, "done")
    found = course.found()
    assert (found.breaches, found.late, found.unheard) == ([], 0, 0)


def test_a_deposed_engine_s_act_on_another_vjob_is_not_late(course: Course) -> None:
    other = course.act("one", 5, "resume", where="rms")
    other.fields["vjob"] = 8
    course.next_leads()
    course.act("two", 9, "resume", where="rms").ended(21.0, "done")
    other.fields["begin"] = 22.0
    assert course.found().late == 0


@pytest.mark.parametrize("what", ["stop", "abort_job"])
def test_the_next_engine_may_end_what_is_under_way(course: Course, what: str) -> None:
    course.act("one", 5, "save").ended(30.0, "done")
    course.next_leads()
    course.act("two", 9, what).ended(22.0, "done")
    assert course.found().breaches == []


@pytest.mark.parametrize(("first", "second"), [("failed", "done"), ("done", "failed")])
def test_of_two_acts_at_once_one_may_come_to_nothing(course: Course, first: str, second: str) -> None:
    course.act("one", 5, "save").ended(30.0, first)
    course.next_leads()
    course.act("two", 9, "migrate").ended(22.0, second)
    assert course.found().breaches == []


def test_the_next_engine_acts_on_another_vm_of_the_vjob(course: Course) -> None:
    course.act("one", 5, "save", vm=1, node="n2").ended(30.0, "done")
    course.next_leads()
    course.act("two", 9, "migrate").ended(22.0, "done")
    assert course.found().breaches == []


def test_what_slurm_is_asked_for_is_no_act_on_a_vm(course: Course) -> None:
    course.act("one", 5, "resume", where="rms").ended(30.0, "done")
    course.next_leads()
    course.act("two", 9, "suspend", where="rms").ended(22.0, "done")
    assert course.found().breaches == []


def test_what_a_deposed_engine_begins_at_slurm_is_a_breach(course: Course) -> None:
    course.act("one", 5, "resume", where="rms").fields.update(begin=23.0)
    course.next_leads()
    course.act("two", 9, "suspend", where="rms").ended(22.0, "done")
    [breach] = course.found().breaches
    assert "was begun, after" in breach


def test_what_is_refused_failed_lost_or_cancelled_is_no_breach(course: Course) -> None:
    course.act("one", 5, "save").ended(30.0, "failed")
    held_up, late = course.act("one", 5, "unpause", vm=1), course.act("one", 5, "set_clock", where="guests")
    course.journal.script(7, "begins")
    course.next_leads()
    course.act("two", 9, "abort_job").ended(20.0, "done")
    held_up.refused(22.0)
    late.fields["begin"] = 23.0
    course.journal.vm(7, "vjob7-0", "n1", "killed")
    course.journal.script(7, "begins")
    course.journal.vjob(8, "submitted")
    course.journal.vjob(8, "cancelled")
    course.journal.over()
    found = course.found()
    assert found.breaches == []
    assert (found.refused, found.late) == (1, 1)


def test_a_node_that_has_not_heard_of_the_next_engine_obeys_the_one_before(course: Course) -> None:
    old = course.act("one", 5, "put_config", where="agent", node="n3")
    course.next_leads()
    course.act("two", 9, "stop").ended(21.0, "done")
    old.fields["begin"] = 22.0
    course.time = 23.0
    course.act("two", 9, "obey", where="agent", node="n3").ended(24.0, "done")
    found = course.found()
    assert (found.breaches, found.unheard) == ([], 1)


def test_the_program_says_what_it_found_and_what_is_no_journal(course: Course, tmp_path: Path) -> None:
    def run(*paths: Path) -> tuple[int, str]:
        words = [sys.executable, str(CHECKER), *map(str, paths)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    whole_life(course)
    course.journal.write(tmp_path / "right")
    assert run(tmp_path / "right") == (
        0,
        f"{tmp_path}/right: 2 acts in 2 turns, 0 refused, 0 late in guests, 0 unheard: no breaches\n",
    )
    begins_twice(course)
    course.journal.write(tmp_path / "wrong")
    code, said = run(tmp_path / "right", tmp_path / "wrong")
    assert code == 1 and "wrong: 2 acts in 2 turns, 0 refused, 0 late in guests, 0 unheard: 1 breaches" in said
    (tmp_path / "none").write_text("no journal\n")
    code, said = run(tmp_path / "none")
    assert code == 2 and "none is no journal of acts" in said and "Traceback" not in said
    assert run()[0] == 2


def test_it_shares_no_code_with_what_it_checks() -> None:
    imported = set()
    for node in ast.walk(ast.parse(CHECKER.read_text())):
        if isinstance(node, ast.Import):
            imported |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names
