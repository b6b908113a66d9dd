"""What a plain job of Slurm and its vjob have to do with each other, and when a paused one may go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsNode, RmsPartition, RmsSnapshot
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow
from rmsplugin.engine.observe.others import of_others, why_not_free
from rmsplugin.engine.reconcile.native import reconcile_native
from rmsplugin.engine.reconcile.reconcile import RmsAct
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import Geometry, VJobState

S, J, K = VJobState, JobState, OperationKind

TWO = Geometry(2, 2, 300)
VJOB = VJobRow(7, "7", "alice", 2001, "batch", TWO, S.RUNNING, "why", submitted=1.0, state_since=10.0)


def job(job_id: int = 7, state: JobState = J.RUNNING, **changes: Any) -> RmsJob:
    made = RmsJob(
        *(str(job_id), job_id, "batch", "alice", 2001, "job", state, str(state), "None"),
        **{"held": False, "gated": False, "completing": False, "cpus": 4, "memory_mib": 300, "priority": 1},
        **{"submit_time": 1, "eligible": True, "nodes": ("n1", "n2"), "batch_host": "n1", "restarts": 0},
    )  # type: ignore[arg-type]
    return replace(made, **changes)


def look(jobs: list[RmsJob], taken: Mapping[str, tuple[int, int]]) -> RmsSnapshot:
    """Two nodes of 4 CPUs; ``taken``: CPUs and MiB of each in Slurm's books."""
    nodes = {
        name: RmsNode(name, 4, 1000, True, False, "MIXED", cpus_taken=taken[name][0], memory_taken_mib=taken[name][1])
        for name in ("n1", "n2")
    }
    partitions = {
        "batch": RmsPartition("batch", True, ("n1", "n2"), "REQUEUE", 1, 0),
        "urgent": RmsPartition("urgent", True, ("n1",), "REQUEUE", 5, 0),
        "far": RmsPartition("far", True, ("n3",), "REQUEUE", 5, 0),
    }
    return RmsSnapshot(tuple(jobs), nodes, partitions)


FREE = {"n1": (0, 300), "n2": (0, 300)}
PARTITIONS = ("batch", "urgent", "far")
PENDING = job(8, J.PENDING, nodes=(), gated=False)


@pytest.mark.parametrize(
    ("vjob", "found", "what"),
    [
        ({}, job(), None),
        ({}, job(state=J.CONFIGURING), None),
        ({}, job(completing=True), None),
        ({}, job(state=J.ENDED), K.STOP),
        ({}, job(state=J.ENDED, completing=True), K.STOP),
        ({}, None, K.STOP),
        ({}, job(state=J.SUSPENDED), K.PAUSE),
        ({}, job(state=J.PENDING), K.RESTART),
        ({}, job(restarts=1), K.REATTACH),
        ({"state": S.PAUSED, "resumes": True}, job(state=J.SUSPENDED), None),
        ({"state": S.PAUSED, "resumes": True}, job(), K.PAUSE),
        ({"state": S.PAUSED, "resumes": False}, job(), K.UNPAUSE),
        ({"state": S.PAUSED, "resumes": True}, job(restarts=1), K.UNPAUSE),
        ({"state": S.PAUSED}, job(state=J.PENDING), K.RESTART),
        ({"state": S.PAUSED}, job(state=J.ENDED), K.STOP),
        ({"state": S.STARTING}, job(state=J.PENDING), K.START),
        ({"state": S.PAUSING}, job(), K.PAUSE),
        ({"state": S.UNPAUSING}, job(state=J.SUSPENDED), K.UNPAUSE),
        ({"state": S.STOPPING}, job(), K.RESTART),
        ({"state": S.STOPPING}, job(state=J.ENDED), K.STOP),
        ({"state": S.WAITING}, job(state=J.PENDING, gated=True), None),
        ({"state": S.WAITING}, job(state=J.PENDING), RmsAct.GATE),
        ({"state": S.WAITING}, job(state=J.CONFIGURING), RmsAct.REQUEUE),
        ({"state": S.WAITING}, job(), K.START),
        ({"state": S.WAITING}, job(state=J.SUSPENDED), K.START),
        ({"state": S.WAITING}, job(state=J.ENDED), RmsAct.FORGET),
        ({"state": S.TERMINATED}, job(state=J.PENDING), RmsAct.RENEW),
        ({"state": S.TERMINATED}, job(state=J.ENDED), None),
    ],
)
def test_each_state_of_a_job_has_one_answer(
    vjob: dict[str, Any], found: RmsJob | None, what: OperationKind | RmsAct | None
) -> None:
    directive = reconcile_native(replace(VJOB, **vjob), found)
    assert (directive and directive.what) == what
    assert directive is None or not (directive.absence or directive.disputed)


