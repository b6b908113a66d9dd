"""XDR (RFC 4506): how the words of RPC and NFS are written and read."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence


def u32(*values: int) -> bytes:
    """Unsigned integers of 32 bits."""
    return struct.pack(f">{len(values)}I", *values)


def u64(*values: int) -> bytes:
    """Unsigned integers of 64 bits."""
    return struct.pack(f">{len(values)}Q", *values)


def opaque(data: bytes) -> bytes:
    """Bytes of any length."""
    return u32(len(data)) + data + bytes(-len(data) % 4)


def bitmap(bits: Iterable[int]) -> bytes:
    """A set of small numbers, such as those of attributes."""
    words: list[int] = []
    for bit in bits:
        words += [0] * (bit // 32 + 1 - len(words))
        words[bit // 32] |= 1 << bit % 32
    return u32(len(words), *words)


class Reader:
    """Reads what was received, from its beginning. A message that is too short raises ``struct.error``."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def u32(self) -> int:
        """An unsigned integer of 32 bits."""
        return self._take(">I")

    def u64(self) -> int:
        """An unsigned integer of 64 bits."""
        return self._take(">Q")

    def i64(self) -> int:
        """A signed integer of 64 bits."""
        return self._take(">q")

    def fixed(self, size: int) -> bytes:
        """Bytes of a known length."""
        data = self._data[self._at : self._at + size]
        if len(data) < size:
            raise struct.error("the message is too short")
        self._at += size + -size % 4
        return data

    def opaque(self) -> bytes:
        """Bytes of any length."""
        return self.fixed(self.u32())

    def bitmap(self) -> Sequence[int]:
        """A set of small numbers, in their order."""
        words = [self.u32() for _ in range(self.u32())]
        return [32 * at + bit for at, word in enumerate(words) for bit in range(32) if word >> bit & 1]
