"""Wire: the messages between an engine and its proposing process, and their frames.

A frame is a mark, the length of the rest, a digest of it, and a pickle. The digest tells a whole message from remains
of a dying process in a pipe. Both ends run under the same account, so a pickle opens no door. But a policy of a site
answers with what it likes: of an answer only known objects are made (``rmsplugin.known_objects``).
"""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.known_objects import ForeignObjectError, KnownUnpickler
from rmsplugin.latency import uncollected
from rmsplugin.model.configuration import Configuration
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal

_MARK = b"RMSP"
_DIGEST_BYTES = 16
_HEADER = struct.Struct(f">4sQ{_DIGEST_BYTES}s")

#: A configuration of 30,000 VMs has some MiB; a longer message is garbage.
_MOST_BYTES = 1 << 30


#: What a process can be asked for: a whole context switch, or a decision alone.
Found = Proposal | NoProposal | Decision | Infeasible


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has loaded everything and can be asked."""

    release: str


@dataclass(frozen=True, slots=True)
class Request:
    """Propose one context switch, or decide."""

    configuration: Configuration
    parameters: ProposalParameters


@dataclass(frozen=True, slots=True)
class Better:
    """The best proposal so far; the search goes on, and an answer or a failure follows."""

    found: Proposal


@dataclass(frozen=True, slots=True)
class Answer:
    """The result, the seconds of each stage and of solvers, and the process's present and peak memory, in MiB."""

    found: Found
    seconds: Mapping[str, float]
    solver_s: float
    memory_mib: int
    peak_memory_mib: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception ended the request; the process may be asked again unless ``over``."""

    explanation: str
    over: bool = False


Message = Ready | Request | Better | Answer | Failure


class GarbageError(Exception):
    """The bytes are no frame."""


def encode(message: Message) -> bytes:
    """Encode a message as one frame."""
    with uncollected():
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _HEADER.pack(_MARK, len(data), _digest(data)) + data


class Decoder:
    """Takes bytes piece by piece, and gives out whole messages."""

    def __init__(self, trusts: bool = False) -> None:
        """Begin with nothing.

        Args:
            trusts: whether the other end has no policy of a site in it: all objects are made.
        """
        self._data = bytearray()
        self._unpickler = pickle.Unpickler if trusts else KnownUnpickler

    def feed(self, data: bytes) -> None:
        """Take some more bytes."""
        self._data += data

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of the bytes taken."""
        return not self._data

    def message(self) -> Message | None:
        """The next message; None until it is whole.

        Raises:
            GarbageError: the bytes are something else.
            ForeignObjectError: a message has an object that is not made.
        """
        if len(self._data) < _HEADER.size:
            if not _MARK.startswith(bytes(self._data[: len(_MARK)])):
                raise GarbageError("no frame begins so")
            return None
        mark, length, digest = _HEADER.unpack_from(self._data)
        if mark != _MARK or length > _MOST_BYTES:
            raise GarbageError("no frame begins so")
        if len(self._data) < _HEADER.size + length:
            return None
        data = bytes(self._data[_HEADER.size : _HEADER.size + length])
        del self._data[: _HEADER.size + length]
        if _digest(data) != digest:
            raise GarbageError("a frame with another digest than its own")
        try:
            with uncollected():
                message = self._unpickler(io.BytesIO(data)).load()
        except ForeignObjectError:
            raise
        except Exception as error:
            raise GarbageError(f"a message that cannot be read: {error}") from None
        if not isinstance(message, Message):
            raise GarbageError(f"a message that is a {type(message).__name__}")
        return message


def receive(decoder: Decoder, read: Callable[[int], bytes]) -> Message | None:
    """Wait for the next message; None at the end of the stream.

    Args:
        decoder: has the bytes read beyond the last message.
        read: returns at most so many bytes, and none only at the end.

    Raises:
        GarbageError: the bytes are something else, or the stream ends in a frame.
    """
    while (message := decoder.message()) is None:
        data = read(1 << 20)
        if not data:
            if decoder.is_empty:
                return None
            raise GarbageError("the stream ends in a frame")
        decoder.feed(data)
    return message


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
