"""No power: the PowerDriver of a site that has named no BMC."""

from __future__ import annotations

from rmsplugin.adapters.power.base import PowerReading
from rmsplugin.errors import RefusedError


class NoPower:
    """Implements ``PowerDriver``: it drives no node."""

    def drives(self, node: str) -> bool:
        """See ``PowerDriver.drives``."""
        return False

    def off(self, node: str) -> None:
        """See ``PowerDriver.off``."""
        raise _unknown(node)

    def on(self, node: str) -> None:
        """See ``PowerDriver.on``."""
        raise _unknown(node)

    def reading(self, node: str) -> PowerReading:
        """See ``PowerDriver.reading``."""
        raise _unknown(node)


def _unknown(node: str) -> RefusedError:
    return RefusedError(f"no BMC of {node} is known: none is named in [power.driver.NAME]")
