"""Snapshots that others have read are those that this process would have read; where there is none, it reads itself."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from unit.adapters.test_slurm_questions import NODE, PARTITION, RESERVATION, configuration, pending, row

from rmsplugin.adapters.rms.base import Rms, RmsSnapshot
from rmsplugin.adapters.rms.factory import open_rms
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_handed import HandedSlurm
from rmsplugin.adapters.rms.slurm_reading import Handed, SlurmTexts, packed, unpacked
from rmsplugin.adapters.rms.slurm_text import JOB_FIELDS
from rmsplugin.errors import UnavailableError

SITE = configuration(PriorityCalcPeriod="00:05:00", StateSaveLocation="/state")


class Slurm:
    """The commands of one process, which are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands, self.asked = SlurmCli(), Counter[str]()
        self.followed, self.elements = 0, range(0)
        monkeypatch.setattr(self.commands, "_run", self.run)
        monkeypatch.setattr(self.commands._queue, "latest", self.latest)

    def run(self, program: str, *words: str, **options: Any) -> str:
        self.asked[program] += 1
        if program == "squeue":
            return "".join(map(partial(element, words[-1]), self.elements)) or row(pending(), words[-1])
        if options.get("text") == "show job 7\n":
            return "".join(f"JobId={7 + n} ArrayJobId=7 ArrayTaskId={n} ArrayTaskThrottle=1 \n" for n in self.elements)
        if program == "sshare":
            return "users|alice||0.5"
        if program == "sprio":
            return "7|100|0|3|0|0|0|0|0|0|"
        return "\n".join((NODE, PARTITION, RESERVATION, SITE))

    def latest(self, partitions: tuple[str, ...]) -> str:
        self.followed += 1
        return f"own {self.followed}"


def element(form: str, number: int) -> str:
    """What squeue prints of an element that waits behind the gate."""
    known = {"JobArrayID": f"7_{number}", "JobID": str(7 + number), "ArrayJobID": "7", "ArrayTaskID": str(number)}
    known |= {"State": "PENDING", "PriorityLong": "5", "Dependency": "(null)", "Licenses": "vjobgate:1"}
    values = ((known | {"MinMemory": "96M"}).get(word, "0") for word in JOB_FIELDS.values())
    return "".join(f"{value}\x1f" for value in values) + form.rpartition("\x1f")[2] + "\n"


class World:
    """A leader, and a process to which it hands down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leader, self.own = Slurm(monkeypatch), Slurm(monkeypatch)
        self.notes: list[str] = []
        self.pulse: str | None = "5"
        self.error: Exception | None = None
        handed = Handed(lambda: self.pulse, self.texts, self.notes.append)
        self.rms = HandedSlurm(self.own.commands, self.own.commands, handed)

    def texts(self) -> SlurmTexts:
        if self.error is not None:
            raise self.error
        return unpacked(packed(self.leader.commands.read()[1]))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def shown(snapshot: RmsSnapshot) -> RmsSnapshot:
    """It as it compares with others: what a node measured counts, too."""
    assert [node.readings for node in snapshot.nodes.values()]
    return snapshot


def test_what_is_handed_down_is_what_the_leader_has_read_and_starts_nothing(world: World) -> None:
    found = world.rms.snapshot()
    assert shown(found) == shown(world.leader.commands.snapshot())
    assert found.jobs and found.nodes and found.partitions and found.reservations
    assert found.priorities.share("", "alice", "vjob") is None
    assert found.priorities.share("users", "alice", "vjob") == 0.5
    assert (world.own.asked, world.notes) == (Counter(), [""])
    again = world.rms.snapshot()
    assert again.priorities is found.priorities and again.jobs[0] is found.jobs[0], "what has not changed is kept"


def test_the_limit_of_an_array_is_handed_down(world: World) -> None:
    world.leader.elements = range(1, 4)
    found = world.rms.snapshot()
    assert [job.eligible for job in found.jobs] == [True, False, False]
    assert found == world.leader.commands.snapshot()


def test_where_the_leader_keeps_scripts_is_known(world: World) -> None:
    world.rms.snapshot()
    assert world.own.commands._state_dir == "/state"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (UnavailableError("the leader is silent"), "the leader is silent"),
        (ValueError("no reading"), "what was handed down cannot be read (ValueError)"),
        (KeyError("PreemptMode"), "what was handed down cannot be read (KeyError)"),
    ],
)
def test_it_reads_itself_where_there_is_no_reading_and_says_why(world: World, error: Exception, why: str) -> None:
    world.error = error
    assert world.rms.snapshot() == world.leader.commands.snapshot()
    assert world.own.asked["squeue"] == 1
    world.error = None
    world.rms.snapshot()
    assert world.own.asked["squeue"] == 1
    assert world.notes == [why, ""]


def test_texts_that_mean_nothing_are_no_reading(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "texts", lambda: SlurmTexts("", "", "token"))
    rms = HandedSlurm(world.own.commands, world.own.commands, Handed(lambda: None, world.texts, world.notes.append))
    assert rms.snapshot() == world.leader.commands.snapshot()
    assert world.notes == ["what was handed down cannot be read (KeyError)"]


def test_no_squeue_stays_where_the_leader_tells(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[None] = []
    monkeypatch.setattr(world.own.commands._queue, "end", lambda: ended.append(None))
    assert [world.rms.pulse(["vjob"]), world.rms.pulse(["vjob"])] == ["5", "5"]
    assert (world.own.followed, len(ended)) == (0, 0)
    world.pulse = None
    assert world.rms.pulse(["vjob"]) == "own 1"
    world.pulse = "6"
    assert [world.rms.pulse(["vjob"]), world.rms.pulse(["vjob"])] == ["6", "6"]
    assert (world.own.followed, len(ended)) == (1, 1)


def test_questions_about_some_jobs_and_acts_go_to_slurm_itself(world: World) -> None:
    """A method that this adapter lacks, or answers itself, would be one that nobody has thought of."""
    names = {name for name in vars(Rms) if not name.startswith("_")}
    assert {"snapshot", "pulse", "job", "jobs", "ended", "cancel", "requeue"} < names
    for name in names - {"snapshot", "pulse"}:
        assert getattr(world.rms, name) == getattr(world.own.commands, name)


def test_only_a_process_to_which_others_hand_down_has_this_adapter() -> None:
    assert isinstance(open_rms("cli"), SlurmCli)
    handed = Handed(lambda: None, lambda: SlurmTexts("", "", ""), lambda _why: None)
    assert isinstance(open_rms("cli", handed=handed), HandedSlurm)
