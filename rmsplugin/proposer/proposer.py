"""Proposer: keeps one proposing process warm, and answers by First Fit Decreasing if that process fails."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from rmsplugin.errors import UnavailableError
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposer import wire
from rmsplugin.proposer.process import Process, ProcessFailedError, ProposerLimits
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal

#: The function that a process calls.
ENTRY = "rmsplugin.proposing.answering:answer"


@dataclass(frozen=True, slots=True)
class Proposed:
    """The result of a request.

    Attributes:
        found: the proposal, or the reason why there is none.
        failure: the failure of the process that was asked first, in a sentence; empty if it answered.
        seconds: the seconds of each stage of the answer, by its name.
        solver_s: the seconds of them that solvers took.
        peak_memory_mib: the most memory that the answering process held.
    """

    found: Proposal | NoProposal
    failure: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_memory_mib: int = 0
    solver_s: float = 0.0


class Proposer:
    """Proposes in a process of its own. Requests of several threads are answered one after the other.

    Each answer is there within ``deadline_s``; if the process fails, within ``deadline_s + start_s + fallback_s``
    (and ``start_s`` more if the failed one was new). Nothing is left behind when this process ends, however it ends.
    """

    def __init__(self, limits: ProposerLimits | None = None, entry: str = ENTRY) -> None:
        """Start nothing yet: see ``warm_up``.

        Args:
            limits: bounds of the process.
            entry: the function that it calls, as ``module:function``.
        """
        self._limits = limits or ProposerLimits()
        self._entry = entry
        self._turn = threading.Lock()  # held while a request is answered
        self._state = threading.Lock()  # guards the two below, for a moment only
        self._process: Process | None = None
        self._closed = False

    def warm_up(self) -> None:
        """Start the process if there is none, and wait for nothing: it loads the solvers meanwhile."""
        with self._turn:
            self._prepare()

    def propose(
        self, configuration: Configuration, parameters: ProposalParameters, request: bytes | None = None
    ) -> Proposed:
        """Propose one context switch; if the search fails, its best proposal so far, else one by First Fit Decreasing.

        The proposal tells of such a failure.

        The answer has not been checked.

        Args:
            configuration: nodes, vjobs in the order of the queue, and the location of each VM.
            parameters: how to decide, to place and to estimate.
            request: both, ``written`` before its turn came; None: it is written now.

        Raises:
            UnavailableError: the proposer was closed, before or meanwhile.
        """
        with self._turn:
            try:
                answer = self._ask(request or written(configuration, parameters), self._limits.deadline_s)
            except ProcessFailedError as error:
                failure = f"the proposer {error}"
                if error.best is not None:
                    return Proposed(_instead(error.best, failure, "the best that it had found"), failure)
                return self._fall_back(configuration, parameters, failure)
            finally:
                self._prepare()  # the next request finds a process that has loaded everything
            return Proposed(_proposal_of(answer), "", answer.seconds, answer.peak_memory_mib, answer.solver_s)

    def close(self) -> None:
        """End the process, and any request that is under way. Returns at once; may be called twice."""
        with self._state:
            self._closed = True
            process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._drop()

    def _fall_back(self, configuration: Configuration, parameters: ProposalParameters, failure: str) -> Proposed:
        try:
            answer = self._ask(written(configuration, parameters.without_solver()), self._limits.fallback_s)
        except ProcessFailedError as error:
            why = f"{failure}; asked for First Fit Decreasing alone, it {error}"
            return Proposed(NoProposal(Missing.ANSWER, why), failure)
        found = _proposal_of(answer)
        if isinstance(found, Proposal):
            found = _instead(found, failure, "First Fit Decreasing alone")
        return Proposed(found, failure, answer.seconds, answer.peak_memory_mib, answer.solver_s)

    def _ask(self, request: bytes, deadline_s: float) -> wire.Answer:
        """Ask the process. Raises ProcessFailedError; UnavailableError if that is because of ``close``."""
        process = self._running()
        try:
            answer = process.ask(request, deadline_s)
        except ProcessFailedError:
            if not process.is_usable:
                self._drop()
            self._refuse_if_closed()
            raise
        if answer.memory_mib > self._limits.memory_mib / 2:
            self._drop()  # memory that libraries hold must not end the next request
        return answer

    def _running(self) -> Process:
        """A process that is there; another one if the last one has ended since."""
        if self._process is not None and not self._process.is_usable:
            self._drop()
        with self._state:
            if self._closed:
                raise UnavailableError("the proposer is closed")
            if self._process is None:
                self._process = Process(self._limits, self._entry)
            return self._process

    def _prepare(self) -> None:
        """Start a process, if possible; the next caller tries again and gets the error."""
        try:
            self._running()
        except (ProcessFailedError, UnavailableError):
            return

    def _drop(self) -> None:
        with self._state:
            process, self._process = self._process, None
        if process is not None:
            process.end()

    def _refuse_if_closed(self) -> None:
        with self._state:
            if self._closed:
                raise UnavailableError("the proposer was closed meanwhile")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def written(configuration: Configuration, parameters: ProposalParameters) -> bytes:
    """The request for one context switch, as a process reads it."""
    return wire.encode(wire.Request(configuration, parameters))


def _proposal_of(answer: wire.Answer) -> Proposal | NoProposal:
    """What was found by a process whose function proposes."""
    assert isinstance(answer.found, Proposal | NoProposal)
    return answer.found


def _instead(found: Proposal, failure: str, what: str) -> Proposal:
    """A proposal that stands in for the requested answer, and says so."""
    return replace(found, fallback=failure, sentence=f"{failure}; {what}: {found.sentence}")
