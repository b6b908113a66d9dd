"""Slurm reading: what Slurm's commands print for one snapshot, and its form on the way to another host. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

#: A queue of 100,000 jobs has some 50 MB. More than this is no reading.
_MOST_BYTES = 1 << 30
#: The fastest level: texts of Slurm shrink to a tenth by it.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class SlurmTexts:
    """All that Slurm has told for one snapshot.

    Attributes:
        site: nodes, configuration, partitions and reservations, as ``scontrol`` prints them.
        queue: all jobs, as ``squeue`` prints them.
        token: the end of each row there.
        limits: of arrays' running elements, by the array's id, as far as they decide something.
        parts: of priorities, as ``sprio`` prints them.
        shares: fair shares, as ``sshare`` prints them.
    """

    site: str
    queue: str
    token: str
    limits: Mapping[int, int] = field(default_factory=dict)
    parts: str = ""
    shares: str = ""


@dataclass(frozen=True, slots=True)
class Handed:
    """What another process has read for this one.

    Attributes:
        pulse: a value that changes with the queue (``Rms.pulse``); None: nobody tells it.
        texts: waits for a reading that was begun after the call; raises RmspluginError if there is none.
        note: told after each snapshot why this process has read Slurm itself; empty: it has not.
    """

    pulse: Callable[[], str | None]
    texts: Callable[[], SlurmTexts]
    note: Callable[[str], None]


def packed(texts: SlurmTexts) -> bytes:
    """The form in which ``unpacked`` takes it."""
    blocks = [text.encode() for text in (texts.site, texts.queue, texts.parts, texts.shares)]
    head = {"token": texts.token, "limits": list(texts.limits.items()), "sizes": [len(block) for block in blocks]}
    return zlib.compress(b"".join((json.dumps(head).encode(), b"\n", *blocks)), _LEVEL)


def unpacked(data: bytes) -> SlurmTexts:
    """Read what ``packed`` has made. Raises ValueError."""
    try:
        unpacking = zlib.decompressobj()
        whole = unpacking.decompress(data, _MOST_BYTES)
        if not unpacking.eof:
            raise ValueError("the reading is not whole, or too large")
        line, _, body = whole.partition(b"\n")
        head = json.loads(line)
        texts, begin = [], 0
        for size in head["sizes"]:
            texts.append(body[begin : begin + size].decode())
            begin += size
        site, queue, parts, shares = texts
        limits = {int(array): int(limit) for array, limit in head["limits"]}
        return SlurmTexts(site, queue, str(head["token"]), limits, parts, shares)
    except (zlib.error, KeyError, TypeError) as error:
        raise ValueError(f"this is no reading of Slurm: {error}") from None
