"""Mail to users whose jobs ask for all kinds: by a real program, at most one a vjob and half an hour."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
ALL = frozenset({"INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT"})
EVERY_S = 1800.0


@dataclass(frozen=True)
class Sent:
    """One mail, as the program was given it."""

    subject: str
    to: str
    text: str


class Program:
    """A mail program that keeps what it is given, or fails as long as it is told to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / "mail"
        self._fails = directory / "fails"
        taken = f'number=$(ls {directory} | grep -c text); printf "%s\\n" "$2" "$3" > {directory}/words$number'
        body = f"test ! -e {self._fails} || exit 1\n{taken}\ncat > {directory}/.new; mv {directory}/.new "
        self.path.write_text(f"#!/bin/sh\n{body}{directory}/text$number\n")
        self.path.chmod(0o755)

    def fail(self, fails: bool) -> None:
        if fails:
            self._fails.touch()
        else:
            self._fails.unlink()

    @property
    def sent(self) -> list[Sent]:
        texts = sorted(self._directory.glob("text*"), key=lambda path: int(path.name.removeprefix("text")))
        words = [self._directory / path.name.replace("text", "words") for path in texts]
        return [Sent(*word.read_text().splitlines(), text.read_text()) for word, text in zip(words, texts, strict=True)]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def world(directory: Path, program: Program) -> Iterator[World]:
    world = World(directory)
    slurm = world.settings.slurm.model_copy(update={"mail": True, "mail_every_s": EVERY_S, "admin_comment": True})
    world.settings = world.settings.model_copy(update={"slurm": slurm})
    world.rms.mail_program = str(program.path)
    world.start_engine()
    yield world
    assert world.hypervisor.violations == []


def mails(world: World, program: Program, count: int) -> list[Sent]:
    """So many mails, once they are there: they are sent beside cycles."""
    deadline = time.monotonic() + PATIENCE_S
    while len(program.sent) < count:
        assert time.monotonic() < deadline, f"{program.sent}; {world.events()[-3:]}"
        time.sleep(0.01)
        world.tick(0.1)
    return program.sent


def settle(world: World) -> None:
    """Cycles in which a mail would have been begun, and the end of all mails under way."""
    for _ in range(3):
        world.tick()
    deadline = time.monotonic() + PATIENCE_S
    while not world.executor.chores_ended:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_mail_comes_at_once_and_the_next_has_what_happened_in_between(world: World, program: Program) -> None:
    job = world.running(mail_kinds=ALL, mail_user="alice@example.org", name="sim.sh")
    settle(world)
    assert program.sent == [], "a start is no news"
    world.ask(job, K.SUSPEND)
    [first] = mails(world, program, 1)
    assert first.to == "alice@example.org"
    assert first.subject == f"Slurm Job_id={job} Name=sim.sh suspended; its time limit stands still"
    assert first.text.startswith(f"Job {job} (sim.sh):\n\n") and "suspended" in first.text
    world.until(job, S.SLEEPING)

    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    to = next(node for node in ("n1", "n2") if node != world.host(job))
    world.ask(job, K.MIGRATE, to)
    settle(world)
    assert len(program.sent) == 1, "not before half an hour has passed"
    world.pass_time(EVERY_S)
    second = mails(world, program, 2)[1]
    assert second.subject.endswith(f"moved to {to} (and 1 before)")
    told = [line.partition(" ")[2] for line in second.text.splitlines()[2:4]]
    assert told == ["resumed", f"moved to {to}"]
    world.pass_time(EVERY_S)
    settle(world)
    assert len(program.sent) == 2, "nothing happened since"


def test_of_much_that_happens_the_newest_is_told_and_the_rest_is_counted(world: World, program: Program) -> None:
    job = world.running(mail_kinds=ALL)
    world.ask(job, K.SUSPEND)
    mails(world, program, 1)
    for _ in range(15):
        world.until(job, S.SLEEPING)
        world.ask(job, K.RESUME)
        world.until(job, S.RUNNING)
        world.ask(job, K.SUSPEND)
    settle(world)
    world.pass_time(EVERY_S)
    second = mails(world, program, 2)[1]
    assert second.subject.endswith("(and 29 before)")
    assert second.text.splitlines()[2] == "(10 more before)" and second.text.count("suspended") == 10


@pytest.mark.parametrize("kinds", [frozenset(), ALL - {"REQUEUE"}, frozenset({"END"})])
def test_who_asks_for_less_is_not_mailed(world: World, program: Program, kinds: frozenset[str]) -> None:
    job = world.running(mail_kinds=kinds)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    settle(world)
    assert program.sent == []


