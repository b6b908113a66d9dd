"""Reliefs: a vjob that runs goes to another group, so that a wider one has room; and faults on its way."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from e2e.cluster import SHARED, Cluster
from e2e.live.dice import Throw
from e2e.live.history import History
from e2e.live.site import Site
from e2e.managers import end_well, group_of
from e2e.rooms import count, explain, wait_number

from rmsplugin.engine.ledger.ledger_file import read_only
from rmsplugin.engine.ledger.shared_files import ledgers_in

GIVER, TAKER = "left", "right"
#: How far it is: each of these is after those before it.
WISHED, SUSPENDING, COPYING, PACKED, TAKEN = INSTANTS = ("wished", "suspending", "copying", "packed", "taken")


def fill(cluster: Cluster) -> tuple[int, int, int]:
    """Have a vjob on n2 that fills it, a small one on n3, and a small one on n1: a CPU is free in each group."""
    wide = count(cluster, "-c", "2", "--nodelist=n2")
    there = [count(cluster, "--nodelist=n3") for _ in range(2)]
    for job in (wide, *there):
        wait_number(cluster, job, 1)
    goes = count(cluster)
    wait_number(cluster, goes, 2)
    assert group_of(cluster, goes) == GIVER, explain(cluster)
    end_well(cluster, there[:1])
    return wide, there[1], goes


def that_waits(cluster: Cluster) -> int:
    """A vjob that has room once the one on n1 has gone."""
    return count(cluster, "-c", "2", "--nodelist=n1")


# -- how far it is ----------------------------------------------------------------------------------------------------


class Way:
    """The way of one vjob from the giver to the taker, as the files tell it that controllers share."""

    def __init__(self, site: Site, job: int) -> None:
        self._shared, self._job = site.directory / "shared" / SHARED.lstrip("/"), job

    def far(self) -> str:
        """How far it is; empty: it is not wished elsewhere yet, or no more."""
        if self.state(TAKER):
            return TAKEN
        if self._asked(GIVER, "select 1 from parcels where kind = 'vjob' and number = ?"):
            return PACKED
        if self._asked(GIVER, "select 1 from copies where number = ?"):
            return COPYING
        if self.state(GIVER) == "suspending":
            return SUSPENDING
        return WISHED if self.place().get("relieves") else ""

    def is_over(self) -> bool:
        """Whether it runs in one group, and is on its way no more."""
        parcels = [self._asked(group, "select 1 from parcels where number = ?") for group in (GIVER, TAKER)]
        return [*self.states().values()] == ["running"] and not any(parcels) and self.place().get("to") is None

    def states(self) -> dict[str, str]:
        """Its state, by the group that has it; that of the taker was looked at first."""
        found = {group: self.state(group) for group in (TAKER, GIVER)}
        return {group: state for group, state in found.items() if state}

    def state(self, group: str) -> str:
        """Its state there; empty: the group has not got it."""
        rows = self._asked(group, "select state from vjobs where state != 'terminated' and job_id = ?")
        return str(rows[0][0]) if rows else ""

    def place(self) -> dict[str, Any]:
        """Where the newest text of a leader has it."""
        texts = sorted((self._shared / "site").glob("given-*.json"), key=lambda path: int(path.stem.split("-")[1]))
        found: dict[str, Any] = json.loads(texts[-1].read_text())["vjobs"].get(str(self._job), {})
        return found

    def _asked(self, group: str, sql: str) -> list[Any]:
        ledger = ledgers_in(self._shared / "groups" / group)[-1]
        with contextlib.closing(read_only(ledger, busy_s=20)) as connection:
            return connection.execute(sql, [self._job]).fetchall()


# -- faults -----------------------------------------------------------------------------------------------------------


def fault(kind: str, way: str) -> Throw:
    """A fault of the live campaign; nothing is ordered before it, and nothing submitted in it."""
    return Throw(kind, way, 0.0, 0.0, "", 0.0, False)


def wait_acting(site: Site, host: str, lost: Mapping[str, int], since: float, timeout_s: float) -> float:
    """Wait until the engines of both groups have decided. Returns after how many seconds.

    Args:
        site: the minicluster.
        host: whose manager is asked.
        lost: groups that have lost their engine, each with the epoch of that one: another one has to decide.
        since: by the clock, from when a cycle counts.
        timeout_s: on an idle machine.
    """

    def act() -> bool:
        status = site.ask_on(host, "/v1/status") or {"groups": []}
        found = {each["name"]: each for each in status["groups"] if each["answers"]}
        return (
            found.keys() == {GIVER, TAKER}
            and all(found[name]["epoch"] > epoch for name, epoch in lost.items())
            and bool(status["last_cycle"])  # the oldest of all groups' last ones
            and status["last_cycle"]["time"] > since
        )

    site.wait("both groups to act", act, timeout_s, lambda: site.ask_on(host, "/v1/status"), every_s=0.2)
    return time.time() - since


# -- who acted when ---------------------------------------------------------------------------------------------------


class Journal(History):
    """The journal of acts of the engines of both groups, as their ledgers and logs tell it."""

    def wait_at(self, site: Site, way: Way, instant: str, explain: Callable[[], object]) -> str:
        """Wait until a vjob is there, or beyond: between two looks it may go past it. Returns how far it is.

        Ledgers are read at each instant: the giver's one loses all that it has of a vjob that it has packed.
        """
        seen = {""}

        def there() -> str:
            far = way.far()
            if far not in seen:
                seen.add(far)
                self.read()
            return far if far and INSTANTS.index(far) >= INSTANTS.index(instant) else ""

        return site.wait(f"it to be {instant}", there, 180, explain, every_s=0.1)
