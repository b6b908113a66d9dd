"""Both: a lease that is held while two others are, such as that of several hosts and that of one directory."""

from __future__ import annotations

from rmsplugin.adapters.lease.base import Lease


class BothLeases:
    """A ``Lease`` made of two, in this order: the first gives the epoch."""

    def __init__(self, first: Lease, second: Lease) -> None:
        """Hold neither yet."""
        self._first, self._second = first, second

    def acquire(self) -> None:
        """See ``Lease``: while the second is not to be had, the first is kept."""
        if self._first.held():
            self._first.renew()
        else:
            self._first.acquire()
        self._second.acquire()

    def renew(self) -> None:
        """See ``Lease``."""
        self._first.renew()
        self._second.renew()

    def held(self) -> bool:
        """See ``Lease``."""
        return self._second.held() and self._first.held()

    def held_until(self) -> float:
        """See ``Lease``."""
        return min(self._second.held_until(), self._first.held_until())

    def lost(self) -> bool:
        """See ``Lease``."""
        return self._second.lost() or self._first.lost()

    @property
    def epoch(self) -> int:
        """See ``Lease``."""
        self._second.epoch  # noqa: B018
        return self._first.epoch

    def release(self, *, at_rest: bool = True) -> None:
        """See ``Lease``: whoever has the first then finds the second free."""
        self._second.release(at_rest=at_rest)
        self._first.release(at_rest=at_rest)
