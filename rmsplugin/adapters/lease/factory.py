"""Factory: the lease of the settings (``cluster.coordination``)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.local import Local
from rmsplugin.adapters.coordination.tree import Tree
from rmsplugin.adapters.coordination.turns import TURN_SEEN, Seen
from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree
from rmsplugin.adapters.lease.base import Lease
from rmsplugin.adapters.lease.both import BothLeases
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.settings import Settings

#: The share of a session within which one request to the ensemble is answered; a leader asks as often.
ASKS_A_SESSION = 8


@dataclass(frozen=True, slots=True)
class Opened:
    """A lease, and what stands behind it."""

    lease: Lease
    elected: Elected | None = None  # this engine among others; None: there are no others
    tree: Tree | None = None  # its session in the ensemble, if there is one


def open_lease(settings: Settings, state_dir: Path, shared: str = "", about: Mapping[str, str] | None = None) -> Opened:
    """Return the lease of this process, not yet held.

    Without a shared directory, the ensemble chooses among engines on one state directory, and its lock is a part of
    their lease: while a stopped engine has it, none acts. With one, each engine has a state directory of its own, and
    its lock from the beginning, so that nobody ever waits for it.

    Args:
        settings: of the site.
        state_dir: of this engine.
        shared: the name of the shared directory; empty if there is none.
        about: what this engine tells others of itself.

    Raises:
        SettingsError: a Python package is missing.
        UnavailableError: another engine runs on the state directory, and there is a shared one.
    """
    cluster = settings.cluster
    local = ClockedLease(Local(state_dir))
    if cluster.coordination == "local":
        return Opened(local)
    if shared:
        local.acquire()
    tree = ZooKeeperTree(cluster.servers, cluster.session_s, cluster.session_s / ASKS_A_SESSION)
    host = socket.gethostname()
    place = f"the shared directory {shared}" if shared else f"{host}:{state_dir.resolve()}"
    candidate = Candidate(f"{host}:{os.getpid()}", place, cluster.session_s, longest_act_s(settings), about or {})
    seen = Seen.of(os.environ.pop(TURN_SEEN, ""))
    elected = Elected(tree, cluster.path, candidate, steady_s, seen=seen)
    return Opened(BothLeases(ClockedLease(elected), local), elected, tree)


def longest_act_s(settings: Settings) -> float:
    """How long an act may go on whose engine has ended, in seconds.

    A command of Slurm's, a fence and its proof, or a command or request to a BMC.
    """
    nodes = settings.nodes
    fence_s = 2 * nodes.fence_timeout_s if nodes.fence else 0.0
    return max(settings.slurm.command_timeout_s, fence_s, *(each.timeout_s for each in settings.power.driver.values()))
