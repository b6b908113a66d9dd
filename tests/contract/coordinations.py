"""Engines that may lead, of each kind of coordination, for the contract's suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from rmsplugin.adapters.coordination.base import Coordination
from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import VALID_SHARE, Elected
from rmsplugin.adapters.coordination.local import Local
from rmsplugin.adapters.coordination.turns import Seen
from rmsplugin.adapters.coordination.zookeeper import ZooKeeperTree
from rmsplugin.adapters.lease.clocked import ClockedLease, steady_s
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble, SimulatedTree
from rmsplugin.errors import UnavailableError


class VirtualClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Engines(Protocol):
    """Engines that campaign for the same thing.

    Attributes:
        one_host: then each epoch is the first.
    """

    one_host: bool

    def coordination(self) -> Coordination: ...

    def lease(self, coordination: Coordination) -> ClockedLease:
        """The lease of the engine, by the clock of the kind."""
        ...

    def pass_time(self, seconds: float) -> None: ...


class OnOneHost:
    one_host = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def coordination(self) -> Local:
        return Local(self._directory)

    def lease(self, coordination: Coordination) -> ClockedLease:
        return ClockedLease(coordination)

    def pass_time(self, seconds: float) -> None:
        """A lock knows no time."""


class OnEnsemble:
    """Engines with a simulated ensemble, and one virtual clock."""

    one_host = False
    SESSION_S, ACT_S = 4.0, 10.0
    #: A lead is valid for so long, and whoever is next waits for so long.
    VALID_S, WAIT_S = SESSION_S * VALID_SHARE, SESSION_S + ACT_S

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock()
        self.ensemble = SimulatedEnsemble(self.clock)
        self.trees: dict[Elected, SimulatedTree] = {}
        self._made = 0

    def coordination(
        self,
        place: str = "head:/var/lib/rmsplugin",
        act_s: float = ACT_S,
        *,
        seen: Seen | None = None,
        late_is_harmless: bool = False,
    ) -> Elected:
        self._made += 1
        tree = self.ensemble.open(self.SESSION_S)
        name = f"engine{self._made}"
        candidate = Candidate(name, place, self.SESSION_S, act_s, late_is_harmless=late_is_harmless)
        made = Elected(tree, "/rmsplugin", candidate, self.clock, seen=seen)
        self.trees[made] = tree
        return made

    def lease(self, coordination: Coordination) -> ClockedLease:
        return ClockedLease(coordination, self.clock)

    def pass_time(self, seconds: float, *, silent: tuple[Elected, ...] = ()) -> None:
        """Let time pass, in which the clients of all but ``silent`` show that they are there."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + 0.1)
            for engine, tree in self.trees.items():
                if engine not in silent and not tree.closed:
                    tree.live()
            self.ensemble.pass_time()


class OnZooKeeper:
    """Engines of this process with a real ensemble."""

    one_host = False

    def __init__(self, servers: tuple[str, ...], folder: str, session_s: float) -> None:
        self._servers, self._folder, self._session_s = servers, folder, session_s
        self._made: list[Elected] = []

    def coordination(self) -> Elected:
        tree = ZooKeeperTree(self._servers, self._session_s, self._session_s / 8)
        name = f"engine{len(self._made) + 1}"
        self._made.append(Elected(tree, self._folder, Candidate(name, "head:/ledger", self._session_s, 0.0), steady_s))
        return self._made[-1]

    def lease(self, coordination: Coordination) -> ClockedLease:
        return ClockedLease(coordination)

    def pass_time(self, seconds: float) -> None:
        """Real time passes by itself."""

    def close(self) -> None:
        for each in self._made:
            each.resign(at_rest=False)


def campaign_in_vain(one: Coordination) -> str:
    """Campaign, which has to fail; return why it does."""
    with pytest.raises(UnavailableError) as found:
        one.campaign()
    return str(found.value)


KINDS: dict[str, Callable[[Path], Engines]] = {"local": OnOneHost, "simulated ensemble": OnEnsemble}
