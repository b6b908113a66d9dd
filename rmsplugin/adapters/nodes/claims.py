"""Claims: how an engine shows a node that has come up anew that it leads (``node_agent/owner.py``).

The node's refusal has the time of its clock. The engine looks at its lease after that, and says when the lease ends, by
the node's clock. Whoever is stopped in between is late there: the next engine leads after that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.errors import OperationFailedError

#: A claim that comes too late is made again, so often in all: the node, or the way to it, was slow.
_TRIES = 3
#: The word of an engine whose lease cannot be lost.
_FOR_EVER = "-"

#: Does a call of an agent by its words; returns the object that it prints.
Ask = Callable[[list[str]], dict[str, Any]]


class Claims:
    """The claims of one engine. Several threads may call."""

    def __init__(self, permit: Permit = nullcontext, clock: Callable[[], float] = steady_s) -> None:
        """``permit``: of an act of the engine; ``clock``: that of its lease."""
        self._permit, self._clock = permit, clock

    def answer(self, call: Callable[[], dict[str, Any]], ask: Ask) -> dict[str, Any]:
        """Do the call; if the node asks for it, show it first that the engine leads.

        Args:
            call: does it, and returns what the agent prints.
            ask: asks the same node.

        Raises:
            DeposedError: the engine does not lead any more.
        """
        answer = call()
        for _ in range(_TRIES):
            if not is_unowned(answer):
                break
            answer = ask(self._words(answer, self._clock()))
            if "error" not in answer:
                with self._permit():  # the node may have been slow, and the engine have been stopped meanwhile
                    answer = call()
        return answer

    def _words(self, refusal: Mapping[str, Any], heard_s: float) -> list[str]:
        """The claim that answers a refusal, which came at ``heard_s`` by the engine's clock.

        The node told its time before that. So by its clock the lease ends no earlier than is said here.
        """
        boot, now_ms = refusal.get("boot"), refusal.get("now_ms")
        if not isinstance(boot, str) or not isinstance(now_ms, int):
            raise OperationFailedError("a node agent asks who leads, and does not say its time")
        with self._permit() as until_s:
            if until_s is None or until_s == float("inf"):
                return ["obey", boot, _FOR_EVER]
            return ["obey", boot, str(max(1, now_ms + int((until_s - heard_s) * 1000)))]


def is_unowned(answer: Mapping[str, Any]) -> bool:
    """Whether a node refuses because it has come up anew."""
    return "error" in answer and answer.get("kind") == "unowned"