def test_elements_of_an_array_are_told_of_where_that_is_asked_for(world: World, program: Program) -> None:
    for kinds in (ALL, ALL | {"ARRAY_TASKS"}):
        array = world.submit(vms=1, array=[7], mail_kinds=kinds)
        world.tick()
        [job] = [vjob.job_id for vjob in world.context.ledger.vjobs() if vjob.display_id == f"{array}_7"]
        world.until(job, S.RUNNING)
        world.context.ledger.update_vjob(job, script_started=True)
        world.ask(job, K.SUSPEND)
        world.until(job, S.SLEEPING)
        settle(world)
    [only] = mails(world, program, 1)
    assert only.subject.startswith(f"Slurm Job_id={array}_7 ")


def test_a_job_that_has_the_id_of_another_users_vjob_is_not_told_of_it(world: World, program: Program) -> None:
    job = world.running(mail_kinds=ALL)
    world.context.ledger.update_vjob(job, uid=world.context.ledger.vjob(job).uid + 1)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    settle(world)
    assert program.sent == []


def test_a_name_is_a_word_in_a_mail_and_an_address_of_a_program_is_none(world: World, program: Program) -> None:
    job = world.running(mail_kinds=ALL, name="a\nBcc: eve@example.org\n~! id\n.$(id)" + "x" * 99)
    world.ask(job, K.SUSPEND)
    [mail] = mails(world, program, 1)
    assert mail.subject.startswith(f"Slurm Job_id={job} Name=a_Bcc:_eve@example.org____id_.__id_xx")
    assert mail.text.splitlines()[1] == "" and len(mail.text.splitlines()) == 5
    other = world.running(mail_kinds=ALL, mail_user="|sh")
    world.ask(other, K.SUSPEND)
    world.until(other, S.SLEEPING)
    settle(world)
    assert len(program.sent) == 1


def test_a_mail_that_the_program_does_not_take_is_lost_and_others_come_later(world: World, program: Program) -> None:
    first, second = world.running(mail_kinds=ALL), world.running(mail_kinds=ALL)
    program.fail(True)
    world.ask(first, K.SUSPEND)
    world.until(first, S.SLEEPING)
    settle(world)
    program.fail(False)
    world.ask(second, K.SUSPEND)
    world.until(second, S.SLEEPING)
    settle(world)
    assert program.sent == [], "the program is left alone for a while"
    assert world.cycle.report.problems == [] and not world.cycle.report.failed
    world.pass_time(60)
    [mail] = mails(world, program, 1)
    assert f"Job_id={second} " in mail.subject


def test_a_program_that_hangs_keeps_no_cycle_waiting(world: World, program: Program) -> None:
    job = world.running(mail_kinds=ALL)
    gate = program.path.parent / "goes-on"
    body = program.path.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.05; done\n")
    program.path.write_text(body)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    deadline = time.monotonic() + PATIENCE_S
    while world.executor.chores_ended:
        assert time.monotonic() < deadline, "no mail was begun"
        world.tick(0.1)
    before = world.cycle.number
    world.ask(job, K.RESUME)
    deadline = time.monotonic() + PATIENCE_S
    while not world.rms.comments.get(job, "").startswith("rmsplugin: resumed"):
        assert time.monotonic() < deadline, "the note waits for the mail"
        world.tick(0.1)
        time.sleep(0.01)
    assert world.cycle.number > before and not world.executor.chores_ended
    gate.touch()
    mails(world, program, 1)


def test_while_slurm_does_not_answer_mails_wait(world: World, program: Program) -> None:
    job = world.running(mail_kinds=ALL)
    for _ in range(2):
        world.rms.fail_next("mail_wish", UnavailableError("slurmctld: connection refused"))
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    settle(world)
    assert [call for call in world.rms.calls if call[0] == "mail_wish"] == [("mail_wish", job)]
    world.pass_time(31)
    settle(world)
    world.pass_time(61)
    assert len(mails(world, program, 1)) == 1


def test_nobody_is_mailed_where_the_site_does_not_want_it(directory: Path, program: Program) -> None:
    world = World(directory)
    world.rms.mail_program = str(program.path)
    job = world.running(mail_kinds=ALL)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    settle(world)
    assert program.sent == [] and ("mail_wish", job) not in world.rms.calls


def test_a_program_of_the_settings_takes_the_place_of_slurms(directory: Path, program: Program) -> None:
    world = World(directory)
    given = {"mail": True, "mail_program": str(program.path)}
    slurm = world.settings.slurm.model_copy(update=given)
    world.settings = world.settings.model_copy(update={"slurm": slurm})
    world.rms.mail_program = "/no/such/program"
    world.start_engine()
    job = world.running(mail_kinds=ALL)
    world.ask(job, K.SUSPEND)
    assert len(mails(world, program, 1)) == 1