@pytest.mark.parametrize(
    ("others", "taken", "why"),
    [
        ([], FREE, ""),
        ([job(8, nodes=("n1",), cpus=2)], {"n1": (2, 600), "n2": (0, 300)}, ""),
        ([job(8, nodes=("n1",), cpus=3)], {"n1": (3, 600), "n2": (0, 300)}, "1 CPU of n1 is free, 2 needed"),
        # Slurm has started it between its look at nodes and that at jobs.
        ([job(8, nodes=("n2",), cpus=4)], FREE, "0 CPUs of n2 are free, 2 needed"),
        # Its clean-up goes on, and the books have its CPUs still.
        ([job(8, J.ENDED, nodes=("n2",), cpus=4, completing=True)], FREE, "0 CPUs of n2 are free, 2 needed"),
        ([job(8, J.SUSPENDED, nodes=("n2",), cpus=4)], FREE, ""),
        ([], {"n1": (4, 300), "n2": (0, 300)}, "0 CPUs of n1 are free, 2 needed"),
        ([PENDING], FREE, "Slurm may start job 8 there"),
        ([replace(PENDING, partition="urgent")], FREE, "Slurm may start job 8 there"),
        ([replace(PENDING, gated=True)], FREE, ""),
        ([replace(PENDING, partition="far")], FREE, ""),
    ],
)
def test_a_suspended_job_is_resumed_only_where_nobody_has_or_may_get_its_cpus(
    others: list[RmsJob], taken: dict[str, tuple[int, int]], why: str
) -> None:
    seen = look([job(state=J.SUSPENDED), *others], taken)
    assert why_not_free(seen, 7, TWO, PARTITIONS) == why


@pytest.mark.parametrize("jobs", [[], [job()], [job(state=J.ENDED)]])
def test_a_job_that_is_not_suspended_is_not_resumed(jobs: list[RmsJob]) -> None:
    assert why_not_free(look(jobs, FREE), 7, TWO, PARTITIONS).startswith("its job is ")


def test_a_job_on_a_node_that_is_down_is_not_resumed() -> None:
    seen = look([job(state=J.SUSPENDED)], FREE)
    down = replace(seen.nodes["n2"], up=False, state="DOWN")
    seen = replace(seen, nodes={**seen.nodes, "n2": down})
    assert why_not_free(seen, 7, TWO, PARTITIONS) == "n2 is DOWN in Slurm"


def test_what_no_vjob_has_is_others() -> None:
    booked = {7: TWO, 9: Geometry(1, 1, 100)}
    jobs = [job(), job(9, J.SUSPENDED, nodes=("n2",), cpus=1), job(8, nodes=("n1",), cpus=1)]
    seen = look(jobs, {"n1": (3, 350), "n2": (2, 400)})
    assert of_others(seen, booked) == {"n1": Resources(1, 50)}
    assert of_others(seen, {}) == {"n1": Resources(3, 350), "n2": Resources(2, 400)}


def test_a_vjob_in_clean_up_is_not_counted_twice() -> None:
    seen = look([job(state=J.ENDED, completing=True)], {"n1": (2, 300), "n2": (2, 300)})
    assert of_others(seen, {7: TWO}) == {}
