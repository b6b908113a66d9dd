"""Context: the things that the engine's parts share: settings, ledger, the adapters and the clock."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial

from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.adapters.power.base import PowerDriver
from rmsplugin.adapters.power.none import NoPower
from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.context.acts import Acts
from rmsplugin.engine.context.agents_told import AgentsTold, noted
from rmsplugin.engine.context.bounds import Bounds
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.demanded import Demanded
from rmsplugin.engine.context.durations import DurationsInUse
from rmsplugin.engine.context.fronts import Fronts, Knock
from rmsplugin.engine.context.hearing import Hearing
from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.context.sensed import Sensed
from rmsplugin.engine.context.shield import shielded
from rmsplugin.engine.context.sightings import Sightings
from rmsplugin.engine.context.signs import SignsOfLife
from rmsplugin.engine.context.slurm_facts import SeenSlurm
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.context.suspensions import Suspensions
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.territory.own_power import own_power
from rmsplugin.engine.territory.own_rms import own_rms
from rmsplugin.engine.territory.territory import Territory
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.settings import Settings


@dataclass(frozen=True)
class Context:
    """One set of adapters, with the settings, the ledger and the clock."""

    settings: Settings
    ledger: Ledger
    rms: Rms
    hypervisor: Platform
    nodes: Nodes
    guests: Guests
    root_public_key: str  # the engine's own key, root in every guest
    epoch: int = FIRST_EPOCH  # of this engine
    acts: Acts = field(default_factory=Acts)  # at neighbours
    territory: Territory | None = None  # of the engine of one group; None: all is this engine's
    power: PowerDriver = field(default_factory=NoPower)  # the nodes' BMCs
    clock: Clock = field(default_factory=Clock)
    signs: SignsOfLife = field(default_factory=SignsOfLife)
    hearing: Hearing = field(default_factory=Hearing)
    capabilities: Capabilities = field(init=False)  # of the platform
    suspensions: Suspensions = field(init=False)
    sightings: Sightings = field(init=False)  # of VMs on nodes
    slurm: SeenSlurm = field(default_factory=SeenSlurm)
    demanded_cpus: Demanded = field(default_factory=Demanded)
    sensed: Sensed = field(default_factory=Sensed)  # by BMCs
    agents_told: AgentsTold = field(default_factory=AgentsTold)
    knock: Knock | None = None  # whether a front can be reached; None: each one can
    fronts: Fronts = field(init=False)
    durations: DurationsInUse = field(init=False)
    #: Held while a gate is opened, or a plain job is resumed: from the look at the RMS's books until it has acted.
    books: AbstractContextManager[object] = field(init=False)

    def __post_init__(self) -> None:
        """Shield the adapters, so that nodes that are gone, and those of other groups, are asked nothing."""
        object.__setattr__(self, "suspensions", Suspensions(self.clock.now(), self.hearing.deaf_until))
        object.__setattr__(self, "fronts", Fronts(self.clock.now, self.knock))
        object.__setattr__(self, "durations", DurationsInUse(self.settings.durations.model_dump()))
        object.__setattr__(self, "books", threading.RLock() if self.settings.native else nullcontext())
        object.__setattr__(self, "sightings", Sightings(self.ledger))
        object.__setattr__(self, "capabilities", self.hypervisor.capabilities)
        shield = partial(shielded, book=self.ledger.nodes)
        if self.territory is not None:
            self.territory.remember_in(self.ledger)
            object.__setattr__(self, "rms", own_rms(self.rms, self.territory, self.settings))
            object.__setattr__(self, "power", own_power(self.power, self.territory))
            shield = partial(shield, refuse=self.territory.require_host)
        object.__setattr__(self, "hypervisor", shield(self.hypervisor))
        object.__setattr__(self, "nodes", shield(noted(self.nodes, self.agents_told)))

    @cached_property
    def jobs(self) -> JobReader:
        """Reads of single jobs, shared by all operations that wait for their jobs."""
        return JobReader(self.rms)

    @cached_property
    def bounds(self) -> Bounds:
        """The memory of each node that observed VMs may take."""
        return Bounds(self.nodes, self.clock.now)

    @cached_property
    def stores(self) -> Stores:
        """The stores of saved states, each proved by its marker."""
        shared = self.settings.nodes.shared
        return Stores(self.ledger, self.nodes, shared=shared, is_part=shared and self.territory is not None)
