"""Which worker runs which test files: most of an end-to-end test is waiting, and other tests compute meanwhile.

Files come in the order of their directories, contracts and end-to-end tests first, and the longest of those before all:
what begins last has to be short, or the other workers wait for it in the end. All workers but one take files from the
front. The last one takes them from the back, so that one computes from the first minute on, while the others wait. It
steps back for them, and takes an end-to-end test when nothing else is left.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: How far tests without a cluster step back: those with one get some four times as much of a CPU.
NICE = 6

#: The files with clusters that take minutes. Of neighbours in this list one computes and the next one rather waits.
#: Those with clusters of their own come before those with the session's: it would idle beside them, with an engine that
#: asks Slurm four things a second.
LONGEST = (
    "e2e/test_cloud_image.py",
    "e2e/test_elastic.py",
    "e2e/test_accounting.py",
    "contract/hypervisor/test_hypervisor_migration.py",
    "e2e/test_deciding.py",
    "e2e/test_fronts.py",
    "contract/hypervisor/test_hypervisor_saves.py",
    "e2e/test_minicluster.py",
    "e2e/test_reports_live.py",
    "contract/hypervisor/test_hypervisor_memory.py",
    "e2e/test_gate.py",
    "e2e/test_rooms.py",
    "e2e/test_world_fails.py",
    "e2e/test_native.py",
    "e2e/test_submission.py",
    "e2e/test_context_switch.py",
    "e2e/test_crashes.py",
    "e2e/test_output.py",
)

_AT_FIRST = os.getpriority(os.PRIO_PROCESS, 0)


def is_one_of_many(config: pytest.Config) -> bool:
    """Whether this is a worker, and the whole suite runs."""
    return "PYTEST_XDIST_WORKER" in os.environ and not config.option.loadscopereorder


def longest_first(files: Sequence[str]) -> list[str]:
    """Files of tests, as paths below tests/, in the order in which they begin; all but the longest stay as they are."""
    places = {name: place for place, name in enumerate(LONGEST)}
    return sorted(files, key=lambda name: places.get(name, len(places)))


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
