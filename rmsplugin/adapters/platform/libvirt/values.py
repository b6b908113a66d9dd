"""The meaning of libvirt's values: capabilities, flags of migrations, states, jobs and statistics of domains."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import libvirt
from lxml import etree

from rmsplugin.adapters.platform.base import Converge, VMPower, VMStatistics

_POSTCOPY_FAILED = {
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED),
    (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED),
}

#: The VM stands still at its destination until it is gone from its source, and is let run then. libvirt itself would
#: let it run before its source has heard of it, and would run it on at the source if that never hears (I1).
HELD: int = libvirt.VIR_MIGRATE_PAUSED

MIGRATE_FLAGS: dict[Converge, int] = {
    # QEMU slows the guest down only when the memory is written faster than it can be sent.
    "auto-converge": libvirt.VIR_MIGRATE_AUTO_CONVERGE | HELD,
    # It has to run at its destination while the rest of its memory comes.
    "post-copy": libvirt.VIR_MIGRATE_POSTCOPY,
    "abort": HELD,
}


def version(number: int) -> str:
    """A release in the form for people."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def offered_domain_type(capabilities: str) -> str:
    """``kvm`` where libvirt's capabilities offer it, else ``qemu``."""
    document = etree.fromstring(capabilities.encode())
    return "kvm" if document.find("guest/arch[@name='x86_64']/domain[@type='kvm']") is not None else "qemu"


def host_cpu(capabilities: str) -> str:
    """The node's CPU, as libvirt's capabilities describe it."""
    cpu = etree.fromstring(capabilities.encode()).find("host/cpu")
    return "" if cpu is None else etree.tostring(cpu, encoding="unicode")


def qemu_uid(capabilities: str) -> int | None:
    """The account of QEMU on this node, by libvirt's capabilities; None if they do not tell."""
    label = etree.fromstring(capabilities.encode()).findtext("host/secmodel[model='dac']/baselabel") or ""
    found = re.match(r"\+?([0-9]+):", label)
    return int(found[1]) if found else None


def confined_by(capabilities: str) -> str:
    """The confinement of QEMU to its VM's files on this node: a security model of libvirt's; "" if there is none."""
    models = {model.text for model in etree.fromstring(capabilities.encode()).findall("host/secmodel/model")}
    return next((model for model in ("apparmor", "selinux") if model in models), "")


def is_emulated(domain_xml: str) -> bool:
    """Whether QEMU emulates the CPUs of a VM."""
    return etree.fromstring(domain_xml.encode()).get("type") == "qemu"


def offered_machines(capabilities: str) -> frozenset[str]:
    """The machine types with versions in libvirt's capabilities."""
    document = etree.fromstring(capabilities.encode())
    machines = document.findall("guest/arch[@name='x86_64']//machine")
    # A machine type with `canonical` is an alias, such as q35.
    return frozenset(machine.text for machine in machines if machine.text and machine.get("canonical") is None)


def exists(state: int) -> bool:
    """Whether a domain in this state (VIR_DOMAIN_*) is a VM."""
    return state not in (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_NOSTATE)


def operation(domain: libvirt.virDomain) -> int | None:
    """The operation under way in the VM; None if there is none."""
    try:
        statistics = domain.jobStats()
    except libvirt.libvirtError as error:
        # libvirt's answer on the destination of a migration: it has figures only at the source.
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_UNSUPPORTED:
            return int(libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN)
        raise
    if statistics["type"] == libvirt.VIR_DOMAIN_JOB_NONE:
        return None
    return int(statistics.get("operation", libvirt.VIR_DOMAIN_JOB_OPERATION_UNKNOWN))


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a save or a migration."""

    done_bytes: int
    total_bytes: int  # 0: unknown yet
    iteration: int  # of a migration: the number of times that it has begun to send missing or rewritten memory


def job_progress(conn: libvirt.virConnect, name: str) -> JobProgress:
    """The progress of the operation under way in the VM. Raises libvirtError."""
    found = conn.lookupByName(name).jobStats()
    total = int(found.get("data_total", 0))
    # The sent bytes include headers, and pages that were sent again; the total of newer QEMUs does not.
    done = min(int(found.get("data_processed", 0)), total)
    return JobProgress(done, total, int(found.get("memory_iteration", 0)))


def power(state: int, reason: int, operation: int | None) -> VMPower:
    """The power for a domain's state and reason, while ``operation`` (None: none) is under way in it."""
    if (state, reason) in _POSTCOPY_FAILED:
        return VMPower.HALF
    if state == libvirt.VIR_DOMAIN_PAUSED:
        incoming = (libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_IN, libvirt.VIR_DOMAIN_JOB_OPERATION_RESTORE)
        starting = reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP
        return VMPower.INCOMING if starting or operation in incoming else VMPower.PAUSED
    if state == libvirt.VIR_DOMAIN_SHUTDOWN:
        return VMPower.ENDING
    if state == libvirt.VIR_DOMAIN_CRASHED:
        return VMPower.CRASHED
    return VMPower.RUNNING


def statistics(values: dict[str, Any]) -> VMStatistics:
    """The counters of one record of getAllDomainStats."""
    delays = [value for key, value in values.items() if key.startswith("vcpu.") and key.endswith(".delay")]
    return VMStatistics(
        cpu_time_ns=values.get("cpu.time"),
        vcpu_delay_ns=sum(delays) if delays else None,
        memory_rss_kib=values.get("balloon.rss") or None,  # libvirt gives 0 if it could not read it just then
        memory_current_kib=values.get("balloon.current"),
        memory_usable_kib=values.get("balloon.usable"),
        major_faults=values.get("balloon.major_fault"),
        swap_in_kib=values.get("balloon.swap_in"),
        guest_said_s=values.get("balloon.last-update"),
        received_bytes=_of_interfaces(values, "rx"),
        sent_bytes=_of_interfaces(values, "tx"),
    )


def _of_interfaces(values: dict[str, Any], way: str) -> int | None:
    """The bytes of all interfaces of a record, as the guest counts them; None: it has none of them."""
    found = [value for key, value in values.items() if key.startswith("net.") and key.endswith(f".{way}.bytes")]
    return sum(found) if found else None
