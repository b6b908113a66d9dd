"""How Slurm's commands are asked for what a cycle reads: two at a time, and no more of them than it takes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.adapters.rms.slurm_cli import SlurmCli

CONFIGURATION = {
    "PreemptMode": "OFF",
    "SLURM_VERSION": "22.05.8",
    "PriorityType": "priority/multifactor",
    "PriorityWeightFairShare": "100000",
}


def says(words: tuple[str, ...], **more: str) -> str:
    """What the configuration is; nothing of all else."""
    return "".join(f"{key} = {value}\n" for key, value in (CONFIGURATION | more).items()) if "config" in words else ""


def pending() -> RmsJob:
    return RmsJob(
        display_id="7",
        job_id=7,
        partition="vjob",
        user="alice",
        uid=2001,
        name="job",
        state=JobState.PENDING,
        detail="PENDING",
        reason="Licenses",
        held=False,
        gated=True,
        completing=False,
        cpus=1,
        memory_mib=96,
        priority=1,
        submit_time=1795253000,
        eligible=True,
        nodes=(),
        batch_host="",
        restarts=0,
    )


def test_a_cycle_asks_slurm_two_questions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a pair is answered once the other one was asked, too."""
    commands = SlurmCli()
    together = {words: threading.Barrier(2, timeout=PATIENCE_S) for words in ("jobs", "priorities")}

    def run(*words: str, **options: Any) -> str:
        if "reservation" in words:
            together["jobs"].wait()
        if words[0] in ("sprio", "sshare"):
            together["priorities"].wait()
        return says(words)

    def read_jobs() -> tuple[RmsJob, ...]:
        together["jobs"].wait()
        return (pending(),)

    monkeypatch.setattr(commands, "_run", run)
    assert len(commands.snapshot_with(read_jobs).jobs) == 1


def test_a_script_is_read_where_slurmctld_keeps_it_and_asked_for_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = SlurmCli()

    def run(*words: str, **options: Any) -> str:
        return "asked for" if "batch_script" in words else says(words, StateSaveLocation=str(tmp_path))

    monkeypatch.setattr(commands, "_run", run)
    assert commands.batch_script(17) == "asked for", "nobody knows yet where it is"
    commands.snapshot_with(lambda: ())
    kept = tmp_path / "hash.7" / "job.17" / "script"
    kept.parent.mkdir(parents=True)
    assert commands.batch_script(17) == "asked for"
    kept.write_bytes(b"#!/bin/sh\nhalf of it is wri")
    assert commands.batch_script(17) == "asked for"
    kept.write_bytes("#!/bin/sh\necho \u00e4\n".encode() + b"\xff\0behind it\0")
    assert commands.batch_script(17) == "#!/bin/sh\necho \u00e4\n\ufffd"
