"""Shares: what a user has beyond a share of the cluster goes to others that have waited long enough (0121). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: Sums of parts of a cluster are as exact as this.
_EXACT = 1e-9


def beyond(vjobs: Iterable[tuple[str, str, float]], share: float) -> Iterator[str]:
    """The vjobs with which their users have more than a share of the cluster.

    One vjob a user may always have, however large it is. Whose user nobody knows is bounded by nothing.

    Args:
        vjobs: the name of each, its user, and the part of the cluster that it has or asks for; those first that the
            user keeps longest.
        share: of the cluster, for each user.
    """
    held: dict[str, float] = {}
    for name, user, part in vjobs:
        has = held.get(user)
        if not user:
            continue
        if has is not None and has + part > share + _EXACT:
            yield name
        else:
            held[user] = (has or 0.0) + part
