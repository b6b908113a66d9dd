"""Bounds: the memory that all observed VMs of a node may take together, kept by node agents, and VMs that wait for it.

A VM that waits for memory must not be asked anything: with control groups of version 1 its hypervisor process may not
survive a question (docs/decisions/0040). So the node agents are asked first, and often: each time they share out the
memory that is left.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from rmsplugin.adapters.nodes.base import MemoryBounds, MemoryReport
from rmsplugin.assessment.back_off import pause_s
from rmsplugin.errors import OperationFailedError, RefusedError, RmspluginError, UnavailableError

log = logging.getLogger(__name__)

_PARALLEL = 32


@dataclass
class _Agent:
    """One node agent, and what it was told."""

    lock: threading.RLock = field(default_factory=threading.RLock)  # held while the agent is asked
    bound_mib: int | None = None
    kept_mib: int = 0  # memory of the node that is kept back from observed VMs, besides
    lowered: int = 0  # how often the bound was lowered for a VM that came
    failures: int = 0  # in a row
    rests_until: float = 0.0
    report: MemoryReport | None = None
    whole_mib: dict[str, int] = field(default_factory=dict)  # by VM that may take all of its memory for a while


class Bounds:
    """The bounds of all nodes. Several threads may call."""

    def __init__(self, nodes: MemoryBounds, now: Callable[[], float]) -> None:
        """Nothing has been bounded yet; ``now`` tells the time."""
        self._nodes = nodes
        self._now = now
        self._agents: defaultdict[str, _Agent] = defaultdict(_Agent)

    def of(self, node: str) -> int | None:
        """The bound, in MiB; None if there is none yet."""
        return self._agents[node].bound_mib

    def lowered(self, node: str) -> int:
        """A number that changes whenever the bound is lowered for a VM that comes."""
        return self._agents[node].lowered

    def report(self, node: str) -> MemoryReport | None:
        """The node agent's last report; None if it did not answer."""
        return self._agents[node].report

    def is_idle(self, node: str) -> bool:
        """Whether the node has its bound, and reported last that nothing of it is used: nothing is worth asking."""
        agent = self._agents[node]
        return agent.bound_mib is not None and agent.report is not None and not agent.report.used_mib

    @property
    def waiting(self) -> frozenset[str]:
        """The VMs that wait for memory, by the agents' last reports."""
        reports = [agent.report for agent in list(self._agents.values())]
        return frozenset(vm for report in reports if report is not None for vm in report.waiting)

    def waits_on(self, node: str) -> bool:
        """Whether a VM there waits for memory: then no VM there is asked anything that can wait."""
        report = self._agents[node].report
        return report is not None and bool(report.waiting)

    def set(self, node: str, room_mib: int, kept_mib: int, lowered: int) -> None:
        """Set a bound, unless it was ``lowered`` since it was worked out; a silent agent is asked again later.

        Args:
            node: its name.
            room_mib: the memory that observed VMs may have.
            kept_mib: the part of it that is kept back, for a VM that waits and is asked something.
            lowered: see ``lowered``.
        """
        agent = self._agents[node]
        with agent.lock:
            # If the old bound stays, its kept part stays, too: both together never exceed the memory that is there.
            if agent.lowered == lowered and self._quietly(node, room_mib - kept_mib):
                agent.kept_mib = kept_mib

    def lower(self, node: str, mib: int) -> None:
        """Lower a bound before a VM comes that is not observed.

        Raises:
            RefusedError: observed VMs use more than ``mib``, or the node agent does not answer.
        """
        agent = self._agents[node]
        with agent.lock:
            agent.lowered += 1
            try:
                self._ask(node, mib)
            except RmspluginError as error:
                raise RefusedError(f"the VMs on {node} whose memory is observed cannot do with less: {error}") from None

    def keep(self, node: str) -> None:
        """Set the bound again before an observed VM starts there: a node that has restarted has lost its bound."""
        agent = self._agents[node]
        with agent.lock:
            if agent.bound_mib is not None:
                self._quietly(node, agent.bound_mib)

    def relieve(self, node: str) -> None:
        """Give observed VMs the kept part until the next cycle, before a VM is asked that may wait for memory."""
        agent = self._agents[node]
        with agent.lock:
            if agent.bound_mib is not None and self._quietly(node, agent.bound_mib + agent.kept_mib):
                agent.kept_mib = 0

    @contextmanager
    def whole(self, node: str, vm: str, mib: int) -> Iterator[bool]:
        """Let a VM take all of its memory for a while: much more, perhaps, than is booked for it.

        Yields whether the bound leaves so much unused by its last report, besides what other such VMs of the node may
        take; if not, the VM is to do without.

        Args:
            node: where the VM starts.
            vm: its name.
            mib: its memory, and that of its hypervisor process.
        """
        agent = self._agents[node]
        with agent.lock:
            unused_mib = _unused_mib(agent.report)
            is_left = unused_mib is None or unused_mib - sum(agent.whole_mib.values()) >= mib
            if is_left:
                agent.whole_mib[vm] = mib
        try:
            yield is_left
        finally:
            with agent.lock:
                agent.whole_mib.pop(vm, None)

    def watch(self, nodes: Collection[str]) -> bool:
        """Have the agents of these nodes share out the memory left. Returns whether a VM waits that did not before."""
        before = self.waiting
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="bounds") as pool:
            list(pool.map(self.keep, nodes))
        return not self.waiting <= before

    def _quietly(self, node: str, mib: int) -> bool:
        """Ask for a bound; returns whether it is set."""
        try:
            self._ask(node, mib)
        except RmspluginError as error:  # the old bound holds; if more than the new one is used, balloons come first
            log.info("the bound of observed VMs on %s: %s", node, error)
            return False
        return True

    def _ask(self, node: str, mib: int) -> None:
        """Ask a node agent, unless it rests from failures. The caller holds its lock."""
        agent, now = self._agents[node], self._now()
        if now < agent.rests_until:
            raise UnavailableError(f"the node agent of {node} did not answer, and is asked again soon")
        try:
            agent.report = self._nodes.bound_memory(node, max(1, mib))
        except OperationFailedError:
            raise
        except RmspluginError:
            agent.report = None
            agent.failures += 1
            agent.rests_until = now + pause_s(agent.failures)
            raise
        agent.failures = 0
        agent.bound_mib = mib


def _unused_mib(report: MemoryReport | None) -> int | None:
    """The memory that a bound leaves; None if nothing is bounded there, or nothing is known."""
    if report is None or report.limit_mib is None or report.used_mib is None:
        return None
    return report.limit_mib - report.used_mib
