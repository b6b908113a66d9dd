"""Doors: the hosts from which a request may come. Munge proves its user, but only its connection proves its host.

Root of any host with the cluster's munge key can make a credential of any user, and write any address into it. So over
TCP a credential alone opens no door to more than lists. A host's report about itself has to come from that host, a
wrapper's request from the front where its job runs, users' requests from login hosts, and requests of operators and of
Slurm's hooks on the controller from the controller (docs/decisions/0064-doors.md).
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import ForbiddenError, NotFoundError, RmspluginError, UnavailableError
from rmsplugin.settings import Settings

#: The addresses of a name are resolved again after ``_FRESH_S``; if they do not fit, already after ``_STALE_S``.
_FRESH_S, _STALE_S = 300.0, 5.0
#: The least time between two questions to Slurm where one job runs.
_READ_S = 1.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Origin:
    """The host that a connection comes from; ``here``: this host itself."""

    address: Address | None = None
    here: bool = True

    @classmethod
    def of(cls, peer: str, own: str) -> Origin:
        """The origin of a connection over TCP with these two ends."""
        address = read_address(peer)
        return cls(address, here=address == read_address(own))

    def __str__(self) -> str:
        return "this host" if self.here or self.address is None else str(self.address)


LOCAL = Origin()


def read_address(text: str) -> Address:
    """Read an address as sockets give it; an IPv4 address may be written as an IPv6 one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class HostNames:
    """The addresses of hosts, kept for a while. Several threads may call."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        resolve: Callable[[str], frozenset[Address]] | None = None,
    ) -> None:
        self._monotonic, self._resolve = monotonic, resolve or _resolve
        self._names: dict[str, tuple[float, frozenset[Address]]] = {}

    def has(self, origin: Origin, hosts: Iterable[str]) -> bool:
        """Whether the origin is one of the hosts: names, addresses or networks. May wait for names."""
        address = origin.address
        return address is not None and any(self._is_at(address, host) for host in hosts)

    def known(self, host: str) -> frozenset[Address]:
        """The addresses that a name had when it was resolved not long ago; else none. Waits for nothing."""
        asked, addresses = self._names.get(host, (0.0, frozenset()))
        return addresses if self._monotonic() - asked < _FRESH_S else frozenset()

    def _is_at(self, address: Address, host: str) -> bool:
        if "/" in host:
            return address in ipaddress.ip_network(host, strict=False)
        asked, known = self._names.get(host, (-_FRESH_S, frozenset()))
        age_s = self._monotonic() - asked
        if age_s >= _FRESH_S or (address not in known and age_s >= _STALE_S):
            known = self._resolve(host)
            self._names[host] = (self._monotonic(), known)
        return address in known


class Doors:
    """Knows hosts by their addresses. Several threads may call; a method that may wait for Slurm or names says so."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        jobs: JobReader,
        seen: Callable[[], Observation | None],
        monotonic: Callable[[], float] = time.monotonic,
        resolve: Callable[[str], frozenset[Address]] | None = None,
    ) -> None:
        """``seen``: the newest look at the cluster."""
        self._settings = settings
        self._ledger = ledger
        self._jobs = jobs
        self._seen = seen
        self._monotonic = monotonic
        self._names = HostNames(monotonic, resolve)
        self._lock = threading.Lock()
        self._fronts: dict[str, str] = {}  # by display id
        self._fronts_of: Observation | None = None
        self._read: dict[int, float] = {}

    # -- kinds of hosts ------------------------------------------------------------------------------------------

    def trusts(self, origin: Origin) -> bool:
        """Whether root and operators of that host count as such. May wait for names."""
        return origin.here or self._names.has(origin, self._settings.engine.trusted_hosts)

    def has_logins(self, origin: Origin) -> bool:
        """Whether users log in to that host. May wait for names."""
        return self.trusts(origin) or self._names.has(origin, self._settings.engine.login_hosts)

    def require_trusted(self, origin: Origin) -> None:
        """Raise ForbiddenError unless root and operators of that host count as such. May wait for names."""
        if not self.trusts(origin):
            raise ForbiddenError(
                f"this is for the controller, and {origin} is none; see engine.trusted_hosts in the settings"
            )

    def require_login(self, origin: Origin) -> None:
        """Raise ForbiddenError unless users log in to that host. May wait for names."""
        if not self.has_logins(origin):
            raise ForbiddenError(
                f"users' requests are not taken from {origin}, which is no login host; see engine.login_hosts"
            )

    def require_node(self, origin: Origin, node: str, what: str) -> None:
        """Raise ForbiddenError unless the request comes from this node of Slurm's. May wait for names."""
        if not (origin.here or self._is_node(origin, node)):
            raise ForbiddenError(f"only {node} itself may tell {what}, and {origin} is not its address{_AS_SLURM_SAYS}")

    def require_room(self, origin: Origin, node: str, room: int) -> None:
        """As ``require_node``, for reports of the room's hooks; a room of another node is refused, too."""
        seen = self._seen()
        of = next((each.node for each in seen.rooms.by_node.values() if each.job_id == room), node) if seen else node
        if of != node:
            raise ForbiddenError(f"job {room} is the room on {of}, not on {node}")
        self.require_node(origin, node, "what the hooks of a room found")

    # -- where jobs run ------------------------------------------------------------------------------------------

    def is_open(self, origin: Origin, display_id: str) -> bool:
        """Whether the job of this vjob is known to run on that host. Waits for nothing."""
        front = self._known_front(display_id)
        return bool(front) and origin.address in self._names.known(self._address_of(front))

    def require_wrapper(self, origin: Origin, display_id: str) -> None:
        """Return if a request of this vjob's wrapper comes from the front of its job, or from a login host.

        May wait for Slurm and for names.

        Raises:
            UnavailableError: it comes from elsewhere. A wrapper asks again: perhaps its job is not known there yet.
        """
        if self.has_logins(origin):
            return
        front = self._front(display_id)
        if front and self._is_node(origin, front):
            return
        front = self._read_front(display_id) or front
        if front and self._is_node(origin, front):
            return
        where = f"runs on {front}" if front else "runs on no front"
        raise UnavailableError(f"job {display_id} {where}, and {origin} is not its address{_AS_SLURM_SAYS}")

    def require_front(self, origin: Origin, job_id: int) -> None:
        """Raise ForbiddenError unless a request of a job's hooks comes from its front. May wait for Slurm and names."""
        name = str(job_id)
        if self.trusts(origin):
            return
        front = self._front(name) or self._read_front(name)
        if not front:
            raise ForbiddenError(f"job {job_id} runs on no front")
        self.require_node(origin, front, f"what the hooks of job {job_id} say")

    def _front(self, display_id: str) -> str:
        """The node where the job runs; empty if it is not known."""
        return self._known_front(display_id) or self._jobs.front(self._job_id(display_id))

    def _known_front(self, display_id: str) -> str:
        """As ``_front``, without the ledger."""
        seen = self._seen()
        with self._lock:
            if seen is not None and seen is not self._fronts_of:
                jobs = [job for job in seen.rms.jobs if job.batch_host]
                self._fronts = {str(job.job_id): job.batch_host for job in jobs if job.split}
                self._fronts |= {job.display_id: job.batch_host for job in jobs}
                self._fronts_of = seen
                self._read.clear()
            known = self._fronts.get(display_id, "")
        # A job that has just started was read by the operation that waited for its start.
        return known or (self._jobs.front(int(display_id)) if display_id.isdecimal() else "")

    def _read_front(self, display_id: str) -> str:
        job_id, now = self._job_id(display_id), self._monotonic()
        with self._lock:
            if now - self._read.get(job_id, -_READ_S) < _READ_S:
                return ""
            self._read[job_id] = now
        try:
            return self._jobs.read(job_id).batch_host
        except RmspluginError:
            return ""

    def _job_id(self, display_id: str) -> int:
        try:
            return self._ledger.find_vjob(display_id).job_id
        except NotFoundError:
            return int(display_id) if display_id.isdecimal() else 0

    # -- addresses -----------------------------------------------------------------------------------------------

    def _address_of(self, node: str) -> str:
        """The node's address as Slurm has it: a name, or an address."""
        seen = self._seen()
        known = seen.rms.nodes.get(node) if seen is not None else None
        return (known.address if known is not None else "") or node

    def _is_node(self, origin: Origin, node: str) -> bool:
        others = self._settings.engine.addresses.get(node, ())
        return self._names.has(origin, (self._address_of(node), *others))


_AS_SLURM_SAYS = " as Slurm has it (NodeAddr); see engine.addresses in the settings"


def _resolve(name: str) -> frozenset[Address]:
    """The addresses of a host; empty if the name does not exist."""
    try:
        return frozenset(read_address(str(found[4][0])) for found in socket.getaddrinfo(name, None))
    except (OSError, ValueError, UnicodeError):
        return frozenset()
