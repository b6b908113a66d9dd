"""Site ledgers: all ledgers in which a site remembers vjobs: of one engine, or of the engines of groups.

After a parting, and after the way back, ledgers of before stay where they are, or are put away. What ended with their
engines is in them alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME
from rmsplugin.engine.ledger.parting import SPLIT
from rmsplugin.engine.ledger.shared_files import ledgers_in
from rmsplugin.engine.ledger.whereabouts import ALL
from rmsplugin.settings import GROUPS_DIR, Settings

#: Before the names of directories of groups' ledgers that one engine has followed; the epoch of that engine is next.
BEFORE = ".before-"

_BEFORE_NAME = re.compile(rf"{re.escape(BEFORE)}([0-9]+)-(.+)")


@dataclass(frozen=True, slots=True)
class SiteLedger:
    """One of them, the newest of its directory.

    Attributes:
        path: of the file.
        group: whose engine has it, or had it; empty: an engine of all groups.
        left: no engine goes on with it: what it says of vjobs that others know is old.
        ended_only: its vjobs that have not ended are known to others, or were never begun.
    """

    path: Path
    group: str = ""
    left: bool = False
    ended_only: bool = False

    @property
    def whose(self) -> str:
        """The words for it: `group a`, or `all groups`."""
        return (f"group {self.group}" if self.group else "all groups") + (", from before" if self.left else "")


def site_ledgers(settings: Settings) -> list[SiteLedger]:
    """The ledgers of the site, those that engines have first; none if there is none, or none may be looked for."""
    shared = settings.cluster.shared_dir
    if shared is None:
        path = settings.engine.state_dir / LEDGER_NAME
        return [SiteLedger(path)]
    try:
        return list(_shared_ones(shared / GROUPS_DIR))
    except OSError:
        return []


def of_engines(ledgers: list[SiteLedger]) -> list[SiteLedger]:
    """Those that engines go on with."""
    return [each for each in ledgers if not each.left]


def _shared_ones(base: Path) -> Iterator[SiteLedger]:
    """Raises OSError."""
    names = sorted(each.name for each in base.iterdir() if each.is_dir()) if base.exists() else []
    groups = [name for name in names if name != ALL and not name.startswith(".")]
    begun = {name: newest for name in groups if (newest := _newest(base / name)) is not None}
    for name, path in begun.items():
        yield SiteLedger(path, name)
    if (whole := _newest(base / ALL)) is not None:
        # A group that has not begun yet has its vjobs in the ledger that is to be parted.
        yield SiteLedger(whole, left=bool(begun), ended_only=bool(begun) and _parted_among(base / ALL) <= begun.keys())
    put_away = [(int(found[1]), found[2], name) for name in names if (found := _BEFORE_NAME.fullmatch(name))]
    for _, group, name in sorted(put_away, key=lambda each: (-each[0], each[1])):
        if (last := _newest(base / name)) is not None:
            yield SiteLedger(last, group, left=True, ended_only=True)


def _newest(directory: Path) -> Path | None:
    return next(iter(ledgers_in(directory)[::-1]), None)


def _parted_among(directory: Path) -> set[str]:
    """The groups by which the ledger of all was parted."""
    try:
        return {*json.loads((directory / SPLIT).read_text(encoding="utf-8"))}
    except (FileNotFoundError, ValueError, TypeError):
        return set()
