"""Which machines there are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """A machine of the site."""

    name: str
    number: int
    cpus: int
    memory_mib: int

    @property
    def address(self) -> str:
        """Its address in the site's network."""
        return f"10.77.0.{self.number}"


CONTROLLER = Host("controller", 1, 2, 2048)
FRONT = Host("front", 2, 1, 1024)
VM_HOSTS = (Host("n1", 11, 2, 1536), Host("n2", 12, 2, 1536))
HOSTS = (CONTROLLER, FRONT, *VM_HOSTS)
PREFIX_LENGTH = 16
#: Addresses of VMs.
POOL = "10.77.1.10-10.77.1.250"
