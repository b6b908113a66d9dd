"""Shares: a user's part beyond a share of the cluster goes to others that have waited long enough (0121). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

#: Sums of parts of a cluster are as exact as this.
_EXACT = 1e-9


def beyond(vjobs: Iterable[tuple[Item, str, float]], share: float) -> Iterator[Item]:
    """The vjobs with which their users have more than a share of the cluster.

    A user may always have one vjob, however large it is. Vjobs of unknown users are bounded by nothing.

    Args:
        vjobs: for each, the vjob or its name, its user, and the part of the cluster that it has or asks for; first
            those that the user keeps longest.
        share: the share of the cluster for each user.
    """
    held: dict[str, float] = {}
    for vjob, user, part in vjobs:
        has = held.get(user)
        if not user:
            continue
        if has is not None and has + part > share + _EXACT:
            yield vjob
        else:
            held[user] = (has or 0.0) + part
