"""Sensor book: which nodes are hot, and what their sensors showed. A part of the ledger.

That a node is hot outlives the engine: it is not cool because nobody has asked it since.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from rmsplugin.engine.ledger.table import LedgerTable


@dataclass(frozen=True, slots=True)
class HotNode:
    """A node that takes no VM since its sensor has shown too high a temperature.

    Attributes:
        node: its name.
        since: when that was found, in seconds since the epoch.
        celsius: what the sensor showed then.
        hot_c: the threshold then.
    """

    node: str
    since: float
    celsius: float
    hot_c: float

    @property
    def sentence(self) -> str:
        """For a person, after the name of the node."""
        when = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"it is hot since {when}: {self.celsius:g} °C, and {self.hot_c:g} °C is too much"


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What the sensors of a node showed from a time on.

    Attributes:
        node: its name.
        time: when they were read, seconds since the epoch.
        watts: that it took; None: no sensor told.
        celsius: its temperature; None: no sensor told.
    """

    node: str
    time: float
    watts: float | None
    celsius: float | None


class SensorBook(LedgerTable):
    """The ledger's tables of sensors."""

    # -- hot nodes -----------------------------------------------------------------------------------------------

    def hot(self) -> Mapping[str, HotNode]:
        """The nodes that are hot, by name."""
        return {row["node"]: HotNode(**row) for row in self._rows("select * from hot_nodes order by node")}

    def begins(self, node: str, celsius: float, hot_c: float) -> HotNode:
        """Record that a node is hot from now on."""
        found = HotNode(node, self._clock(), celsius, hot_c)
        with self._write() as db:
            db.execute(
                "insert or replace into hot_nodes (node, since, celsius, hot_c) values (?,?,?,?)",
                [node, found.since, celsius, hot_c],
            )
        return found

    def ends(self, node: str) -> None:
        """Record that a node is hot no more."""
        with self._write() as db:
            db.execute("delete from hot_nodes where node = ?", [node])

    # -- samples -------------------------------------------------------------------------------------------------

    def record(self, samples: list[NodeSample]) -> None:
        """Record what sensors showed, in one transaction."""
        with self._write() as db:
            for each in samples:
                db.execute(
                    "insert or replace into node_samples (node, time, watts, celsius) values (?,?,?,?)",
                    [each.node, math.ceil(each.time), each.watts, each.celsius],
                )

    def samples(self, node: str) -> list[NodeSample]:
        """The samples of a node, oldest first."""
        return [
            NodeSample(**row) for row in self._rows("select * from node_samples where node = ? order by time", [node])
        ]

    def prune(self, before: float) -> None:
        """Forget samples from before this time."""
        with self._write() as db:
            db.execute("delete from node_samples where time < ?", [before])
