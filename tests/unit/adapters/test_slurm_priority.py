"""What sprio, sshare and the configuration say of priorities; the texts are of Slurm 22.05.8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rmsplugin.adapters.rms import slurm_priority
from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, RmsJob, RmsPriorities
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_priorities import SlurmPriorities
from rmsplugin.errors import RefusedError, RmspluginError, UnavailableError
from rmsplugin.model.priority import Parts, Weights

CONFIGURATION = {
    "PriorityType": "priority/multifactor",
    "PriorityFlags": "",
    "PriorityMaxAge": "7-00:00:00",
    "PriorityWeightAge": "1000",
    "PriorityWeightFairShare": "100000",
}


def test_weights() -> None:
    assert slurm_priority.weights(CONFIGURATION) == Weights(age=1000, max_age_s=7 * 86400.0, share=100_000)
    flags = {"PriorityFlags": "ACCRUE_ALWAYS,INCR_ONLY", "PriorityMaxAge": "UNLIMITED"}
    found = slurm_priority.weights(CONFIGURATION | flags)
    assert found is not None
    assert (found.only_rises, found.max_age_s) == (True, math.inf)


@pytest.mark.parametrize("plugin", ["priority/basic", "priority/ours", "", "(null)"])
def test_other_plugins_have_no_weights(plugin: str) -> None:
    assert slurm_priority.weights(CONFIGURATION | {"PriorityType": plugin}) is None


def test_parts() -> None:
    text = """50004|100012|12|100000|0|0|0|0|0|0|
50005|99900|0|100000|100|0|0|0|0|0|
50006|777|0|0|0|0|0|0|0|0|
50007|200|0|0|0|0|0|0|0|0|cpu=200.00
50008|1|0|0|0|0|0|0|0|0|
50004|5|0|0|0|0|0|0|0|0|
Unable to find jobs matching user/id(s) specified
"""
    assert slurm_priority.parts(text) == {
        50004: Parts(12, 100_000),
        50005: Parts(0, 100_000),
        50006: Parts(0, 0, fixed=True),
        50007: Parts(0, 0),
        50008: Parts(0, 0),
    }
    assert slurm_priority.parts("") == {}


def test_shares() -> None:
    text = """root|||
 root|root||1.000000
 users|||
  users|alice||0.250000
  users|alice|vjob|0.500000
  users|bob||
"""
    found = RmsPriorities(shares=slurm_priority.shares(text))
    assert found.share("users", "alice", "plain") == 0.25
    assert found.share("users", "alice", "vjob") == 0.5
    assert found.share("users", "bob", "vjob") is None


def job(state: JobState, name: str = "job") -> RmsJob:
    return RmsJob(
        display_id="7",
        job_id=7,
        partition="vjob",
        user="alice",
        uid=2001,
        name=name,
        state=state,
        detail=state.value,
        reason="None",
        held=False,
        gated=False,
        completing=False,
        cpus=1,
        memory_mib=16,
        priority=0,
        submit_time=1,
        eligible=True,
        nodes=(),
        batch_host="",
        restarts=0,
    )


def says(options: Mapping[str, Any]) -> str:
    configuration = CONFIGURATION | {"PreemptMode": "OFF", "SLURM_VERSION": "22.05.8"}
    return (
        "".join(f"{key} = {value}\n" for key, value in configuration.items())
        if "show config" in options.get("text", "")
        else ""
    )


@pytest.mark.parametrize(
    ("jobs", "asked"),
    [
        ([], set()),
        ([job(JobState.ENDED)], set()),
        ([job(JobState.RUNNING, ROOM_NAME)], set()),
        ([job(JobState.RUNNING)], {"sshare"}),
        ([job(JobState.RUNNING, ROOM_NAME), job(JobState.SUSPENDED)], {"sshare"}),
        ([job(JobState.ENDED), job(JobState.PENDING)], {"sshare", "sprio"}),
        ([job(JobState.PENDING, ROOM_NAME)], set()),
    ],
    ids=["none", "ended", "a room", "running", "suspended", "pending", "a room that is pending"],
)
def test_slurm_is_asked_for_shares_of_whom_has_jobs_and_for_priorities_of_those_that_wait(
    jobs: list[RmsJob], asked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = SlurmCli()
    programs = set()

    def run(*words: str, **options: Any) -> str:
        programs.add(words[0])
        return says(options)

    monkeypatch.setattr(commands, "_run", run)
    commands.snapshot_with(lambda: tuple(jobs))
    assert programs - {"scontrol"} == asked


@pytest.mark.parametrize("error", [UnavailableError("Connection refused"), RefusedError("not running multifactor")])
def test_a_cycle_goes_on_where_shares_and_parts_cannot_be_read(
    error: RmspluginError, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = SlurmCli()

    def run(*words: str, **options: Any) -> str:
        if words[0] in ("sprio", "sshare"):
            raise error
        return says(options)

    monkeypatch.setattr(commands, "_run", run)
    found = commands.snapshot_with(lambda: (job(JobState.PENDING),)).priorities
    assert (found.weights is not None, dict(found.parts), dict(found.shares)) == (True, {}, {})


class Slurm:
    """Slurm with parts that no two answers have in common; it computes priorities each five minutes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.configuration = CONFIGURATION | {"PriorityCalcPeriod": "00:05:00"}
        self.asked: list[str] = []
        self.fails = ""
        self.read = SlurmPriorities(self.run, lambda: self.now).read

    def run(self, program: str, *arguments: str) -> str:
        self.asked.append(program)
        if program == self.fails:
            raise UnavailableError("Connection refused")
        return f"7|100|0|{len(self.asked)}|0|0|0|0|0|0|" if program == "sprio" else "users|alice||0.5"

    def looks(self, *jobs: RmsJob) -> set[str]:
        """The programs that are started for one look at these jobs."""
        self.asked.clear()
        self.last = self.read(self.configuration, jobs).priorities
        return set(self.asked)


