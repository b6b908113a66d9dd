"""How Slurm's commands are asked for what a cycle reads: no more of them than it takes."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, RmsJob
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.errors import NotFoundError

CONFIGURATION = {
    "PreemptMode": "OFF",
    "SLURM_VERSION": "22.05.8",
    "PriorityType": "priority/multifactor",
    "PriorityWeightFairShare": "100000",
}


NODE = "NodeName=n1 CPUTot=2 RealMemory=2048 State=IDLE+DRAIN Reason=PreemptMode = GANG [root@1]"
PARTITION = "PartitionName=vjob State=UP Nodes=front1 PreemptMode=REQUEUE PriorityTier=1 GraceTime=0"
RESERVATION = "ReservationName=rmsplugin_gate StartTime=1 EndTime=2 Licenses=vjobgate:1 Users=slurm Flags=SPEC_NODES"


def configuration(**more: str) -> str:
    return "".join(f"{key} = {value}\n" for key, value in (CONFIGURATION | more).items())


def says(options: Mapping[str, Any], **more: str) -> str:
    """What the configuration is, where a command's standard input asks for it; nothing of all else."""
    return configuration(**more) if "show config" in options.get("text", "") else ""


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


def row(job: RmsJob, form: str) -> str:
    """What squeue prints of the job in this format."""
    *words, token = form.split("\x1f")
    known = {"State": job.state.value, "Name": job.name, "JobID": str(job.job_id), "MinMemory": "96M"}
    values = (known.get(word.strip(",").partition(":")[0], "0") for word in words)
    return "".join(f"{value}\x1f" for value in values) + f"{token}\n"


ROOM = replace(pending(), state=JobState.RUNNING, name=ROOM_NAME)
RUNNING = replace(pending(), job_id=8, state=JobState.RUNNING)


