"""Live pages: the newest scene, kept for all who look, and its documents; made anew only while somebody looks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rmsplugin.engine.serve.waits import TooManyError
from rmsplugin.latency import uncollected
from rmsplugin.live_page.document import document
from rmsplugin.live_page.drawing import Boxes, drawn
from rmsplugin.live_page.scene import Scene, Viewer, seen_by

#: A scene is made anew after so many seconds at the earliest: many viewers cost as little as one.
FRESH_S = 1.0
#: While VMs move the ledger tells nothing of their progress: then a scene is made anew after so many seconds.
PROGRESS_S = 2.0
#: The most pages that wait for news at once, of all viewers together.
MOST_WAITING = 256
#: The most documents, and drawings, of one scene that are kept: viewers who see the same share one.
_KEPT = 16

#: What all pages wait for, as ``Waits`` names it.
SUBJECT = ("page", 0)

Made = TypeVar("Made")


class LivePages:
    """Keeps the newest scene. Several threads may call."""

    def __init__(self, make: Callable[[int], Scene], monotonic: Callable[[], float] = time.monotonic) -> None:
        """``make``: makes a scene with a number; it may read the ledger."""
        self._make, self._monotonic = make, monotonic
        # The numbers of an engine that led before were lower.
        self._scene = Scene(number=int(time.time()))
        self._made = float("-inf")
        self._stale = True
        self._waiting = 0
        self._documents: dict[tuple[Viewer, str], str] = {}
        self._drawn: dict[tuple[Viewer, str], Scene] = {}
        self._boxes = Boxes()
        self._lock = threading.Lock()

    def note_change(self) -> None:
        """The newest scene is old; waits for nothing."""
        self._stale = True

    @property
    def due_s(self) -> float | None:
        """Seconds until a new scene may be made; None: there is nothing new."""
        age_s = self._monotonic() - self._made
        if self._stale:
            return max(0.0, FRESH_S - age_s)
        return 0.0 if self._scene.acts and age_s >= PROGRESS_S else None

    @property
    def patience_s(self) -> float:
        """How long a page may wait for news: less while VMs move."""
        return PROGRESS_S if self._scene.acts else float("inf")

    @property
    def number(self) -> int:
        """The number of the newest scene that was made."""
        return self._scene.number

    def renew(self) -> int:
        """Make a new scene, if one is due. Returns the number of the newest one. May wait for the ledger.

        Raises:
            LedgerUnavailableError: the ledger cannot be read.
        """
        return self._newest().number

    def scene(self, viewer: Viewer, node: str) -> Scene:
        """The newest scene, as this viewer may see it, drawn, with the VMs of the node. Errors as of ``renew``."""
        return self._kept(viewer, node, self._drawn, self._draw)[1]

    def document(self, viewer: Viewer, node: str) -> tuple[int, str]:
        """Number and document of the newest scene, for this viewer. Errors as of ``renew``."""
        scene, made = self._kept(viewer, node, self._documents, self._write)
        return scene.number, made

    def _draw(self, scene: Scene, node: str) -> Scene:
        return drawn(scene, node, self._boxes)

    def _write(self, scene: Scene, node: str) -> str:
        return document(self._draw(scene, node), node)

    def _kept(
        self, viewer: Viewer, node: str, kept: dict[tuple[Viewer, str], Made], make: Callable[[Scene, str], Made]
    ) -> tuple[Scene, Made]:
        """The newest scene, and what is made of it for this viewer, if need be."""
        scene = self._newest()
        if not (scene.private or scene.nodes_private):
            viewer = Viewer()
        with self._lock:
            if scene is self._scene and (viewer, node) in kept:
                return scene, kept[viewer, node]
        with uncollected():
            made = make(seen_by(scene, viewer), node)
        with self._lock:
            if scene is self._scene and len(kept) < _KEPT:
                kept[viewer, node] = made
        return scene, made

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a page waits for news; in the event loop only. Raises TooManyError."""
        if self._waiting >= MOST_WAITING:
            raise TooManyError(f"{self._waiting} pages are open already; close one of them")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def _newest(self) -> Scene:
        with self._lock:
            if self.due_s == 0.0:
                self._stale = False  # before: what changes while it is made is in the next one
                try:
                    with uncollected():
                        self._scene = self._make(self._scene.number + 1)
                except BaseException:
                    self._stale = True
                    raise
                self._documents.clear()
                self._drawn.clear()
                self._boxes.begin_scene()
                self._made = self._monotonic()
            return self._scene
