"""Platforms: what a simulated cluster runs jobs with, by the names of ``hypervisor.platform`` and of docs/decisions.

On Slurm 22.05 a job was seen to run half a second after its gate was opened, and its processes to stand still 2 s after
``scontrol suspend`` (SIGTSTP, and SIGSTOP 2 s later). The times of its end, and until it goes on, are assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rmsplugin.model.capabilities import EVERYTHING, NATIVE, Capabilities
from rmsplugin.model.durations import DEFAULTS


@dataclass(frozen=True, slots=True)
class SimulatedPlatform:
    """What a platform can do, and how long it takes: keys and values of section [durations]."""

    can: Capabilities
    durations: Mapping[str, float]


_OF_JOBS = MappingProxyType({**DEFAULTS, "run_s": 0.5, "stop_s": 0.5, "pause_s": 2.0, "unpause_s": 0.1})

#: By name; the first is the default.
PLATFORMS: Mapping[str, SimulatedPlatform] = MappingProxyType(
    {"libvirt": SimulatedPlatform(EVERYTHING, DEFAULTS), "native": SimulatedPlatform(NATIVE, _OF_JOBS)}
)
