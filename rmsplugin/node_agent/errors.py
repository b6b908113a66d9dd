"""Agent errors: the engine gets them when a verb could not be done."""

from __future__ import annotations

import errno
from typing import Literal

from rmsplugin.errors import CorruptStateError, NoSpaceError, NotFoundError, RmspluginError, TimedOutError

Kind = Literal["not_found", "no_store", "no_space", "corrupt", "exists", "deposed", "unowned", "timed_out", "failed"]

_KINDS: dict[type[RmspluginError], Kind] = {
    CorruptStateError: "corrupt",
    NotFoundError: "not_found",
    NoSpaceError: "no_space",
    TimedOutError: "timed_out",
}


class AgentError(Exception):
    """A verb failed; the message is one line for a person, the kind is for the engine, and so are the facts."""

    def __init__(self, kind: Kind, message: str, **facts: str | int) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.facts = facts

    @classmethod
    def of(cls, error: OSError | RmspluginError) -> AgentError:
        """The agent error for an error of the operating system, or of the platform on this node."""
        if isinstance(error, RmspluginError):
            return cls(_KINDS.get(type(error), "failed"), str(error))
        kind: Kind = "no_space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "failed"
        where = f": {error.filename}" if error.filename else ""
        return cls(kind, f"{error.strerror or error}{where}")