@pytest.mark.parametrize(
    ("jobs", "more"),
    [((ROOM,), {}), ((ROOM, RUNNING), {"sshare": 2}), ((ROOM, RUNNING, pending()), {"sshare": 2, "sprio": 2})],
    ids=["idle", "running", "waiting"],
)
def test_the_processes_of_forty_cycles(
    jobs: tuple[RmsJob, ...], more: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process costs a controller more than all that the engine does in a cycle in which nothing has changed.

    A cycle looks at Slurm once if nothing has changed (tests/scenarios/test_idle_cycles.py). Here it does each 3 s.
    """
    commands, started, now = SlurmCli(), Counter[str](), 0.0

    def run(*words: str, **options: Any) -> str:
        started[words[0]] += 1
        if words[0] == "squeue":
            return "".join(row(job, words[-1]) for job in jobs)
        return says(options, PriorityCalcPeriod="00:05:00")

    monkeypatch.setattr(commands, "_run", run)
    monkeypatch.setattr(commands._priorities, "_monotonic", lambda: now)
    for cycle in range(40):
        now = 3.0 * cycle
        assert len(commands.snapshot().jobs) == len(jobs)
    assert started == {"scontrol": 40, "squeue": 40, **more}


def test_both_parts_of_priorities_are_asked_for_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is answered once the other one was asked, too."""
    commands, together = SlurmCli(), threading.Barrier(2, timeout=PATIENCE_S)

    def run(*words: str, **options: Any) -> str:
        if words[0] in ("sprio", "sshare"):
            together.wait()
        return says(options)

    monkeypatch.setattr(commands, "_run", run)
    assert len(commands.snapshot_with(lambda: (pending(),)).jobs) == 1


def test_a_script_is_read_where_slurmctld_keeps_it_and_asked_for_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = SlurmCli()

    def run(*words: str, **options: Any) -> str:
        return "asked for" if "batch_script" in words else says(options, StateSaveLocation=str(tmp_path))

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


@pytest.mark.parametrize(
    "echo", ["scontrol: {}\n", "scontrol: "], ids=["with readline, which repeats the question", "without"]
)
def test_one_process_tells_all_but_jobs(echo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    commands, asked = SlurmCli(), []
    answers = {
        "show node": f"{NODE}\n",
        "show config": configuration(),
        "show partition": f"{PARTITION}\n",
        "show reservation": f"{RESERVATION}\n",
    }

    def run(*words: str, text: str = "", questions: int = 1, enough: str = "") -> str:
        asked.append(words)
        del enough
        lines = text.splitlines()
        assert questions == max(1, len(lines))
        return "".join(echo.format(line) + answers[line] for line in lines) + ("scontrol: " if lines else "")

    monkeypatch.setattr(commands, "_run", run)
    found = commands.snapshot_with(lambda: ())
    assert asked == [("scontrol", "-a", "-o")]
    assert {name: (each.cpus, each.reason) for name, each in found.nodes.items()} == {"n1": (2, "PreemptMode = GANG")}
    assert (found.preempt_mode, found.version) == ("OFF", "22.05.8")
    assert {name: each.nodes for name, each in found.partitions.items()} == {"vjob": ("front1",)}
    assert {name: each.end_time for name, each in found.reservations.items()} == {"rmsplugin_gate": 2}


# --- limits of arrays ---

ELEMENT = {"State": "PENDING", "PriorityLong": "5", "MinMemory": "96M", "Dependency": "(null)"}


class Arrays:
    """Slurm with arrays of two elements, of which one may run at once; what it is asked about jobs is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, gated: range, others: range = range(0)) -> None:
        self.commands = SlurmCli()
        self.asked: list[str] = []
        self.forgotten: set[int] = set()
        self._licenses = dict.fromkeys(gated, "vjobgate:1") | dict.fromkeys(others, "(null)")
        monkeypatch.setattr(self.commands, "_run", self._run)

    def eligible(self) -> list[str]:
        return [job.display_id for job in self.commands.snapshot().jobs if job.eligible]

    def _run(self, program: str, *words: str, **options: Any) -> str:
        if program == "squeue":
            arrays = self._licenses.items()
            return "".join(_element(words[-1], each, task, licenses) for each, licenses in arrays for task in (1, 2))
        if words == ("show", "job", "-o"):
            self.asked.append("all")
            return "".join(map(self._record, self._licenses))
        text = options.get("text", "")
        if text.startswith("show job"):
            self.asked.append(text)
            named = [int(line.removeprefix("show job ")) for line in text.splitlines()]
            if self.forgotten.intersection(named):
                raise NotFoundError("Invalid job id specified")
            return "".join(f"scontrol: {self._record(each)}" for each in named)
        return says(options)

    def _record(self, array: int) -> str:
        return f"JobId={array} ArrayJobId={array} ArrayTaskId=1-2%1 ArrayTaskThrottle=1 \n"


def _element(form: str, array: int, task: int, licenses: str) -> str:
    """What squeue prints of an element that waits."""
    *words, token = form.split("\x1f")
    known = ELEMENT | {"JobArrayID": f"{array}_{task}", "JobID": str(array), "ArrayJobID": str(array)}
    known |= {"ArrayTaskID": str(task), "Licenses": licenses}
    values = (known.get(word.strip(",").partition(":")[0], "0") for word in words)
    return "".join(f"{value}\x1f" for value in values) + f"{token}\n"


def test_no_jobs_are_asked_for_where_only_arrays_without_the_gate_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the many of a large cluster: the records of all its jobs would be read in each cycle."""
    slurm = Arrays(monkeypatch, gated=range(0), others=range(20, 25))
    assert len(slurm.eligible()) == 10
    assert slurm.asked == []


def test_only_the_arrays_that_wait_behind_the_gate_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Arrays(monkeypatch, gated=range(7, 9), others=range(20, 22))
    assert slurm.eligible() == ["7_1", "8_1", "20_1", "20_2", "21_1", "21_2"]
    assert slurm.asked == ["show job 7\nshow job 8\n"]


def test_all_jobs_are_asked_for_where_slurm_has_forgotten_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Arrays(monkeypatch, gated=range(7, 9))
    slurm.forgotten = {8}
    assert slurm.eligible() == ["7_1", "8_1"]
    assert slurm.asked == ["show job 7\nshow job 8\n", "all"]


def test_all_jobs_are_asked_for_where_many_arrays_wait_behind_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Arrays(monkeypatch, gated=range(20, 37))
    assert len(slurm.eligible()) == 17
    assert slurm.asked == ["all"]
