"""Fencing: a command of the site cuts the power of a node; a node that is seen to be off counts as gone.

An operator orders it; or, if the settings say so, the engine does, when a node with VMs has been silent for long in all
three ways: libvirt, the node agent, and Slurm's own daemon. If many nodes are silent at once, none is fenced: then the
engine itself is more likely cut off.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence

from rmsplugin.adapters.command import run_command
from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.engine.context.acts import Acts
from rmsplugin.engine.context.hearing import Hearing
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.dead_nodes import record_gone
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import NoStoreError, OperationFailedError, RefusedError, RmspluginError, UnavailableError
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

#: The exit code of the status command of Debian's fence agents if the node is off.
OFF_STATUS = 2
#: After the first failure the engine waits ``_FIRST_S`` before it tries again, then twice as long, up to ``_MOST_S``.
_FIRST_S, _MOST_S = 60.0, 3600.0
#: The most nodes, or the share of the VM hosts if that is more, that may be silent at once and still be fenced.
_MOST_NODES, _SHARE = 1, 0.05


class Fencing:
    """Cuts the power of nodes, one order for each node at a time. Several threads may call."""

    def __init__(self, settings: Settings, ledger: Ledger, nodes: Nodes, acts: Acts, hearing: Hearing) -> None:
        self._settings = settings
        self._ledger = ledger
        self._nodes = nodes
        self._acts = acts
        self._hearing = hearing
        self._silent_since: dict[str, float] = {}
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    @property
    def under_way(self) -> frozenset[str]:
        """The nodes whose power is being cut now."""
        with self._lock:
            return frozenset(self._under_way)

    def fence(self, node: str, by: str) -> tuple[list[str], list[str]]:
        """Cut the power of the node, see that it is off, and record that it is gone. Returns as ``record_gone``.

        Where no nodes.fence_status can be asked, the good end of nodes.fence is all that says so.

        Raises:
            RefusedError: there is no nodes.fence, the node is gone already, or its power is being cut already.
            OperationFailedError: it is not certain that the node is off; nothing is concluded.
        """
        with self._lock:
            if node in self._under_way:
                raise RefusedError(f"{node} is being fenced already")
            self._under_way.add(node)
        try:
            return self._fence(node, by)
        finally:
            with self._lock:
                self._under_way.discard(node)

    def require_possible(self, node: str) -> None:
        """Raise RefusedError where there is no nodes.fence, or the node is gone already."""
        if not self._settings.nodes.fence:
            raise RefusedError("there is no fencing command: nodes.fence is not set")
        if known := self._ledger.nodes.gone().get(node):
            raise RefusedError(known.sentence)

    def _fence(self, node: str, by: str) -> tuple[list[str], list[str]]:
        ledger = self._ledger
        self.require_possible(node)
        ledger.event("node-fence", f"{by} has the power of {node} cut", node=node)
        try:
            self._cut(node)
            return record_gone(self._settings, self._ledger, node, f"{by}, {self._proof}")
        except RmspluginError as error:
            with ledger.transaction():
                ledger.nodes.fence_failed(node, str(error))
                ledger.event("node-fence-failed", f"{node} could not be fenced: {error}", node=node)
            raise

    @property
    def _proof(self) -> str:
        """What says that a fenced node is off, in a few words."""
        if self._settings.nodes.fence_status:
            return "confirmed power off after fencing"
        return "by nodes.fence alone, which no nodes.fence_status has confirmed"

    def _cut(self, node: str) -> None:
        settings = self._settings.nodes
        bound_s = settings.fence_timeout_s
        permit = self._acts.one
        order = run_command([word.replace("{node}", node) for word in settings.fence], timeout_s=bound_s, permit=permit)
        if order.status != 0:
            raise OperationFailedError(f"nodes.fence ended with {order.status}: {order.said or 'it said nothing'}")
        if not settings.fence_status:
            return
        words = [word.replace("{node}", node) for word in settings.fence_status]
        status = run_command(words, timeout_s=bound_s, permit=permit)
        if status.status != OFF_STATUS:
            raise OperationFailedError(
                f"nodes.fence ended well, but nodes.fence_status does not say that {node} is off: it ended with "
                f"{status.status}, not {OFF_STATUS}: {status.said or 'it said nothing'}"
            )

    # -- the engine's own orders ---------------------------------------------------------------------------------

    def fence_silent(self, seen: Observation) -> list[str]:
        """Fence nodes that are silent for too long, where the settings want it. Returns problems, in sentences."""
        settings = self._settings.nodes
        if not settings.fence or not settings.fence_after_s:
            return []
        silent, others = self._silent(seen)
        self._silent_since = {node: self._silent_since.get(node, seen.taken) for node in (*silent, *others)}
        at_once = sorted([*silent, *self._lately(others, silent, settings.fence_after_s)])
        most = max(_MOST_NODES, int(_SHARE * (len(seen.vms) + len(seen.unreachable))))
        if len(at_once) > most:
            return [f"{', '.join(at_once)} are silent at once: none is fenced, since the network is the likelier cause"]
        failures = self._ledger.nodes.fence_failures()
        for node in silent:
            failed = failures.get(node)
            rests = failed is not None and seen.taken < failed.last + min(
                _MOST_S, _FIRST_S * 2 ** (failed.failures - 1)
            )
            # An engine that stood still, or whose host has no munge, has heard of no node; and Slurm needs munge, too.
            since = max(self._silent_since[node], self._hearing.deaf_until(seen.taken))
            due = seen.taken - since >= settings.fence_after_s
            if due and not rests and node not in self.under_way and self._agent_is_silent(node):
                threading.Thread(target=self._fence_quietly, args=(node,), name=f"fence {node}", daemon=True).start()
        return []

    def _silent(self, seen: Observation) -> tuple[list[str], list[str]]:
        """Nodes that are not gone, and for which neither libvirt nor Slurm's daemon answers: with our VMs, and without.

        A node without VMs that Slurm itself has powered off is not silent.
        """
        hosts = {place for vm in self._ledger.live_vms() for place in (vm.host, vm.destination)}
        gone = self._ledger.nodes.gone()
        lost = [node for node in sorted(seen.unreachable) if node not in gone and _slurm_lost(seen, node)]
        others = [node for node in lost if node not in hosts and "POWER" not in seen.rms.nodes[node].state]
        return [node for node in lost if node in hosts], others

    def _lately(self, others: Sequence[str], silent: Sequence[str], before_s: float) -> list[str]:
        """The ``others`` without those that fell silent long before the first of ``silent``: no sign of the network."""
        first = min((self._silent_since[node] for node in silent), default=math.inf)
        return [node for node in others if self._silent_since[node] >= first - before_s]

    def _agent_is_silent(self, node: str) -> bool:
        try:
            self._nodes.space(node, shared=self._settings.nodes.shared)
        except NoStoreError:
            pass
        except UnavailableError:
            return True
        except RmspluginError:
            pass
        self._silent_since.pop(node, None)
        return False

    def _fence_quietly(self, node: str) -> None:
        try:
            self.fence(node, "the engine")
        except RmspluginError as error:
            log.warning("%s is not fenced: %s", node, error)
        except Exception:
            log.exception("fencing %s", node)


def _slurm_lost(seen: Observation, node: str) -> bool:
    """Whether Slurm says that the node is down, or that its daemon does not respond."""
    known = seen.rms.nodes.get(node)
    return known is not None and not known.up and ("DOWN" in known.state or "NOT_RESPONDING" in known.state)
