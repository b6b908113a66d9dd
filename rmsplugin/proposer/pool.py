"""Pool: several proposing processes, so that the parts of a large cluster are proposed for at the same time."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from rmsplugin.errors import UnavailableError
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposer.process import ProposerLimits
from rmsplugin.proposer.proposer import ENTRY, Proposed, Proposer, written
from rmsplugin.proposing.parameters import ProposalParameters


class Proposers:
    """As many proposers as there are requests at the same time, at most so many; a request beyond them waits.

    Who asks for one proposal at a time has one process.
    """

    def __init__(self, limits: ProposerLimits, most: int, entry: str = ENTRY) -> None:
        """Start nothing yet: see ``warm_up``.

        Args:
            limits: bounds of each process.
            most: the most processes; at least 1.
            entry: the function that they call, as ``module:function``.
        """
        if most < 1:
            raise ValueError(f"there must be one process at least, not {most}")
        self._limits, self._entry = limits, entry
        self._turns = threading.Semaphore(most)
        self._writing = threading.Lock()  # one request at a time, so that the first is ready as soon as can be
        self._lock = threading.Lock()  # guards the three below
        self._idle: list[Proposer] = [Proposer(limits, entry)]
        self._all = list(self._idle)
        self._closed = False

    def warm_up(self) -> None:
        """Start the first process, and wait for nothing: it loads the solvers meanwhile."""
        self._all[0].warm_up()

    def propose(self, configuration: Configuration, parameters: ProposalParameters) -> Proposed:
        """Propose one context switch; see ``Proposer.propose``.

        Raises:
            UnavailableError: the proposers were closed, before or meanwhile.
        """
        with self._writing:  # while others are answered
            request = written(configuration, parameters)
        with self._turns:
            proposer = self._take()
            try:
                return proposer.propose(configuration, parameters, request)
            finally:
                with self._lock:
                    self._idle.append(proposer)

    def _take(self) -> Proposer:
        """An idle proposer, the one that was used last first; a new one if there is none."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
            if self._closed:
                raise UnavailableError("the proposers are closed")
            found = Proposer(self._limits, self._entry)
            self._all.append(found)
            return found

    def close(self) -> None:
        """End all processes, and the requests that are under way. Returns at once; may be called twice."""
        with self._lock:
            self._closed = True
            everyone = list(self._all)
        for each in everyone:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
