"""Guest state: what the guest of VM 0 knows of the script. The user may have replaced our tools there."""

from __future__ import annotations

from rmsplugin.errors import OperationFailedError
from rmsplugin.wrapper.session.streams import Ack

_LARGEST_COUNT = 10**15
#: More of a guest's text is not shown in an error.
SHOWN_BYTES = 1 << 10


class GuestState:
    """The guest's knowledge of the script: whether it was started at all; the delivered part of each stream."""

    __slots__ = ("acks", "kept_from", "started")

    def __init__(self) -> None:
        self.started = False
        self.acks: dict[str, Ack] = {}
        self.kept_from: dict[str, int] = {}


def parse_state(said: bytes) -> GuestState:
    """Read what the guest says of the script. Raises OperationFailedError: a number is none."""
    result = GuestState()
    for line in said.decode("ascii", "replace").splitlines():
        match line.split():
            case ["started"]:
                result.started = True
            case ["kept", stream, offset]:
                result.kept_from[stream] = _count(offset)
            case [stream, offset, size]:
                result.acks[stream] = Ack(_count(offset), _count(size))
    return result


def _count(text: str) -> int:
    if not is_number(text, _LARGEST_COUNT):
        raise OperationFailedError(f"the guest does not tell how much of the output came: {text[:SHOWN_BYTES]}")
    return int(text)


def is_number(text: str, largest: int) -> bool:
    """Whether a text of the guest's is a number, and no larger than that."""
    return text.isdecimal() and len(text) <= len(str(largest)) and int(text) <= largest
