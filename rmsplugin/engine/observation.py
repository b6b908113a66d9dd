"""Observation: one reading of the RMS and of all hypervisors, on which a whole cycle is based."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rmsplugin.adapters.hypervisor.base import VMInfo
from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.engine.context import Context
from rmsplugin.engine.rooms import Rooms, find_rooms, vm_hosts
from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)

_PARALLEL = 32


@dataclass(frozen=True)
class Observation:
    """What was seen. ``taken`` is the time just before the first look: whatever changed later may be missing."""

    taken: float
    rms: RmsSnapshot
    rooms: Rooms
    vms: dict[str, dict[str, VMInfo]]  # by node, then VM name; only of nodes whose hypervisor answered
    unreachable: dict[str, str] = field(default_factory=dict)  # node -> why
    faults: dict[str, str] = field(default_factory=dict)  # node -> what the prolog of its room says is wrong there

    def where(self, vm: str) -> list[str]:
        """Nodes on which the VM was seen."""
        return [node for node, vms in self.vms.items() if vm in vms]


def observe(context: Context) -> Observation:
    """Look at everything once. Raises UnavailableError if the RMS does not answer."""
    taken = context.clock.now()
    rms = context.rms.snapshot()
    vms: dict[str, dict[str, VMInfo]] = {}
    unreachable: dict[str, str] = {}
    # Nodes that are no VM hosts any more, by a change of the settings or of slurm.conf, may still have VMs.
    left = {place for vm in context.ledger.live_vms() for place in (vm.host, vm.destination)} - {""}
    names = list(dict.fromkeys([*vm_hosts(context.settings, rms), *sorted(left)]))
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="observe") as pool:
        futures = {name: pool.submit(context.hypervisor.list_vms, name) for name in names}
        for name, future in futures.items():
            try:
                vms[name] = future.result()
            except RmspluginError as error:
                unreachable[name] = str(error)
            except Exception as bug:  # one odd node keeps nobody from seeing the others
                log.exception("looking at %s", name)
                unreachable[name] = f"internal error: {bug!r}"
    rooms = find_rooms(context.settings, rms, taken)
    reports = context.ledger.room_reports(room.job_id for room in rooms.by_node.values())
    faults = {report.node: report.problem for report in reports if report.hook == "prolog" and report.problem}
    return Observation(taken, rms, rooms, vms, unreachable, faults)
