"""Power book: the nodes that the engine switches off and on, and what their idle periods were. A part of the ledger.

A node without a row is on, as far as the engine's own orders go. A row is written before anything is asked of Slurm or
of a BMC, so that the next engine goes on from it.
"""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rmsplugin.energy.lateness import LateSums
from rmsplugin.engine.ledger.table import LedgerTable, insert, update
from rmsplugin.model.node_action import NodeActionKind

#: More of them are not read.
_MOST = 5000
_TOOK = f"""
    select node, kind, took_s from power_acts where took_s > 0 and error = '' and began >= ?
    order by began desc, id desc limit {_MOST}"""


class SwitchState(enum.StrEnum):
    """How far a node is."""

    GOING_OFF = "going-off"
    OFF = "off"  # its BMC confirmed it after our order
    COMING_ON = "coming-on"
    FAILED = "failed"  # it did not come on, or somebody else switched it on


@dataclass(frozen=True, slots=True)
class NodeSwitch:
    """One node that is not simply on. Times are seconds since the epoch; 0: not yet.

    Attributes:
        node: its name.
        state: how far it is.
        since: since when it is in this state.
        why: a sentence, without a full stop.
        checked: when its BMC was found to answer, before anything was asked of Slurm.
        told: when Slurm was told.
        ordered: when the BMC got its last order, by the host's clock.
        proved: when the BMC said that it is off, after our order.
        boot_before: the boot time that the node told Slurm before it went off.
        failures: how often in a row its present switch failed.
        not_before: until then nothing is tried again.
        error: of the last failure.
        action: the id of its switch in the history; 0: none is under way.
    """

    node: str
    state: SwitchState
    since: float
    why: str
    checked: float = 0.0
    told: float = 0.0
    ordered: float = 0.0
    proved: float = 0.0
    boot_before: int = 0
    failures: int = 0
    not_before: float = 0.0
    error: str = ""
    action: int = 0

    @property
    def answers_nothing(self) -> bool:
        """Whether the engine asks the node nothing, since it may have no power."""
        return self.state in (SwitchState.OFF, SwitchState.FAILED) or (
            self.state is SwitchState.GOING_OFF and self.ordered > 0
        )

    @property
    def sentence(self) -> str:
        """For a person: since when, and why."""
        when = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        failed = f"; failed {self.failures} times: {self.error}" if self.error else ""
        return f"{_WORDS[self.state]} since {when}: {self.why}{failed}"


_WORDS = {
    SwitchState.GOING_OFF: "it is being switched off",
    SwitchState.OFF: "it is switched off",
    SwitchState.COMING_ON: "it is being switched on",
    SwitchState.FAILED: "it did not come on",
}


@dataclass(frozen=True, slots=True)
class PowerAct:
    """One switch of a node, done or under way. Times are seconds since the epoch.

    Attributes:
        id: its number.
        node: of the node.
        kind: whether off or on.
        began: when it was decided.
        ended: when it was proved or given up; 0: it is under way.
        error: why it failed, or was given up; empty: it did not.
        took_s: the seconds from our order to the proof: to the BMC to go off, to Slurm to have it on. 0: it was not by
            our order, or is under way.
    """

    id: int
    node: str
    kind: NodeActionKind
    began: float
    ended: float
    error: str
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LateSpan:
    """What one engine saw of how late vjobs are because nodes were off. Times are seconds since the epoch.

    Attributes:
        began: when it began to look; no two spans of a site have begun at once.
        ended: the end of what it has seen.
        sums: of it.
    """

    began: float
    ended: float
    sums: LateSums


class Took(NamedTuple):
    """How long a node took to go off, or to come on, by our order."""

    node: str
    kind: NodeActionKind
    seconds: float


