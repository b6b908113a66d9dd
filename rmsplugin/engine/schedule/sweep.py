"""Sweep: files on nodes that nobody needs any more: old checkpoints, and saved states of vjobs that have ended.

A state is removed only if the ledger knows its vjob, and that it ended a while ago; or, in the engine of a group, if it
is proved to be a late copy (``late_copies``). Any other of a vjob that the ledger does not know is left alone and
counted: the ledger may be the wrong one. Templates look after themselves (the node agent
bounds them, and drops those of older images); their number is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.execute.old_checkpoints import drop_old
from rmsplugin.engine.ledger.checkpoints import CheckpointState
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RmspluginError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.settings import Settings

#: A vjob that ended more recently may still be cleaned up by its own operation.
_AGE_S = 3600.0
_NAMED = 3
_MIB = 1 << 20


class Sweep:
    """Looks at the nodes whose libvirt has answered lately, one after the other."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        clock: Clock,
        nodes: Nodes,
        stores: Stores,
        seen: Callable[[], Observation | None],
        over_elsewhere: Callable[[Collection[int]], Collection[int]],
    ) -> None:
        """Have removed nothing yet.

        Args:
            settings: of the engine.
            ledger: of the engine.
            clock: of the engine.
            nodes: the node agents.
            stores: all stores.
            seen: the last look at the cluster.
            over_elsewhere: tells which of these jobs, unknown to the ledger, have ended as vjobs of other groups.
        """
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._nodes = nodes
        self._stores = stores
        self._seen = seen
        self._over_elsewhere = over_elsewhere
        self._removed = self._templates = self._template_bytes = 0
        self._unknown: set[str] = set()
        self._left_out: dict[str, str] = {}  # by node, why nothing was done there

    def remove_unneeded(self) -> str:
        """Remove what nobody needs. Returns what was done.

        Raises:
            UnavailableError: the cluster was not seen yet, or no node answers.
        """
        if self._settings.native:
            return "plain jobs have no files of ours on nodes"
        seen = self._seen()
        if seen is None:
            raise UnavailableError("no cycle has looked at the cluster yet")
        self._removed = self._templates = self._template_bytes = 0
        self._unknown, self._left_out = set(), {}
        drop_old(self._settings, self._ledger, self._nodes, self._stores)
        nodes = sorted(seen.vms)
        for number, node in enumerate(nodes):
            try:
                self._sweep(node, states=not (self._settings.nodes.shared and number))
            except RmspluginError as error:
                self._left_out[node] = str(error)
        if nodes and len(self._left_out) == len(nodes):
            raise UnavailableError(self._nothing_done())
        return self._sentence(len(nodes))

    def _sweep(self, node: str, *, states: bool) -> None:
        nodes, shared = self._nodes, self._settings.nodes.shared
        # A store that all nodes mount is looked at once; one that is not known yet was never used.
        if states and self._ledger.markers.of(SHARED if shared else node):
            self._stores.require(node)
            found = nodes.list_files(node, shared=shared)
            for vm in self._ended(found.states | found.partials):
                nodes.drop_state(node, vm, shared=shared)
                self._removed += 1
        number, size = nodes.check(node).templates or (0, 0)
        self._templates += number
        self._template_bytes += size

    def _ended(self, names: Iterable[str]) -> list[str]:
        """The VMs whose vjobs ended a while ago, or elsewhere; those of other unknown vjobs are noted."""
        ledger, before = self._ledger, self._clock.now() - _AGE_S
        jobs = {name: parsed[0] for name in names if (parsed := parse_vm_name(name)) is not None}
        known = ledger.vjobs_among(set(jobs.values()))
        over = self._over_elsewhere({*jobs.values()} - known.keys())
        self._unknown |= {name for name, job in jobs.items() if job not in known and job not in over}
        return sorted(
            name
            for name, job in jobs.items()
            if job in over
            or (job in known and known[job].state is VJobState.TERMINATED and known[job].state_since < before)
        )

    def _sentence(self, nodes: int) -> str:
        said = [f"{nodes} nodes: removed {self._removed} saved states of vjobs that have ended"]
        left = len(self._ledger.checkpoints.in_state(CheckpointState.OLD))
        said += [f"{left} old checkpoints are left for later"] if left else []
        said += [f"{self._templates} templates have {self._template_bytes / _MIB:.0f} MiB"]
        if self._unknown:
            names = _named(self._unknown)
            said.append(f"left alone {len(self._unknown)} states of vjobs that the ledger does not know ({names})")
        said += [self._nothing_done()] if self._left_out else []
        return "; ".join(said)

    def _nothing_done(self) -> str:
        return f"nothing was done on {_named(self._left_out)}: {next(iter(self._left_out.values()))}"


def _named(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more
