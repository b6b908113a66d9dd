"""History: the journal of all that engines did, of one line of them or of those of each group; and of who led them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from e2e.cluster import SHARED
from e2e.live.acts import Acts, Lead, leads, turns, two_of_one
from e2e.live.site import Decision, Site
from e2e.rooms import Machine
from journal.check import check

#: By name, the hosts of each.
Groups = Mapping[str, tuple[str, ...]]


class History:
    """What was seen so far. Ledgers, texts and VMs are looked at again and again: the oldest ledgers do not stay."""

    def __init__(
        self, site: Site, groups: Groups | None = None, logs: Callable[[], Mapping[str, str]] | None = None
    ) -> None:
        """Have seen nothing.

        Args:
            site: the minicluster.
            groups: the hosts of each group that has an engine of its own; None: as the minicluster was made.
            logs: tells by host all that its engine or manager has said; None: as the minicluster has it.
        """
        self._site, self._logs = site, logs or site.logs
        self._groups: Groups = site.groups if groups is None else groups
        self._shared = site.directory / "shared" / SHARED.lstrip("/")
        self._acts = {name: Acts(name, hosts) for name, hosts in (self._groups or {"": ()}).items()}
        self._texts: list[tuple[int, int, dict[str, list[str | None]]]] = []  # epoch, number, group and wish by vjob
        self._places: set[tuple[str, str]] = set()  # VMs and their nodes, as of the last look
        self._moves: list[str] = []

    def note(self, decisions: list[Decision]) -> None:
        """Take in when engines have decided: it belongs to their turns."""
        for each in decisions:
            self._acts[each.group].decided(each.epoch, each.time)

    def look(self, now: float) -> None:
        """With managers: see where VMs are, and what the leader has given; ``now``: by the clock."""
        if not self._groups:
            return
        self._read_texts()
        seen = {(guest.vm, guest.node) for guest in Machine(self._site).guests()}
        gone = [(place, "gone") for place in self._places - seen]
        for (vm, node), what in [*gone, *((place, "standing") for place in seen - self._places)]:
            group = next(name for name, hosts in self._groups.items() if node in hosts)
            vjob = int(vm.removeprefix("vjob").partition("-")[0])
            fields = {"vjob": vjob, "vm": vm, "node": node, "is": what, "of": group}
            self._moves.append(json.dumps({"kind": "vm", "time": now, **fields}))
        self._places = seen

    def read(self) -> None:
        """Read all ledgers that are there."""
        for name, acts in self._acts.items():
            acts.read_all(self._shared / "groups" / (name or "all"), turns(self._logs(), name))

    def lines(self) -> list[str]:
        """The journal, as ``journal.check`` reads it."""
        logs = self._logs()
        acts = [line for name, acts in self._acts.items() for line in acts.lines(turns(logs, name))]
        return [*acts, *self._given(logs), *self._moves]

    def breaches(self) -> list[str]:
        """What must not be."""
        logs = self._logs()
        twice = [said for name in self._acts for said in two_of_one(leads(logs, name))]
        return [*twice, *two_of_one(self.leads()), *check(self.lines()).breaches]

    def leads(self) -> list[Lead]:
        """The turns of those that have led the site: managers, or engines where there are none."""
        return leads(self._logs(), who="manager" if self._groups else "engine")

    def actors(self, job: int) -> set[str]:
        """The groups whose engines acted on a vjob."""
        return {each["of"] for each in map(json.loads, self.lines()) if each.get("what") and each.get("vjob") == job}

    def _given(self, logs: Mapping[str, str]) -> Iterator[str]:
        """What leaders have written. Texts that were replaced between two looks are not among them."""
        hosts = {lead.epoch: lead.host for lead in leads(logs, who="manager")}
        for epoch, serial, vjobs in self._texts:
            if epoch in hosts:
                fields = {"who": hosts[epoch], "epoch": epoch, "serial": serial, "vjobs": vjobs}
                yield json.dumps({"kind": "given", "time": 0, **fields})

    def _read_texts(self) -> None:
        for path in (self._shared / "site").glob("given-*.json"):
            self._read_text(path)

    def _read_text(self, path: Path) -> None:
        try:
            told = json.loads(path.read_text() or "{}")
        except FileNotFoundError:
            return  # three are kept
        if told:
            vjobs = {job: [place["group"], place["to"]] for job, place in told["vjobs"].items()}
            if (text := (told["epoch"], told["serial"], vjobs)) not in self._texts:
                self._texts.append(text)
