"""Used: the use of a VM by the processes of a vjob's user, as its guest counts it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rmsplugin.errors import OperationFailedError

_DIGITS = 15
_KEYS = {
    "usage_usec": "cpu_us",
    "user_usec": "user_us",
    "system_usec": "system_us",
    **{name: name for name in ("memory_bytes", "peak_bytes", "read_bytes", "written_bytes", "available_kib")},
}


@dataclass(frozen=True, slots=True)
class Used:
    """The use of one VM by the job's processes since its boot, ended processes included.

    Attributes:
        cpu_us: CPU time; ``user_us`` and ``system_us`` of it, microseconds.
        memory_bytes: the observed maximum without the kernel's caches for files, but with files in memory.
        peak_bytes: the absolute maximum, with these caches.
        read_bytes: by any call, from files, pipes and network file systems; likewise ``written_bytes``.
        available_kib: memory of the VM that was available before the script's start; 0: not reported by the guest.
    """

    cpu_us: int = 0
    user_us: int = 0
    system_us: int = 0
    memory_bytes: int = 0
    peak_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    available_kib: int = 0

    @classmethod
    def parse(cls, text: str) -> Used | None:
        """Read the output of ``account print``; None if its kernel does not count.

        Raises:
            OperationFailedError: it is not of that form. A guest belongs to its user: its words are never believed
                unchecked.
        """
        values = {}
        for line in text.splitlines():
            key, _, value = line.partition("=")
            if key not in _KEYS or not (value.isascii() and value.isdigit()) or len(value) > _DIGITS:
                raise OperationFailedError(f"the guest does not say what was used: {line[:60]!r}")
            values[_KEYS[key]] = int(value)
        return cls(**values) if values else None


#: Columns of the ledger, in this order.
COLUMNS = tuple(field.name for field in fields(Used))