BOTH = {"sshare", "sprio"}


def test_what_slurm_cannot_have_changed_is_not_asked_for_again() -> None:
    slurm = Slurm()
    assert slurm.looks(job(JobState.PENDING), job(JobState.RUNNING, ROOM_NAME)) == BOTH
    first = slurm.last
    assert (first.share("users", "alice", "vjob"), set(first.parts)) == (0.5, {7})
    slurm.now += 59
    assert slurm.looks(job(JobState.PENDING)) == set()
    assert slurm.last == first
    slurm.now += 2
    assert slurm.looks(job(JobState.PENDING)) == BOTH, "shares are no older than a fifth of Slurm's period"
    assert slurm.looks(job(JobState.RUNNING)) == {"sshare"}
    assert slurm.looks(job(JobState.RUNNING)) == set()
    assert slurm.looks(job(JobState.RUNNING, ROOM_NAME)) == set()


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": 8},
        {"priority": 5},
        {"nice": 1},
        {"state": JobState.SUSPENDED},
        {"eligible": False},
        {"accrue_time": 5},
        {"account": "others"},
        {"user": "bob"},
        {"partition": "urgent"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_job_that_has_changed_is_asked_about(change: dict[str, Any]) -> None:
    slurm, before = Slurm(), job(JobState.PENDING)
    assert slurm.looks(before) == BOTH
    assert "sshare" in slurm.looks(replace(before, **change))
    assert "sshare" in slurm.looks(before), "what was known is of the changed one"
    assert "sshare" in slurm.looks(before, replace(before, **change))


def test_weights_that_have_changed_have_changed_all_parts() -> None:
    slurm = Slurm()
    assert slurm.looks(job(JobState.PENDING)) == BOTH
    slurm.configuration["PriorityWeightAge"] = "2000"
    assert slurm.looks(job(JobState.PENDING)) == BOTH


@pytest.mark.parametrize("period", ["", "00:00:00", "NONE"])
def test_where_slurm_computes_at_no_known_time_it_is_always_asked(period: str) -> None:
    slurm = Slurm()
    slurm.configuration["PriorityCalcPeriod"] = period
    assert slurm.looks(job(JobState.PENDING)) == BOTH
    assert slurm.looks(job(JobState.PENDING)) == BOTH


@pytest.mark.parametrize("program", sorted(BOTH))
def test_an_answer_that_is_missing_is_asked_for_again(program: str) -> None:
    slurm = Slurm()
    slurm.fails = program
    assert slurm.looks(job(JobState.PENDING)) == BOTH
    slurm.fails = ""
    assert slurm.looks(job(JobState.PENDING)) == BOTH
    assert slurm.looks(job(JobState.PENDING)) == set()
