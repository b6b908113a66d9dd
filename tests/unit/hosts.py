"""Controllers of one cluster on a simulated ensemble: one engine leads, the others stand by."""

from __future__ import annotations

from collections.abc import Mapping

from contract.coordinations import OnEnsemble, VirtualClock

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.coordination.servers import ServerFact
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.controllers.controllers import Controllers
from rmsplugin.engine.controllers.shared_writes import SharedWrites
from rmsplugin.errors import UnavailableError

_SESSION_S = OnEnsemble.SESSION_S


class Hosts:
    """Engines on hosts of these names, in this order."""

    def __init__(self, *names: str) -> None:
        self.clock = VirtualClock()
        self.ensemble = SimulatedEnsemble(self.clock)
        self.servers = [ServerFact(f"zoo{number}:2181", mode="follower") for number in (1, 2, 3)]
        self.engines: dict[str, Elected] = {}
        for name in names:
            self.join(name)

    def join(self, name: str, ahead_s: float = 0.0, **about: str) -> Elected:
        """An engine comes, and campaigns."""
        about = {**self.about(name), **about}
        candidate = Candidate(f"{name}:1", "the shared directory 0a", _SESSION_S, 5.0, about)
        tree = self.ensemble.open(_SESSION_S)
        engine = Elected(tree, "/rmsplugin", candidate, self.clock, time_of_day=lambda: self.clock.now + ahead_s)
        self.engines[name] = engine
        self.campaign()
        return engine

    @staticmethod
    def about(name: str) -> dict[str, str]:
        return {"host": name, "url": f"http://{name}:6830", "version": "1.0", "ledger": "m023", "settings": "5e"}

    def campaign(self) -> None:
        """Each engine campaigns once."""
        for engine in self.engines.values():
            try:
                engine.campaign()
            except UnavailableError:
                continue

    def leader(self, writes: SharedWrites | None = None, about: Mapping[str, str] | None = None) -> Controllers:
        """What the first one knows of the others."""
        name, engine = next(iter(self.engines.items()))
        return Controllers(
            engine,
            {**self.about(name), **(about or {})},
            [each.address for each in self.servers],
            writes,
            asked=lambda _: self.servers,
            time_of_day=self.clock,
            clock=self.clock,
        )
