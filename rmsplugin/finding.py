"""Finding: one thing that was looked at, how it is, and what to do when it is not as it should be."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"  # works, but not as well, or not for everybody
    ERROR = "error"  # vjobs will fail


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; ``subject`` says where, ``what`` says how it is there."""

    level: Level
    subject: str
    what: str
    remedy: str = ""


def ok(subject: str, what: str) -> Finding:
    """Return a finding of something that is as it should be."""
    return Finding(Level.OK, subject, what)


def warning(subject: str, what: str, remedy: str) -> Finding:
    """Return a finding of something that should be better."""
    return Finding(Level.WARNING, subject, what, remedy)


def error(subject: str, what: str, remedy: str) -> Finding:
    """Return a finding of something that keeps vjobs from working."""
    return Finding(Level.ERROR, subject, what, remedy)
