"""Journal of acts: who did what to whom, under which epoch and when, and what became of VMs and scripts; for tests.

Neighbours of engines write it, not the engines: one JSON object a line. ``check.py`` reads it, and describes the kinds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class Act:
    """One act of an engine at a neighbour; in the journal when it has ended, or at the journal's end."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def accepted(self, time: float) -> None:
        """The neighbour begins it."""
        self.fields["begin"] = time

    def refused(self, time: float) -> None:
        """The neighbour does not do it."""
        self.fields |= {"begin": None, "end": time, "outcome": "refused"}

    def ended(self, time: float, outcome: str) -> None:
        """It is over: ``done``, ``failed``, or ``unheard`` by the neighbour. The first word counts."""
        if self.fields["outcome"] == "open":
            self.fields |= {"end": time, "outcome": outcome}


class Journal:
    """All entries of one course, in memory; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: list[dict[str, Any]] = []

    def lead(self, who: str, epoch: int, until: float, *, begin: float | None = None, of: str = "") -> None:
        """From now, or ``begin``, on until then ``who`` may act; ``of``: for that group."""
        begin = self._clock() if begin is None else begin
        self._entries.append({"kind": "lead", "who": who, "epoch": epoch, "begin": begin, "end": until, "of": of})

    def ends(self, who: str) -> None:
        """From now on ``who`` may act no more, earlier than was said."""
        for entry in self._entries:
            if entry["kind"] == "lead" and entry["who"] == who:
                entry["end"] = min(entry["end"], self._clock())

    def act(
        self,
        who: str,
        epoch: int,
        where: str,
        what: str,
        vm: str,
        vjob: int | None,
        nodes: Iterable[str],
        *,
        of: str = "",
    ) -> Act:
        """An engine that leads by its own clock is about to do something; ``of``: that of this group.

        Returns the entry, to be ended.
        """
        act = Act(
            {
                "kind": "act",
                "who": who,
                "epoch": epoch,
                "asked": self._clock(),
                "begin": None,
                "end": None,
                "outcome": "open",
                "where": where,
                "what": what,
                "vm": vm,
                "vjob": vjob,
                "nodes": list(nodes),
                "of": of,
            }
        )
        self._entries.append(act.fields)
        return act

    def vm(self, vjob: int, vm: str, node: str, now: str, *, of: str = "") -> None:
        """The VM is ``running``, ``standing`` or ``gone`` on the node, or was ``killed`` there by no engine.

        ``of``: the group that has the node.
        """
        fields = {"vjob": vjob, "vm": vm, "node": node, "is": now, "of": of}
        self._entries.append({"kind": "vm", "time": self._clock(), **fields})

    def given(self, who: str, epoch: int, serial: int, vjobs: dict[str, list[str | None]]) -> None:
        """The leader of managers ``who`` has written where vjobs are: by job id the group, and the one it wishes."""
        fields = {"who": who, "epoch": epoch, "serial": serial, "vjobs": vjobs}
        self._entries.append({"kind": "given", "time": self._clock(), **fields})

    def took(self, group: str, epoch: int, serial: int) -> None:
        """The engine of a group follows this text."""
        self._entries.append({"kind": "took", "time": self._clock(), "of": group, "epoch": epoch, "serial": serial})

    def script(self, vjob: int, now: str) -> None:
        """The script of the vjob ``begins`` or ``ends``."""
        self._entries.append({"kind": "script", "time": self._clock(), "vjob": vjob, "is": now})

    def vjob(self, vjob: int, now: str) -> None:
        """The vjob is ``submitted``, ``cancelled`` by a person, or ``ended`` by itself."""
        self._entries.append({"kind": "vjob", "time": self._clock(), "vjob": vjob, "is": now})

    def over(self) -> None:
        """Nothing follows: all vjobs have to have ended."""
        self._entries.append({"kind": "over", "time": self._clock()})

    def lines(self) -> list[str]:
        """The journal, as it is in a file."""
        return [json.dumps(entry) for entry in self._entries]

    def write(self, path: Path) -> None:
        """Write it to a file."""
        path.write_text("".join(f"{line}\n" for line in self.lines()))
