"""Absent: stands for an adapter to what a site does not have. Any question to it is refused, and asks nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from rmsplugin.errors import OperationFailedError


class Absent:
    """Refuses whatever it is asked, with OperationFailedError; only ``close`` has no effect."""

    def __init__(self, what: str) -> None:
        """``what`` there is none of, for a sentence."""
        self._what = what

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*_: object, **__: object) -> NoReturn:
            raise OperationFailedError(f"there are no {self._what} here, and {name} was asked of them")

        return refuse
