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
    journal.took("right", 9, 0)
    assert course.found().breaches == []


def test_what_is_refused_failed_lost_or_cancelled_is_no_breach(course: Course) -> None:
    course.act("one", 5, "save").ended(30.0, "failed")
    held_up, late = course.act("one", 5, "unpause", vm=1), course.act("one", 5, "resume", where="rms")
    course.journal.script(7, "begins")
    course.next_leads()
    course.act("two", 9, "abort_job").ended(20.0, "done")
    held_up.refused(22.0)
    late.fields["begin"] = 23.0
    course.journal.vm(7, "vjob7-0", "n1", "killed")
    course.journal.script(7, "begins")
    course.journal.vjob(8, "submitted")
    course.journal.vjob(8, "cancelled")
    found = course.found()
    assert found.breaches == []
    assert (found.refused, found.late) == (1, 1)


def test_a_node_that_has_not_heard_of_the_next_engine_obeys_the_one_before(course: Course) -> None:
    old = course.act("one", 5, "put_config", where="agent", node="n3")
    course.next_leads()
    course.act("two", 9, "stop").ended(21.0, "done")
    old.fields["begin"] = 22.0
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
        f"{tmp_path}/right: 2 acts in 2 turns, 0 refused, 0 late at Slurm, 0 unheard: no breaches\n",
    )
    begins_twice(course)
    course.journal.write(tmp_path / "wrong")
    code, said = run(tmp_path / "right", tmp_path / "wrong")
    assert code == 1 and "wrong: 2 acts in 2 turns, 0 refused, 0 late at Slurm, 0 unheard: 1 breaches" in said
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
