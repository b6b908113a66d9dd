"""Parted: one engine for all groups, or one for each, and never both; each kind takes over the ledger of the other.

An engine waits in its line first, and then looks for engines of the other kind. So of two that begin at the same time
at least one sees the other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rmsplugin.adapters.coordination.candidates import standing
from rmsplugin.adapters.coordination.tree import MissingError, Tree
from rmsplugin.adapters.coordination.turns import Turns
from rmsplugin.engine.ledger.ledger_file import LEDGER_NAME
from rmsplugin.engine.ledger.parting import SPLIT, Change, joined_again, known_in, own_part
from rmsplugin.engine.ledger.shared_files import ledgers_in
from rmsplugin.engine.ledger.site_ledgers import BEFORE
from rmsplugin.engine.ledger.whereabouts import ALL
from rmsplugin.engine.territory.territory import SITE_DIR, Territory
from rmsplugin.errors import LedgerError
from rmsplugin.settings import GROUPS_DIR, Settings

log = logging.getLogger(__name__)


class Parted:
    """Whether the site's ledger is parted, as an engine that leads finds it."""

    def __init__(
        self, settings: Settings, shared_dir: Path, tree: Tree, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Look at nothing yet.

        Args:
            settings: of this engine.
            shared_dir: the directory that controllers share.
            tree: this engine's session.
            sleep: waits for seconds.
        """
        self._settings, self._tree, self._sleep = settings, tree, sleep
        self._groups = shared_dir / GROUPS_DIR
        self._all = self._groups / ALL
        self._mark = self._all / SPLIT

    def for_a_group(self, territory: Territory) -> Change | None:
        """Part the ledger, for the engine of a group. Returns how its first ledger is made; None: not of another one.

        Raises:
            LedgerError: an engine of all groups is there; or the ledger cannot be parted, and why.
            UnavailableError: the ensemble does not answer.
        """
        site, is_new = self._settings.site_path, not self._mark.exists()
        self._refuse_beside([site])
        if not territory.is_told:
            raise LedgerError(f"a group begins once the leader has given hosts: {territory.problem}")
        groups = self._parted_as(territory.groups)
        try:
            self._refuse_beside([site])  # it may have begun before the mark was there
        except LedgerError:
            if is_new:
                self._mark.unlink(missing_ok=True)
            raise
        if ledgers_in(self._groups / territory.group):
            return None
        if not ledgers_in(self._all):
            self._refuse_local()
            return None
        self._wait_for_turns([site])
        log.info("the first ledger of group %s is made of that of one engine", territory.group)
        return Change(own_part(territory.group, groups, territory.claims.claim_for), self._all)

    def for_all(self) -> Change | None:
        """Join the ledgers of groups, for the engine of all. Returns how its next ledger is made; None: as always.

        Raises:
            LedgerError: engines of groups are there, or have vjobs.
            UnavailableError: the ensemble does not answer.
        """
        lines = self._lines()
        self._refuse_beside(lines)
        if not self._mark.exists():
            return None
        directories = [each for each in self._directories() if ledgers_in(each)]
        if not directories:
            self._mark.unlink()  # no group has begun
            return None
        if known := known_in(directories):
            said = "; ".join(f"group {group}: {_named(vjobs)}" for group, vjobs in known.items())
            raise LedgerError(
                f"groups have ledgers of their own, and vjobs in them ({said}): one engine would know none of these. "
                "Let them end under the managers, or cancel them, and start one engine then"
            )
        self._wait_for_turns(lines)
        log.info("no group has a vjob: one engine goes on with the ledger from before")
        return Change(joined_again(self._parted_as({}), [each.name for each in directories]))

    def joined(self, epoch: int) -> None:
        """Put away the ledgers of groups: the engine of all has one of its own now, of this epoch."""
        site = self._groups.parent / SITE_DIR  # the leaders' words, and the groups' claims of addresses
        for directory in (*self._directories(), *([site] if site.exists() else [])):
            directory.rename(directory.with_name(f"{BEFORE}{epoch}-{directory.name}"))
        self._mark.unlink(missing_ok=True)

    def _parted_as(self, groups: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """The hosts of all groups by which the ledger is parted: these, unless a group has begun before."""
        self._all.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._mark.exists():
            new = self._all / f".{SPLIT}-{uuid.uuid4().hex}"
            with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
                json.dump({name: list(hosts) for name, hosts in groups.items()}, file)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(new, self._mark)
            new.unlink()
        try:
            return {name: tuple(hosts) for name, hosts in json.loads(self._mark.read_text()).items()}
        except (ValueError, AttributeError, TypeError):
            raise LedgerError(f"{self._mark} does not say how the ledger was parted") from None

    def _directories(self) -> list[Path]:
        found = self._groups.iterdir() if self._groups.exists() else ()
        return sorted(each for each in found if each.name != ALL and not each.name.startswith("."))

    def _lines(self) -> list[str]:
        """The nodes of the ensemble of the managers, and of all groups' engines."""
        site = self._settings.cluster.path
        try:
            groups = sorted(self._tree.children(f"{site}/{GROUPS_DIR}"))
        except MissingError:
            groups = []
        return [f"{site}/{SITE_DIR}", *(f"{site}/{GROUPS_DIR}/{name}" for name in groups)]

    def _refuse_beside(self, folders: Iterable[str]) -> None:
        """Raise LedgerError if an engine leads, or waits, in one of these places."""
        for folder in folders:
            if there := standing(self._tree, folder):
                kind = (
                    "an engine of all groups" if self._settings.territory else "a manager, or an engine of one group,"
                )
                raise LedgerError(
                    f"{kind} is there ({there[0].name}, at {folder} of the ensemble): a site has either one engine "
                    "that leads, or managers. Stop the others first, on all controllers"
                )

    def _wait_for_turns(self, folders: Iterable[str]) -> None:
        """Wait until nothing is under way that an engine has begun which was killed in one of these places."""
        turns = [Turns(self._tree, f"{folder}/turn").last() for folder in folders]
        if wait_s := max((turn.wait_s for turn in turns if turn is not None and not turn.ended), default=0.0):
            log.info("waiting %g s for what an engine before may have begun", wait_s)
            self._sleep(wait_s)

    def _refuse_local(self) -> None:
        state_dir = self._settings.engine.state_dir.parent.parent
        if (local := state_dir / LEDGER_NAME).exists():
            raise LedgerError(
                f"this host has the ledger of one engine, {local}, and the controllers share none: start one engine "
                "with cluster.shared_dir first, which takes its ledger there; stop it, and start managers then"
            )


def _named(vjobs: list[str]) -> str:
    more = f" and {len(vjobs) - 5} more" if len(vjobs) > 5 else ""
    return f"{', '.join(vjobs[:5])}{more}"
