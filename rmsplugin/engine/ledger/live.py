"""Live: the VMs of vjobs that may have VMs, also by their places, and the addresses of all VMs; kept as rows change.

A start or stop at a large site asks for the VMs on one node. To go through those of all nodes for that, again for each,
takes longer than anything else that it does.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import TypeVar

from rmsplugin.engine.ledger.kept import with_changes
from rmsplugin.engine.ledger.rows import VJobRow, VMRow

K = TypeVar("K")


class Live:
    """What follows from the ledger's vjobs and VMs. For one thread at a time."""

    def __init__(self) -> None:
        """Know of nothing yet."""
        self._by_job: dict[int, list[VMRow]] = {}  # in any order
        self._ordered: dict[int, list[VMRow]] = {}  # as it was when it was last asked for
        self._altered: set[int] = set()  # the jobs of which something has changed since
        self._jobs_on: dict[str, set[int]] = {}  # by node, of live vjobs: those with a VM there, or on its way there
        self._addressed: dict[int, list[str]] = {}  # by job id, of all VMs
        self._addresses: Counter[str] = Counter()
        self._numbers: Counter[int] = Counter()  # of these, as far as they are of IPv4

    def follow(
        self,
        vjob_of: Callable[[int], VJobRow | None],
        vms_of: Callable[[int], list[VMRow] | None],
        altered: Iterable[int],
    ) -> None:
        """Follow a change.

        Args:
            vjob_of: gives a vjob that has not ended, as it is now.
            vms_of: gives the VMs of any vjob, as they are now.
            altered: the jobs of which something may have changed since the last time.
        """
        for job_id in altered:
            vjob, now, before = vjob_of(job_id), vms_of(job_id), self._by_job.get(job_id)
            self._address(job_id, now or ())
            live = now if vjob is not None and vjob.state.is_live else None
            if live is before:
                continue
            self._place(job_id, before or (), live or ())
            self._altered.add(job_id)
            if live is None:
                del self._by_job[job_id]
            else:
                self._by_job[job_id] = live

    @property
    def jobs(self) -> Iterable[int]:
        """The jobs of all VMs that are known."""
        return self._addressed.keys()

    @property
    def by_job(self) -> Mapping[int, list[VMRow]]:
        """The VMs of each vjob that may have VMs or saved states, by job id, in that order; nobody changes it."""
        if self._altered:
            changes = {job_id: self._by_job.get(job_id) for job_id in self._altered}
            self._ordered = with_changes(self._ordered, changes, lambda job_id, _: job_id)
            self._altered = set()
        return self._ordered

    def all(self) -> list[VMRow]:
        """All VMs, by job and index."""
        return list(chain.from_iterable(self.by_job.values()))

    def on(self, nodes: Iterable[str]) -> list[VMRow]:
        """The VMs whose host, or whose destination, is one of these nodes; by job and index."""
        wanted = set(nodes)
        jobs = sorted(set().union(*(self._jobs_on.get(node, ()) for node in wanted)))
        return [vm for job in jobs for vm in self._by_job[job] if vm.host in wanted or vm.destination in wanted]

    def places(self) -> set[str]:
        """The nodes on which they are, or to which they are on their way."""
        return {node for node, jobs in self._jobs_on.items() if jobs}

    def addresses(self) -> set[str]:
        """The addresses of all VMs."""
        return set(self._addresses)

    def numbers(self) -> set[int]:
        """The addresses of all VMs, as numbers."""
        return set(self._numbers)

    def _place(self, job_id: int, before: Iterable[VMRow], now: Iterable[VMRow]) -> None:
        for node in _places(before):
            self._jobs_on[node].discard(job_id)
        for node in _places(now):
            self._jobs_on.setdefault(node, set()).add(job_id)

    def _address(self, job_id: int, now: Iterable[VMRow]) -> None:
        before, after = self._addressed.pop(job_id, []), [vm.address for vm in now]
        if after:
            self._addressed[job_id] = after
        if before == after:
            return
        _count(self._addresses, before, after)
        _count(self._numbers, numbers(before), numbers(after))


def numbers(addresses: Iterable[str]) -> list[int]:
    """Addresses of IPv4 as numbers; others have none."""
    found = []
    for address in addresses:
        try:
            found.append(int.from_bytes(socket.inet_pton(socket.AF_INET, address), "big"))
        except OSError:
            continue
    return found


def _places(vms: Iterable[VMRow]) -> set[str]:
    return {place for vm in vms for place in (vm.host, vm.destination) if place}


def _count(counts: Counter[K], before: Iterable[K], after: Iterable[K]) -> None:
    counts.update(after)
    for each in before:
        counts[each] -= 1
        if not counts[each]:
            del counts[each]
