"""Which worker runs which test files: most of an end-to-end test is waiting, and other tests compute meanwhile.

Files come in the order of their directories, contracts and end-to-end tests first. All workers but one take them
from the front. The last one takes from the back, so that from the first minute on there is one that computes while the
others wait. It steps back for them, and takes an end-to-end test when nothing else is left.
"""

from __future__ import annotations

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: How far tests without a cluster step back: those with one get some four times as much of a CPU.
NICE = 6

_AT_FIRST = os.getpriority(os.PRIO_PROCESS, 0)


class FromBothEnds(LoadFileScheduling):
    """Gives files away as ``--dist loadfile`` does, but to the last worker from the back."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._last = f"gw{self.numnodes - 1}"

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id == self._last:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def step_back(with_cluster: bool) -> None:
    """Have the calling worker, and what it starts from now on, step back unless its next test has a cluster."""
    wanted = _AT_FIRST if with_cluster else min(_AT_FIRST + NICE, 19)
    if os.getpriority(os.PRIO_PROCESS, 0) != wanted:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
