"""Numbers: of operations, events, ... of a ledger, made such that they tell the group whose ledger it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rmsplugin.errors import NotFoundError, RefusedError

#: The last digits of a number are those of the group, by its name's place among all.
_GROUPS = 1000


class Numbers:
    """The numbers of a site with these groups. They are others when groups come or go: no number is kept for long."""

    def __init__(self, groups: Iterable[str]) -> None:
        """Raises RefusedError for more groups than there can be."""
        self._names = sorted(groups)
        if len(self._names) > _GROUPS:
            raise RefusedError(f"there are {len(self._names)} groups; managers can have {_GROUPS}")

    def site(self, group: str, number: int) -> int:
        """The number by which the site knows what the group's engine calls by this one."""
        return number * _GROUPS + self._names.index(group)

    def group(self, number: int) -> tuple[str, int]:
        """The group, and what its engine calls it. Raises NotFoundError."""
        index = number % _GROUPS
        if index >= len(self._names):
            raise NotFoundError(f"there is no number {number}: its last digits, {index:03}, are of no group")
        return self._names[index], number // _GROUPS
