"""What sprio, sshare and the configuration say of priorities; the texts are of Slurm 22.05.8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from rmsplugin.adapters.rms import slurm_priority
from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, RmsJob, RmsPriorities
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
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
        ([job(JobState.PENDING, ROOM_NAME)], {"sprio"}),
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
