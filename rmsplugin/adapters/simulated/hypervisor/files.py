"""Simulated files: the saved states of a cluster in memory, on shared storage or on each node's own."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, replace

from rmsplugin.errors import NoSpaceError


@dataclass(frozen=True, slots=True)
class SimulatedState:
    """The content of one state file."""

    vm: str
    size_bytes: int
    serial: int  # the number of this save of the VM; for a checkpoint, of the last save before it
    checkpoint: int = 0  # the number of this checkpoint of the VM; 0: a save
    template: bool = False  # of a VM that was saved before it had an identity
    node: str = ""  # where it was saved
    complete: bool = True
    intact: bool = True

    @property
    def blake2b(self) -> str:
        """Stands for the digest of the content: another content has another digest."""
        return hashlib.blake2b(repr(self).encode()).hexdigest()


class SimulatedFiles:
    """State files of all nodes; files below ``shared_prefix`` are the same on every node."""

    def __init__(self, *, shared_prefix: str = "/shared/", capacity_bytes: int = 1 << 50) -> None:
        self._shared_prefix = shared_prefix
        self._capacity_bytes = capacity_bytes
        self._files: dict[tuple[str, str], SimulatedState] = {}
        self._markers: dict[tuple[str, str], str] = {}  # by the key of the store's directory
        self._unmounted: set[str] = set()
        self._lock = threading.RLock()

    def _key(self, node: str, path: str) -> tuple[str, str]:
        shared = path.startswith(self._shared_prefix) and node not in self._unmounted
        return ("", path) if shared else (node, path)

    def mount(self, node: str, mounted: bool) -> None:
        """Mount the shared storage on the node, or unmount it: then the node sees the files below the mount point."""
        (self._unmounted.discard if mounted else self._unmounted.add)(node)

    def marker(self, node: str, store: str) -> str | None:
        """The marker of the store; None if it has none."""
        return self._markers.get(self._key(node, f"{store}/"))

    def mark(self, node: str, store: str, marker: str) -> str:
        """Give the store a marker, unless it has one. Returns its marker after that."""
        return self._markers.setdefault(self._key(node, f"{store}/"), marker)

    def wipe(self, node: str, store: str) -> None:
        """Replace the store by a new, empty one: files and marker are gone."""
        with self._lock:
            owner, directory = self._key(node, f"{store}/")
            self._markers.pop((owner, directory), None)
            for key in [key for key in self._files if key[0] == owner and key[1].startswith(directory)]:
                del self._files[key]

    def get(self, node: str, path: str) -> SimulatedState | None:
        """The file's content; None if there is none."""
        with self._lock:
            return self._files.get(self._key(node, path))

    def put(self, node: str, path: str, state: SimulatedState) -> None:
        """Write a file, over an older one. Raises NoSpaceError, and then leaves the older one."""
        with self._lock:
            if state.size_bytes > self.free_bytes(node, path):
                raise NoSpaceError(f"no space on {node} for {path}")
            self._files[self._key(node, path)] = state

    def link(self, node: str, path: str, name: str) -> None:
        """Give a file a second name, which takes no room."""
        with self._lock:
            self._files[self._key(node, name)] = self._files[self._key(node, path)]

    def drop(self, node: str, path: str) -> None:
        """Remove a file if it is there."""
        with self._lock:
            self._files.pop(self._key(node, path), None)

    def damage(self, node: str, path: str) -> None:
        """Change a file's content unnoticed."""
        with self._lock:
            self._files[self._key(node, path)] = replace(self._files[self._key(node, path)], intact=False)

    def paths(self, node: str) -> list[str]:
        """All files that the node sees."""
        with self._lock:
            owners = (node,) if node in self._unmounted else ("", node)
            return sorted(path for owner, path in self._files if owner in owners)

    def seen(self) -> dict[tuple[str, str], SimulatedState]:
        """A copy of all files as they are at one instant, by node (empty: shared) and path."""
        with self._lock:
            return dict(self._files)

    def free_bytes(self, node: str, path: str) -> int:
        """Room on the store that holds ``path``; an existing file counts as room for its successor."""
        with self._lock:
            owner, path = self._key(node, path)
            # A file of several names is one object.
            others = {id(state): state for (o, p), state in self._files.items() if o == owner and p != path}
            return self._capacity_bytes - sum(state.size_bytes for state in others.values())

    def set_capacity(self, capacity_bytes: int) -> None:
        """Resize every store."""
        with self._lock:
            self._capacity_bytes = capacity_bytes
