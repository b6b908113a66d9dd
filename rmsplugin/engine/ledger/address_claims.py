"""Address claims: the addresses of ``network.pool`` that each group has, as files on the directory controllers share.

A group claims an address before the first of its VMs gets it, by making the file of that name, which only one can. It
keeps the address for good: a VM of another group must not get it while a node, or a saved state, still knows it. Only a
vjob that goes to another group takes its addresses along.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Protocol

from rmsplugin.errors import UnavailableError


class Claims(Protocol):
    """Whose addresses are."""

    def mine(self) -> Set[str]:
        """Addresses that this group has."""
        ...

    def others(self) -> Set[str]:
        """Addresses that other groups have, as far as is known."""
        ...

    def claim(self, address: str) -> bool:
        """Have the address, if no other group has it. Returns whether this group has it. Raises UnavailableError."""
        ...


class AllMine:
    """The claims of an engine of all groups."""

    def mine(self) -> Set[str]:
        """See ``Claims``: none is claimed before others."""
        return frozenset()

    def others(self) -> Set[str]:
        """See ``Claims``."""
        return frozenset()

    def claim(self, address: str) -> bool:
        """See ``Claims``."""
        return True


class AddressClaims:
    """The claims of a group. Several threads may call."""

    def __init__(self, directory: Path, group: str) -> None:
        """Read nothing yet; the directory is made by the first claim."""
        self._directory, self._group = directory, group
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}  # by address, the group

    def read(self) -> None:
        """Read all claims. Raises UnavailableError."""
        try:
            for name in os.listdir(self._directory) if self._directory.exists() else ():
                with self._lock:  # others ask, and claim, between one claim and the next
                    if not name.startswith(".") and name not in self._owners:
                        self._owners[name] = self._owner(name)
        except OSError as error:
            raise self._unavailable(error) from None

    def mine(self) -> Set[str]:
        """See ``Claims``."""
        with self._lock:
            return {address for address, group in self._owners.items() if group == self._group}

    def others(self) -> Set[str]:
        """See ``Claims``."""
        with self._lock:
            return {address for address, group in self._owners.items() if group != self._group}

    def claim(self, address: str) -> bool:
        """See ``Claims``."""
        return self.claim_for(self._group, address)

    def claim_for(self, group: str, address: str) -> bool:
        """Have the group have the address, if no other has it. Returns whether it has it. Raises UnavailableError."""
        with self._lock:
            if address not in self._owners:
                try:
                    self._make(address, group)
                    self._owners[address] = self._owner(address)
                except OSError as error:
                    raise self._unavailable(error) from None
            return self._owners[address] == group

    def take_over(self, address: str, giver: str) -> None:
        """Have an address that came with a vjob of another group. Raises UnavailableError."""
        with self._lock:
            try:
                if self._owner_if_any(address) in (giver, None):
                    self._make(address, self._group, replace=True)
                self._owners[address] = self._owner(address)
            except OSError as error:
                raise self._unavailable(error) from None

    def look_again(self, addresses: Iterable[str]) -> None:
        """Read anew whose these are: another group may have taken them over. Raises UnavailableError."""
        with self._lock:
            try:
                for address in addresses:
                    self._owners.pop(address, None)
                    if (owner := self._owner_if_any(address)) is not None:
                        self._owners[address] = owner
            except OSError as error:
                raise self._unavailable(error) from None

    def claim_all(self, addresses: Iterable[str]) -> list[str]:
        """Claim these. Returns those that another group has. Raises UnavailableError."""
        return [address for address in sorted(addresses) if not self.claim(address)]

    def _make(self, address: str, group: str, *, replace: bool = False) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._directory / f".{uuid.uuid4().hex}"
        try:
            with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(f"{group}\n")
                file.flush()
                os.fsync(file.fileno())
            if replace:
                new.replace(self._directory / address)
                return
            with contextlib.suppress(FileExistsError):  # another group was faster; or the answer of NFS was lost
                os.link(new, self._directory / address)
        finally:
            new.unlink(missing_ok=True)

    def _owner_if_any(self, address: str) -> str | None:
        try:
            return self._owner(address)
        except FileNotFoundError:
            return None

    def _owner(self, address: str) -> str:
        return (self._directory / address).read_text(encoding="utf-8", errors="replace").strip()

    def _unavailable(self, error: OSError) -> UnavailableError:
        return UnavailableError(f"addresses cannot be claimed in {self._directory}: {error.strerror or error}")
