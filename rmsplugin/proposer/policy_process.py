"""Policy process: a policy of the site, asked for decisions by a command, in a process of its own.

Such a policy may hang, print, eat memory, or end its process. The engine asks it in its proposing process. Here the
command plans by itself, or simulates, and only the decisions are made elsewhere, within the same limits.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.errors import OperationFailedError, OwnPolicyError
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposer import wire
from rmsplugin.proposer.process import Process, ProcessFailedError, ProposerLimits
from rmsplugin.proposing.parameters import ProposalParameters

#: The function that the process calls.
ENTRY = "rmsplugin.proposing.answering:decide"

#: Of each decision, unless its searches may take longer. The command itself waits, so it is as nice as the command.
LIMITS = ProposerLimits(nice=0)

#: Of the limit of the searches in one call: it is asked twice, and a unit of work is only about a second.
_TIMES_THE_LIMIT = 2 * 2


class PolicyProcess:
    """Asks a policy of the site. One process answers all requests; nothing of it is left when the command ends."""

    def __init__(self, name: str, limits: ProposerLimits | None = None) -> None:
        """Start its process, and have the policy loaded.

        Args:
            name: of an entry point, or ``module:function``.
            limits: of the process, and of each decision; its searches may have longer (``decide``).

        Raises:
            OwnPolicyError: there is no such policy, or it cannot be loaded.
            OperationFailedError: the system starts no process.
        """
        self._name, self._limits = name, limits or LIMITS
        try:
            self._process = Process(self._limits, ENTRY)
        except ProcessFailedError as error:
            raise OperationFailedError(f"the process that asks policy {name} {error}") from None
        try:
            self._ask(Configuration((), (), {}), ProposalParameters(name), self._limits.deadline_s)
        except BaseException:
            self.close()
            raise

    def decide(self, configuration: Configuration, parameters: ProposalParameters) -> Decision | Infeasible:
        """Its decision; Infeasible where it says itself that nothing can be decided.

        It has ``deadline_s`` for that, or four times the limit of the decision's searches if that is more.

        Args:
            configuration: nodes, vjobs in the order of the queue (head first), and the location of each VM.
            parameters: its name, and its tunables.

        Raises:
            OwnPolicyError: it errs, or there is no answer.
        """
        search = parameters.decision.search
        limit_s = min(search.time_limit_s, search.deterministic_limit or 0.0)  # the latter is there: see Parameters
        return self._ask(configuration, parameters, max(self._limits.deadline_s, _TIMES_THE_LIMIT * limit_s))

    def _ask(
        self, configuration: Configuration, parameters: ProposalParameters, deadline_s: float
    ) -> Decision | Infeasible:
        request = wire.encode(wire.Request(configuration, parameters))
        try:
            found = self._process.ask(request, deadline_s).found
        except ProcessFailedError as error:
            raise OwnPolicyError(f"policy {self._name}: the process that asks it {error}") from None
        assert isinstance(found, Decision | Infeasible)
        if isinstance(found, Infeasible) and found.errs:
            raise OwnPolicyError(found.explanation)
        return found

    def close(self) -> None:
        """End its process."""
        self._process.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
