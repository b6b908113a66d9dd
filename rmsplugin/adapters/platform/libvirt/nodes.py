"""Questions to libvirt about its nodes: the VMs there, their power, and the operations under way in them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import libvirt

from rmsplugin.adapters.platform.base import VMInfo, VMPower, VMStatistics
from rmsplugin.adapters.platform.libvirt.errors import NOT_THERE
from rmsplugin.adapters.platform.libvirt.jobs_question import JobsQuestion
from rmsplugin.adapters.platform.libvirt.link import Link
from rmsplugin.adapters.platform.libvirt.values import exists, operation, power, statistics
from rmsplugin.adapters.platform.libvirt.ways import Way
from rmsplugin.errors import TimedOutError
from rmsplugin.model.vm_names import parse_vm_name

T = TypeVar("T")

#: Seconds for which the VMs of a node are asked what is under way in them.
_JOBS_S = 2.0


class LibvirtNodes:
    """The libvirtd of each node, to which a connection is made when it is needed."""

    def __init__(self, way: Way, connect_timeout_s: float, call_timeout_s: float) -> None:
        """Connect to nothing yet.

        Args:
            way: the way to the libvirtd of each node.
            connect_timeout_s: bound of a connection.
            call_timeout_s: bound of a question.
        """
        self.call_timeout_s = call_timeout_s
        self._way = way
        self._connect_timeout_s = connect_timeout_s
        self._links: dict[str, Link] = {}
        self._silent: dict[str, list[str]] = {}  # by node, VMs that delayed the question for jobs: the last one first
        self._late: dict[str, list[JobsQuestion]] = {}  # by node, such questions for whose answers nobody waits
        self._lock = threading.Lock()
        self._heard: Callable[[str, str], None] = lambda node, name: None

    def listen(self, heard: Callable[[str, str], None]) -> None:
        """See ``base.Platform.listen``."""
        self._heard = heard

    def _hear(self, node: str, name: str) -> None:
        if parse_vm_name(name):
            self._heard(node, name)

    def link(self, node: str) -> Link:
        """The way to the libvirtd of a node."""
        with self._lock:
            if node not in self._links:
                connect, heard = partial(self._way.open, node), partial(self._hear, node)
                self._links[node] = Link(node, connect, self._connect_timeout_s, heard)
            return self._links[node]

    def query(self, node: str, what: str, function: Callable[[libvirt.virConnect], T]) -> T:
        """Make a call that changes nothing; ``what`` is for errors. Raises as ``Link.query`` does."""
        return self.link(node).query(what, function, self.call_timeout_s)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            links, self._links = list(self._links.values()), {}
        for link in links:
            link.close()
        self._way.close()

    def find(self, node: str, name: str) -> VMPower | None:
        """The VM's power; None if it does not exist. Raises UnavailableError."""

        def ask(conn: libvirt.virConnect) -> VMPower | None:
            try:
                domain = conn.lookupByName(name)
                state, reason = domain.state()
                return power(state, reason, operation(domain)) if exists(state) else None
            except libvirt.libvirtError as error:
                if error.get_error_code() in NOT_THERE:
                    return None
                raise

        return self.query(node, f"looking for {name}", ask)

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """See ``base.Platform.list_vms``."""
        flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT

        def ask(conn: libvirt.virConnect) -> dict[str, tuple[str, int, int]]:
            records = conn.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, flags)
            return {
                domain.name(): (domain.UUIDString(), values["state.state"], values["state.reason"])
                for domain, values in records
                if parse_vm_name(domain.name())
            }

        states = self.query(node, "listing VMs", ask)
        jobs = self._jobs(node, list(states))
        return {
            name: _info(node, name, uuid, power(state, reason, jobs[name]), jobs[name])
            for name, (uuid, state, reason) in sorted(states.items())
            if exists(state)
        }

    def _jobs(self, node: str, names: list[str]) -> dict[str, int | None]:
        """The operation (VIR_DOMAIN_JOB_OPERATION_*) under way in each VM.

        A VM that is locked, as while it is restored, keeps the question waiting for up to 30 s. It must not keep the
        whole node waiting, nor the cycle: no answer means that an operation is under way, and the answer would have
        said the same. For VMs behind it in the question this would be said without reason: so a VM that did not answer
        is asked last from then on. It is not asked again before it has answered: libvirt serves five questions of one
        connection at a time.
        """
        with self._lock:
            late = self._late[node] = [each for each in self._late.get(node, ()) if each.vm]
        asked, silent = {each.vm for each in late}, self._silent.get(node, [])
        free = [name for name in names if name not in asked]
        last, first = [name for name in silent if name in free], [name for name in free if name not in silent]
        question = JobsQuestion(last, first)
        if free:
            try:
                self.link(node).call("listing jobs", question.ask, min(_JOBS_S, self.call_timeout_s))
            except TimedOutError:
                left = question.give_up()
                with self._lock:
                    self._late[node].append(question)
                delays = [name for name in left[-1:] if name == question.vm]
                others = [name for name in silent if name in asked or name in left]
                self._silent[node] = [*dict.fromkeys(delays + others)]
                return question.answers(names)
        self._silent[node] = [name for name in silent if name in asked]
        return question.answers(names)

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """See ``base.Platform.statistics``."""
        wanted = (
            libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
            | libvirt.VIR_DOMAIN_STATS_VCPU
            | libvirt.VIR_DOMAIN_STATS_BALLOON
            | libvirt.VIR_DOMAIN_STATS_INTERFACE
        )
        flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT

        def ask(conn: libvirt.virConnect) -> dict[str, VMStatistics]:
            return {
                domain.name(): statistics(values)
                for domain, values in conn.getAllDomainStats(wanted, flags)
                if parse_vm_name(domain.name())
            }

        return dict(sorted(self.query(node, "reading statistics", ask).items()))


def _info(node: str, name: str, uuid: str, now: VMPower, under_way: int | None) -> VMInfo:
    # libvirt keeps the job of a migration that broke off in post-copy, though no operation is under way.
    return VMInfo(name, node, now, uuid, under_way is not None and now is not VMPower.HALF)
