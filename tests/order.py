"""Which worker runs which test files: most of an end-to-end test is waiting, and other tests compute meanwhile.

Files come in the order of their directories, contracts and end-to-end tests first, and the longest of those before all:
what begins last has to be short, or the other workers wait for it in the end. The last two of five workers take files
from the back, where the longest of those that compute are: two compute from the first minute on, while the others wait.
They step back for them, and take an end-to-end test when nothing else is left.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: How far tests without a cluster step back: those with one get some six times as much of a CPU.
NICE = 8

#: How many of the workers take files from the back. With one of them the CPUs idled for a fifth of the first 20
#: minutes, and what computes was left for the end.
FROM_BACK = 2

#: The files with clusters that take minutes. Of neighbours in this list one computes and the next one rather waits.
#: The first one has the session's cluster, and makes the usual templates. Those with clusters of their own, and with
#: that of the contracts, come before the others with the session's: it would idle beside them, with an engine that asks
#: Slurm four things a second.
LONGEST = (
    "e2e/test_accounting.py",
    "e2e/test_elastic.py",
    "contract/test_nodes.py",
    "contract/hypervisor/test_hypervisor_migration.py",
    "contract/test_rms_power.py",
    "contract/test_rms_gate.py",
    "contract/hypervisor/test_hypervisor_saves.py",
    "contract/test_rms_rooms.py",
    "contract/hypervisor/test_hypervisor_memory.py",
    "contract/test_rms.py",
    "contract/hypervisor/test_hypervisor.py",
    "security/test_root_of_a_node.py",
    "contract/test_coordination.py",
    "contract/hypervisor/test_hypervisor_agents.py",
    "contract/test_node_templates.py",
    "e2e/test_fronts.py",
    "e2e/test_power.py",
    "e2e/test_minicluster.py",
    "e2e/test_deciding.py",
    "e2e/test_rooms.py",
    "e2e/test_context_switch.py",
    "e2e/test_gate.py",
    "e2e/test_world_fails.py",
    "e2e/test_native.py",
    "e2e/test_crashes.py",
    "e2e/test_submission.py",
    "e2e/test_addresses_of_guests.py",
    "e2e/test_templates.py",
    "e2e/test_admission.py",
    "e2e/test_reports_live.py",
    "e2e/test_jobs.py",
    "e2e/test_checkpointed_jobs.py",
    "e2e/test_memory_of_jobs.py",
    "e2e/test_storage_faults.py",
    "e2e/test_job_steps.py",
)

#: The files without clusters that take long, those that take longest last: they are taken from the back.
LONGEST_ALONE = (
    "scenarios/test_states.py",
    "scenarios/test_starts_from_templates.py",
    "unit/guest_tools/test_srun.py",
    "scenarios/test_observed_memory.py",
    "scenarios/test_lies.py",
    "security/test_doors.py",
    "scenarios/test_engine_killed.py",
    "properties/test_counting.py",
    "scenarios/test_neighbours_silent.py",
    "scenarios/test_random_days.py",
    "unit/guest_tools/test_guest_commands.py",
    "unit/node_agent/test_node_agents.py",
    "scenarios/test_back_off.py",
    "scenarios/test_checkpoints.py",
    "unit/contrib/test_benchmarks.py",
    "scenarios/test_generated_clusters.py",
    "unit/wrapper/test_wrapper.py",
)

_AT_FIRST = os.getpriority(os.PRIO_PROCESS, 0)


def is_one_of_many(config: pytest.Config) -> bool:
    """Whether this is a worker, and the whole suite runs."""
    return "PYTEST_XDIST_WORKER" in os.environ and not config.option.loadscopereorder


def longest_outside(files: Sequence[str]) -> list[str]:
    """Files of tests, as paths below tests/, in the order in which they are taken: the longest ones at both ends."""
    front = {name: place - len(LONGEST) for place, name in enumerate(LONGEST)}
    back = {name: place + 1 for place, name in enumerate(LONGEST_ALONE)}
    places = front | back
    return sorted(files, key=lambda name: places.get(name, 0))


class FromBothEnds(LoadFileScheduling):
    """Gives files away as ``--dist loadfile`` does, but to the last workers from the back."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._from_back = {f"gw{number}" for number in range(self.numnodes - FROM_BACK, self.numnodes)}

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id in self._from_back:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def step_back(with_cluster: bool) -> None:
    """Have the calling worker, and what it starts from now on, step back unless its next test has a cluster."""
    wanted = _AT_FIRST if with_cluster else min(_AT_FIRST + NICE, 19)
    if os.getpriority(os.PRIO_PROCESS, 0) != wanted:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
