"""Which commands inside a VM are requeues of the very job (decision 0051), and that the engine knows of them first."""

from __future__ import annotations

import pytest

from rmsplugin.wrapper.carry_out import own_requeue
from rmsplugin.wrapper.carry_out.own_requeue import carried_out, names_own_job

JOB = {"SLURM_JOB_ID": "12"}
ELEMENT = {"SLURM_JOB_ID": "15", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
WORDS = ["", "0", "0", "0", ""]


@pytest.mark.parametrize(
    ("environ", "line", "own"),
    [
        (JOB, "scontrol requeue 12", True),
        (JOB, "scontrol REQ 12", True),
        (JOB, "scontrol -Q requeuehold State=SpecialExit 12", True),
        (JOB, "scontrol requeue 11,12", True),
        (JOB, "scontrol requeue 11 12", True),
        (JOB, "scontrol requeue 112", False),
        (JOB, "scontrol requeue 12_3", False),
        (JOB, "scontrol requeue", False),
        (JOB, "scontrol update JobId=12 Comment=requeue", False),
        (JOB, "scontrol show job 12", False),
        (JOB, "squeue requeue 12", False),
        (JOB, "scontrol re 12", False),
        (ELEMENT, "scontrol requeue 15", True),
        (ELEMENT, "scontrol requeue 12_3", True),
        (ELEMENT, "scontrol requeue 12", True),
        (ELEMENT, "scontrol requeue 12_[1-2,3]", True),
        (ELEMENT, "scontrol requeue 7,12_[1-5:2]", True),
        (ELEMENT, "scontrol requeue 12_[0-4:2]", False),
        (ELEMENT, "scontrol requeue 12_2", False),
        (ELEMENT, "scontrol requeue 13_3", False),
        (ELEMENT, "scontrol requeue 12_[x]", False),
        (ELEMENT, f"scontrol requeue 12_[{'9' * 5000},3]", True),
        (ELEMENT, f"scontrol requeue 12_[1-{'9' * 5000}]", False),
        (ELEMENT, "scontrol requeue 12_[3", False),
    ],
)
def test_requeue_of_the_own_job_is_known(environ: dict[str, str], line: str, own: bool) -> None:
    assert names_own_job(line.split(), environ) is own


@pytest.mark.parametrize(
    ("code", "told"),
    [(0, ["script", "carried out"]), (1, ["script", "carried out", "nobody"]), (143, ["script", "carried out"])],
    ids=["done", "refused", "ended by Slurm itself"],
)
def test_engine_is_told_before_slurm_and_of_a_refusal_after_it(
    monkeypatch: pytest.MonkeyPatch, code: int, told: list[str]
) -> None:
    happened: list[str] = []

    class Engine:
        def __init__(self, client: object, job_id: str) -> None:
            assert job_id == "12"

        def requeued(self, by: str, restarts: int) -> None:
            assert restarts == 2
            happened.append(by)

    def act() -> int:
        happened.append("carried out")
        return code

    monkeypatch.setattr(own_requeue, "EngineLink", Engine)
    assert carried_out(act, WORDS, {**JOB, "SLURM_RESTART_COUNT": "2"}) == code
    assert happened == told
