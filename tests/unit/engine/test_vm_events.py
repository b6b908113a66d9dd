"""What the engine does when it is told that a VM has ended or stands still."""

from __future__ import annotations

import pytest

from rmsplugin.engine.observe.vm_events import VMEvents


@pytest.mark.parametrize(
    ("vm", "woken"),
    [("vjob7-0", 1), ("vjob7-12", 1), ("vjob8-0", 0), ("somebody", 0), ("vjob7", 0)],
    ids=["a vjob's", "another one of it", "its vjob has an operation", "not ours", "no VM"],
)
def test_a_cycle_runs_if_a_vm_has_ended_that_nothing_of_ours_ends(vm: str, woken: int) -> None:
    cycles: list[str] = []
    VMEvents(lambda job: job == 8, lambda: cycles.append(vm)).heard("n1", vm)
    assert len(cycles) == woken