class PowerBook(LedgerTable):
    """The ledger's tables of power."""

    _took: Sequence[Took] | None = None  # as it was read; None: not yet, or another switch has ended since

    # -- switches ------------------------------------------------------------------------------------------------

    def switches(self) -> Mapping[str, NodeSwitch]:
        """The nodes that are not simply on, by name."""
        rows = self._rows("select * from power_switches order by node")
        return {row["node"]: NodeSwitch(**{**row, "state": SwitchState(row["state"])}) for row in rows}

    def is_off(self, node: str) -> bool:
        """Whether its BMC confirmed, after our own order, that it has no power: nothing runs there."""
        return bool(self._rows("select 1 from power_switches where node = ? and state = 'off'", [node]))

    def begin(
        self, node: str, kind: NodeActionKind, why: str, *, boot_before: int = 0, failures: int = 0, proved: float = 0.0
    ) -> NodeSwitch:
        """Record the intent to switch a node."""
        now = self._clock()
        state = SwitchState.GOING_OFF if kind is NodeActionKind.POWER_OFF else SwitchState.COMING_ON
        with self._write() as db:
            row = {"node": node, "kind": str(kind), "began": now, "ended": 0.0, "error": ""}
            switch = NodeSwitch(
                node,
                state,
                now,
                why,
                boot_before=boot_before,
                failures=failures,
                proved=proved,
                action=insert(db, "power_acts", row),
            )
            db.execute("delete from power_switches where node = ?", [node])
            insert(db, "power_switches", _row(switch))
            return switch

    def add(self, switch: NodeSwitch) -> None:
        """Record a node of which nothing was known: no switch of this engine's has brought it there."""
        with self._write() as db:
            insert(db, "power_switches", _row(switch))

    def change(self, node: str, **changes: Any) -> None:
        """Change columns of a node's row. Raises NotFoundError if it has none."""
        with self._write() as db:
            update(db, "power_switches", {"node": node}, {name: _plain(value) for name, value in changes.items()})

    def enter(
        self, switch: NodeSwitch, state: SwitchState, why: str = "", *, took_s: float = 0.0, **changes: Any
    ) -> None:
        """Record that a node's switch has ended, and the state in which it is now; ``took_s``: see ``PowerAct``."""
        now = self._clock()
        with self._write() as db:
            self._end_act(switch.action, str(changes.get("error", "")), took_s)
            changed = replace(switch, state=state, since=now, why=why or switch.why, action=0, **changes)
            update(db, "power_switches", {"node": switch.node}, _row(changed))

    def forget(self, switch: NodeSwitch, error: str = "", took_s: float = 0.0) -> None:
        """Record that a node is on again, or stays on.

        Args:
            switch: of the node.
            error: why it was not switched off after all; empty: it came on.
            took_s: see ``PowerAct``.
        """
        with self._write() as db:
            self._end_act(switch.action, error, took_s)
            db.execute("delete from power_switches where node = ?", [switch.node])

    def _end_act(self, action: int, error: str, took_s: float) -> None:
        if action:
            with self._write() as db:
                ends = {"ended": self._clock(), "error": error, "took_s": max(0.0, took_s)}
                update(db, "power_acts", {"id": action}, ends)
                self._took = None

    # -- history -------------------------------------------------------------------------------------------------

    def acts(self, since: float = 0.0) -> list[PowerAct]:
        """The switches of nodes that began after this time, oldest first."""
        rows = self._rows("select * from power_acts where began >= ? order by id", [since])
        return [PowerAct(**{**row, "kind": NodeActionKind(row["kind"])}) for row in rows]

    def took(self) -> Sequence[Took]:
        """How long the last switches took that were by our order, newest first; the same object while none ends."""
        if self._took is None:
            self._took = [_took(row) for row in self._rows(_TOOK, [0.0])]
        return self._took

    def came_on(self) -> Mapping[str, float]:
        """By node, when it last came on by our order."""
        sql = "select node, max(ended) as ended from power_acts where kind = 'power-on' and ended > 0 and error = '' "
        return {row["node"]: row["ended"] for row in self._rows(sql + "group by node")}

    def prune(self, before: float) -> None:
        """Forget switches that ended before this time."""
        with self._write() as db:
            db.execute("delete from power_acts where ended > 0 and ended < ?", [before])
            db.execute("delete from power_late where ended < ?", [before])

    # -- lateness ------------------------------------------------------------------------------------------------

    def note_late(self, span: LateSpan) -> None:
        """Record a span, in place of what was recorded of it before."""
        row = [span.began, span.ended, *astuple(span.sums)]
        with self._write() as db:
            db.execute(f"insert or replace into power_late values ({','.join('?' * len(row))})", row)

    def late_spans(self, since: float) -> list[LateSpan]:
        """The spans that have ended since this time, oldest first."""
        rows = self._rows("select * from power_late where ended >= ? order by began", [since])
        return [LateSpan(began, ended, LateSums(*sums)) for began, ended, *sums in (row.values() for row in rows)]

    # -- idle periods --------------------------------------------------------------------------------------------

    def idle_since(self) -> Mapping[str, float]:
        """By node that nobody uses, since when."""
        return {row["node"]: row["since"] for row in self._rows("select node, since from power_idle")}

    def note_idle(self, begun: Mapping[str, float], ended: Collection[str], averages: Mapping[str, float]) -> None:
        """Record idle periods that have begun and ended, and the averages of classes that changed by that."""
        with self._write() as db:
            for node in ended:
                db.execute("delete from power_idle where node = ?", [node])
            for node, since in begun.items():
                db.execute("insert or ignore into power_idle (node, since) values (?,?)", [node, since])
            for name, expected_s in averages.items():
                db.execute("insert or replace into power_averages (class, expected_s) values (?,?)", [name, expected_s])

    def averages(self) -> Mapping[str, float]:
        """By class, the average of its idle periods in seconds (equation 9)."""
        return {row["class"]: row["expected_s"] for row in self._rows("select class, expected_s from power_averages")}


def took_in(connection: sqlite3.Connection, since: float) -> list[Took]:
    """As ``PowerBook.took``, of the switches since then, in a ledger that is connected to. Raises sqlite3.Error."""
    connection.row_factory = sqlite3.Row
    return [_took(row) for row in connection.execute(_TOOK, [since])]


def _took(row: Any) -> Took:
    return Took(row["node"], NodeActionKind(row["kind"]), row["took_s"])


def comes_on(switches: Mapping[str, NodeSwitch], node: str) -> bool:
    """Whether the node is being switched on."""
    return node in switches and switches[node].state is SwitchState.COMING_ON


def can_come_on(switches: Mapping[str, NodeSwitch], now: float) -> list[str]:
    """The nodes that can be had although they are off, or going off; those that are had soonest, and safest, first."""
    found = [each for each in switches.values() if each.not_before <= now and each.state is not SwitchState.COMING_ON]
    return [each.node for each in sorted(found, key=_effort)]


def _effort(switch: NodeSwitch) -> int:
    if switch.state is SwitchState.GOING_OFF:
        return 2 if switch.told else 0
    return 1 if switch.state is SwitchState.OFF else 3


def _row(switch: NodeSwitch) -> dict[str, Any]:
    return {name: _plain(getattr(switch, name)) for name in NodeSwitch.__slots__}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, enum.Enum) else value
