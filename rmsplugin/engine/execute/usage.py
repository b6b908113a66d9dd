"""Usage: asks guests for the usage of the job's processes, and keeps it; for `rmsplugin usage`."""

from __future__ import annotations

import grp
import logging
import pwd
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.errors import RmspluginError
from rmsplugin.model.vjob import VJobState

log = logging.getLogger(__name__)

#: A guest whose job computes with all its CPUs answers late. The end, or the suspend, of its VMs waits for it so long,
_END_S = 10.0
#: and a request for the usage of a running vjob so long.
_SHOW_S = 20.0
_PARALLEL = 32
_SHORT = "memory-short"


def ask_all(
    ledger: Ledger, guests: Guests, hypervisor: Platform, vjobs: Iterable[tuple[VJobRow, Sequence[VMRow]]]
) -> None:
    """Ask all VMs of running vjobs, as ``ask`` does one."""
    asked = [(vjob, vm) for vjob, vms in vjobs for vm in vms]
    if asked:
        with ThreadPoolExecutor(min(_PARALLEL, len(asked)), thread_name_prefix="usage") as pool:
            list(pool.map(lambda each: ask(ledger, guests, hypervisor, *each, timeout_s=_SHOW_S), asked))


def ask(
    ledger: Ledger, guests: Guests, hypervisor: Platform, vjob: VJobRow, vm: VMRow, *, timeout_s: float = _END_S
) -> None:
    """Ask one VM, and keep its answer; if it is silent, or does not run, its last answer stays.

    Where VMs have no kernel of their own the platform is asked.
    """
    if not vjob.script_started or not vm.phase.in_memory:
        return
    try:
        if hypervisor.capabilities.own_kernel:
            used = guests.used(vm.address, vm.host_key_public, timeout_s=timeout_s)
        else:
            used = hypervisor.used(vm.host, vm.name)
    except RmspluginError as error:  # an older release's guest, or agent, does not count, or the VM is lost
        log.info("what was used in %s is not known: %s", vm.name, error)
        return
    if used is None:
        return
    first = not any(known.idx == vm.idx for known in ledger.usage.of_vjob(vjob.job_id))
    ledger.usage.record(vjob.job_id, vm.idx, used)
    requested_mib = vjob.geometry.memory_mib_of(vm.idx)
    if first and 0 < used.available_kib < requested_mib * 1024:
        available_mib, image = used.available_kib // 1024, vjob.geometry.image
        lacks_mib = requested_mib - available_mib
        words = (
            f"its script had {available_mib} MiB of the {requested_mib} that were asked for: "
            f"overhead_mib in [image.{image}] has to be larger by {lacks_mib}"
        )
        ledger.event(_SHORT, words, vjob=vjob.display_id, vm=vm.name)


def view(ledger: Ledger, clock: Clock, vjob: VJobRow) -> dict[str, Any]:
    """The answer of `rmsplugin usage` for a vjob. Sums are over its VMs; null if nothing is known."""
    known = ledger.usage.of_vjob(vjob.job_id)
    geometry, elapsed_s = vjob.geometry, vjob.ran_by(clock.now())
    used = [each.used for each in known]
    cpu_s = sum(each.cpu_us for each in used) / 1e6 if used else None
    memory_mib = sum(each.memory_bytes for each in used) / 2**20 if used else None
    booked_s, requested_mib = geometry.total_cpus * elapsed_s, geometry.total_memory_mib
    return {
        "job_id": vjob.job_id,
        "display_id": vjob.display_id,
        "user": vjob.user,
        "group": _group(vjob.uid),
        "state": _state(vjob),
        "exit_code": vjob.exit_code,
        "signal": vjob.exit_signal,
        "vms": geometry.vms,
        "cpus": geometry.cpus,
        "memory_mib": geometry.memory_mib,
        "cpus_total": geometry.total_cpus,
        "memory_total_mib": geometry.total_memory_mib,
        "elapsed_s": round(elapsed_s, 1),
        "counted": max((each.time for each in known), default=None),
        "cpu_s": _rounded(cpu_s, 2),
        "user_s": _rounded(sum(each.user_us for each in used) / 1e6, 2) if used else None,
        "system_s": _rounded(sum(each.system_us for each in used) / 1e6, 2) if used else None,
        "cpu_efficiency": _share(cpu_s, booked_s),
        "memory_used_mib": _rounded(memory_mib, 1),
        "memory_most_mib": _rounded(max(each.memory_bytes for each in used) / 2**20, 1) if used else None,
        "memory_with_caches_mib": _rounded(sum(each.peak_bytes for each in used) / 2**20, 1) if used else None,
        "memory_efficiency": _share(memory_mib, requested_mib),
        "read_mib": _rounded(sum(each.read_bytes for each in used) / 2**20, 1) if used else None,
        "written_mib": _rounded(sum(each.written_bytes for each in used) / 2**20, 1) if used else None,
    }


def _state(vjob: VJobRow) -> str:
    """The state, as Slurm names it, of a job whose script ended by itself; else the vjob's state."""
    if vjob.finished and vjob.exit_code is not None:
        return "FAILED" if vjob.exit_code or vjob.exit_signal else "COMPLETED"
    return "ENDED" if vjob.state is VJobState.TERMINATED else str(vjob.state).upper()


def _group(uid: int) -> str:
    try:
        gid = pwd.getpwuid(uid).pw_gid
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else round(part / whole, 4)
