"""Platforms: what a simulated cluster runs jobs with, by the names of ``hypervisor.platform``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rmsplugin.model.capabilities import EVERYTHING, NATIVE, Capabilities
from rmsplugin.model.durations import DEFAULTS, NATIVE_DURATIONS


@dataclass(frozen=True, slots=True)
class SimulatedPlatform:
    """What a platform can do, and how long it takes: keys and values of section [durations]."""

    can: Capabilities
    durations: Mapping[str, float]


_OF_JOBS = MappingProxyType({**DEFAULTS, **NATIVE_DURATIONS})

#: By name; the first is the default.
PLATFORMS: Mapping[str, SimulatedPlatform] = MappingProxyType(
    {"libvirt": SimulatedPlatform(EVERYTHING, DEFAULTS), "native": SimulatedPlatform(NATIVE, _OF_JOBS)}
)
