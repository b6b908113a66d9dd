"""Sentences that several commands say: how far a context switch is, and who has paused the engine."""

from __future__ import annotations

from rmsplugin.cli.shared.table import (
    Row,
    duration,
    local_time,
)


def cycle_sentence(cycle: Row) -> str:
    """How far it is: "context switch 12 is running: 3 of 8 steps done in 0:40 (expected: 1:30)"."""
    sentence = f"context switch {cycle['number']}: {cycle['state']}"
    if not cycle["steps"]:
        return sentence
    took = "" if cycle["took_s"] is None else f" in {duration(cycle['took_s'])}"
    expected = f" (expected: {expected_text(cycle)})"
    return f"{sentence}, {cycle['steps_done']} of {cycle['steps']} steps done{took}{expected}"


def expected_text(cycle: Row) -> str:
    """The time that a context switch was expected to take, where the last ones took about as long as expected."""
    return duration(cycle["expected_s"]) if cycle.get("expected_known", True) else "unknown"


def pause_sentence(pause: Row) -> str:
    """Since when, and by whom: "paused since 2026-01-01T12:00:00 by alice"."""
    return f"paused since {local_time(pause['since'])} by {pause['by']}"
