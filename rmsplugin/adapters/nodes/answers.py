"""Answers: what a node agent prints for one call: lines of progress, then one object."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rmsplugin.adapters.nodes.ssh_link import Patience
from rmsplugin.errors import (
    CorruptStateError,
    DeposedError,
    NoSpaceError,
    NoStoreError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)
from rmsplugin.model.epochs import FIRST_EPOCH

if TYPE_CHECKING:
    import paramiko

#: More than a line of an agent's can have (all saved states of a node), and than all its progress lines together.
_LINE_MAX, _ANSWER_MAX = 4 << 20, 64 << 20


class ExistsError(OperationFailedError):
    """Another state of the VM is at the destination of a copy."""


class UnownedError(UnavailableError):
    """The node has come up anew, and no engine has shown there in time that it leads."""


ERROR_KINDS: Mapping[str, type[RmspluginError]] = {
    "not_found": NotFoundError,
    "no_store": NoStoreError,
    "no_space": NoSpaceError,
    "corrupt": CorruptStateError,
    "exists": ExistsError,
    "deposed": DeposedError,
    "unowned": UnownedError,
    "timed_out": TimedOutError,
    "failed": OperationFailedError,
}
#: The words of an agent that does not know a verb.
_UNKNOWN_VERB = "not a command of the node agent"


def with_epoch(epoch: int) -> list[str]:
    """The words by which a call gives its epoch. The first one is left out: older releases know no epochs."""
    return ["--epoch", str(epoch)] if epoch > FIRST_EPOCH else []


def error_of(node: str, answer: Mapping[str, Any]) -> RmspluginError:
    """The error that an agent's answer tells."""
    message = f"{node}: {answer['error']}"
    if str(answer["error"]).startswith(_UNKNOWN_VERB):
        message += "; install the engine's release of rmsplugin there"
    return ERROR_KINDS.get(str(answer.get("kind")), OperationFailedError)(message)


def read_answer(
    channel: paramiko.Channel, patience: Patience, what: str, advance: Callable[[Mapping[str, int]], None] | None
) -> dict[str, Any]:
    """Read lines up to the end, reporting the progress among them; the last one is the answer."""
    answer, pending, received = None, bytearray(), 0
    while True:
        channel.settimeout(patience.remaining_s)
        chunk = channel.recv(65536)
        received += len(chunk)
        *lines, rest = chunk.split(b"\n")
        if lines or not chunk:  # the parts of a line are joined once, when its end has come
            lines = [bytes(pending) + b"".join(lines[:1]), *lines[1:]]
            pending = bytearray()
        pending += rest
        if len(pending) > _LINE_MAX or received > _ANSWER_MAX:
            raise OperationFailedError(f"{what}: the agent says more than any answer has")
        for line in filter(None, lines):
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                raise OperationFailedError(f"{what}: unexpected answer {line[:200]!r}") from None
            if _is_progress(answer) and advance:
                advance(answer)
        if not chunk:
            break
    if not isinstance(answer, dict) or _is_progress(answer):
        errors = b""
        with suppress(TimeoutError, socket.timeout):
            errors = channel.recv_stderr(2000)
        text = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise OperationFailedError(f"{what}: the agent ended without an answer: {text or 'no message'}")
    return answer


def _is_progress(line: Any) -> bool:
    return isinstance(line, dict) and "bytes_done" in line
