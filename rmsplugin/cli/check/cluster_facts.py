"""Cluster facts: what was seen of the ensemble, of the other controllers, and of what they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.adapters.coordination.candidates import Standing
from rmsplugin.adapters.coordination.servers import ServerFact


@dataclass(frozen=True, slots=True)
class SharedFacts:
    """The directory that controllers share, as this host has it."""

    path: str
    place: str  # the name of it that engines tell, or why it cannot be used
    file_system: str = ""  # its type, such as nfs4; empty: not known
    write_s: float | str = 0.0  # what a small write takes; a text says why there was none
    lock: str = ""  # why no lock can be had there; empty: it can
    free_bytes: int = 0
    ledger_bytes: int = 0  # of the newest ledger
    root_key: str = ""  # what is wrong with the key of root in guests; empty: nothing
    mounted: frozenset[str] = frozenset()  # the options of its file system


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was seen of a cluster with several engines."""

    about: Mapping[str, str]  # what an engine of this host says
    servers: tuple[ServerFact, ...]
    standing: tuple[Standing, ...] | str  # the engines that are there, the leader first; a text says why not known
    leader: str = ""  # the host of the engine that answered
    epoch: int = 0  # of its turn; 0: none answered
    shared: SharedFacts | None = None
    epochs: Mapping[str, int] = field(default_factory=dict)  # with managers: by node, that of its group's engine
