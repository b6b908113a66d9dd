"""Neighbours of the engine that fall silent: the RMS, the hypervisor and the agent of each node, each guest."""

from __future__ import annotations

import enum
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.adapters.simulated.hypervisor.hypervisor import SimulatedHypervisor
from rmsplugin.errors import UnavailableError

#: What a hypervisor does in two halves, so that its connection can break in between.
_ACTING = ("boot", "stop", "save", "restore", "pause", "unpause", "migrate")


class Way(enum.StrEnum):
    """How the first of the silent calls fails; those that follow are not heard."""

    UNHEARD = "unheard"  # nothing happens
    UNANSWERED = "unanswered"  # it happens, and only the answer is lost
    BROKEN_OFF = "broken off"  # the hypervisor goes on with it, and ends it by itself later, well or not


@dataclass(frozen=True)
class Silence:
    """One neighbour answers none of ``calls`` calls, from its call number ``first`` on (from 1)."""

    neighbour: str
    first: int
    calls: int
    way: Way = Way.UNHEARD


@dataclass(frozen=True)
class Lie:
    """One answer of one kind of neighbour is not true: the one to its call number ``number`` (from 1) of ``method``."""

    kind: str
    method: str
    number: int
    tell: Callable[[Any], Any]  # from the true answer


class Neighbours:
    """Counts the engine's calls of each neighbour, and keeps one of them silent for a while, or has it lie once."""

    def __init__(self, hypervisor: SimulatedHypervisor, clock: Callable[[], float]) -> None:
        self.calls: Counter[str] = Counter()
        self.broken_off: dict[str, float] = {}  # VMs that a hypervisor goes on with, nobody waiting, and since when
        self._clock = clock
        self.silence: Silence | None = None
        self.lie: Lie | None = None
        self.answers: Counter[tuple[str, str]] = Counter()  # by kind and method
        self._hypervisor = hypervisor
        self._lock = threading.Lock()

    def call(self, kind: str, method: str, act: Callable[..., Any], words: tuple[Any, ...], options: Any) -> Any:
        """Call ``method`` of an adapter for the engine, unless a neighbour that it takes is silent."""
        for neighbour in _asked(kind, method, words):
            number = self._count(neighbour)
            silence = self.silence
            if silence is None or silence.neighbour != neighbour:
                continue
            if silence.first <= number < silence.first + silence.calls:
                if number == silence.first:
                    self._fail(silence.way, kind, method, act, words, options)
                raise UnavailableError(f"{neighbour} does not answer")
        return self._told(kind, method, act(*words, **options))

    def _told(self, kind: str, method: str, answer: Any) -> Any:
        with self._lock:
            self.answers[kind, method] += 1
            number = self.answers[kind, method]
        lie = self.lie
        return lie.tell(answer) if lie and (lie.kind, lie.method, lie.number) == (kind, method, number) else answer

    def over(self) -> bool:
        """Whether the silence, if there was to be one, has begun and ended."""
        silence = self.silence
        return silence is None or self.calls[silence.neighbour] >= silence.first + silence.calls - 1

    def _count(self, neighbour: str) -> int:
        with self._lock:
            self.calls[neighbour] += 1
            return self.calls[neighbour]

    def _fail(
        self, way: Way, kind: str, method: str, act: Callable[..., Any], words: tuple[Any, ...], options: Any
    ) -> None:
        """Let happen what happens although the caller is not told."""
        if way is Way.UNHEARD:
            return
        if way is Way.BROKEN_OFF and kind == "hypervisor" and method in _ACTING:

            def broken() -> None:
                raise UnavailableError("the connection was broken off")

            spec = words[0] if method == "migrate" else words[1]
            vm = getattr(spec, "name", spec)
            self._hypervisor.hook_next(method, Point.DURING, broken, vm=vm)
            try:
                act(*words, **options)
            finally:  # there was nothing to be done that could break off
                self._hypervisor.faults.hooks[:] = [
                    hook for hook in self._hypervisor.faults.hooks if hook[3] is not broken
                ]
                if (method, vm) in self._hypervisor.actions.pending:
                    self.broken_off[vm] = self._clock()
            return
        act(*words, **options)


def _asked(kind: str, method: str, words: tuple[Any, ...]) -> tuple[str, ...]:
    """The neighbours that a call needs."""
    if kind == "rms":
        return ("rms",)
    if kind == "guests":
        return (f"guest {words[0]}",)
    if method == "migrate":
        nodes = words[1:3]
    elif method == "send":
        nodes = words[0:2]
    else:
        nodes = words[0:1]
    return tuple(f"{kind} {node}" for node in nodes)
