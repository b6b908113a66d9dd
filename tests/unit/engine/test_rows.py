"""Rows of the ledger: how long a vjob has run, and whose VMs are whose."""

from __future__ import annotations

import pytest

from rmsplugin.engine.ledger.rows import VJobRow, VMRow, by_job
from rmsplugin.model.vjob import Geometry, VJobState


def vjob(state: VJobState) -> VJobRow:
    return VJobRow(
        *(12, "12", "alice", 1000, "vjob"),
        *(Geometry(1, 1, 64), state, ""),
        submitted=900.0,
        state_since=1000.0,
        ran_s=50.0,
    )


@pytest.mark.parametrize(
    ("state", "moment", "ran_s"),
    [
        (VJobState.RUNNING, 1030.0, 80.0),
        (VJobState.RUNNING, 990.0, 50.0),  # a clock that was set back takes nothing away
        (VJobState.SLEEPING, 1030.0, 50.0),
        (VJobState.PAUSED, 1030.0, 50.0),
    ],
)
def test_a_vjob_has_run_for_as_long_as_it_was_running(state: VJobState, moment: float, ran_s: float) -> None:
    assert vjob(state).ran_by(moment) == ran_s


def test_vms_are_given_by_job_in_their_order() -> None:
    vms = [
        VMRow(f"vjob{job}-{index}", job, index, "", "", "", "n1", memory_mib=512)
        for job, index in ((2, 0), (1, 0), (2, 1))
    ]
    assert by_job(vms) == {2: [vms[0], vms[2]], 1: [vms[1]]}
    assert by_job([]) == {}
