"""What a platform needs on a VM host before it can run our VMs: files and values for `rmsplugin setup`, plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A place for a part of the host's TLS."""

    path: Path
    part: str  # "authority", "certificate" or "key"
    for_vms: bool = False  # the group of the VMs' account reads the key, too


@dataclass(frozen=True, slots=True)
class HostFiles:
    """What one platform needs."""

    hook_source: Path  # as the package has it
    hook: Path  # where the platform runs it
    hook_does: str  # what it is for, to people
    values: Mapping[Path, Mapping[str, str]]  # file of the platform -> key -> value
    vm_group: str  # the group of the account that runs VMs; it may not be there
    private: tuple[Path, ...]  # directories of keys, which only root may enter
    certificates: tuple[Certificate, ...]
    start: str  # what an administrator says then
