"""Owner: a node that has come up anew does nothing for any engine before one has shown here that it leads.

Such a node has forgotten what an engine before has acted for, or was away when the next one told all nodes to obey it.
So an epoch alone proves nothing there: a deposed engine, stopped since before, may be the first that comes. Its lease
is what it lacks. The node refuses each act, and says the time of its own clock with it. An engine that hears this looks
at its lease, and answers with the moment of that clock at which the lease ends. After that moment the node does not
believe it. It keeps what it was shown until it is booted again.

Only nodes whose settings know of several engines ask for this.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from rmsplugin.node_agent.errors import AgentError

if TYPE_CHECKING:
    from pathlib import Path

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
#: With the node's name behind it: nodes may share the directory. It has the id of the boot in which it was written.
_FILE = ".owned-"
_MOST_BYTES = 64


class Claim(NamedTuple):
    """What an engine says that leads, by what the node has told it."""

    boot: str  # the node's boot that told the time
    until_ms: int | None  # the end of the engine's lease, by the clock of that boot; None: it cannot be lost


def boot_id() -> str:
    """The id of this boot, which no other boot has."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def now_ms() -> int:
    """Milliseconds that have passed since the node was booted, whether it slept or not."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def is_known(vm_dir: str | Path) -> bool:
    """Whether an engine has shown since the node was booted that it leads."""
    try:
        descriptor = os.open(_file(vm_dir), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH)  # not in the middle of a claim that may turn out to be late
        return _holds(descriptor, boot_id())
    finally:
        os.close(descriptor)


def require(vm_dir: str | Path) -> None:
    """Return if an engine has shown that it leads. Raises AgentError ``unowned``, with what a claim needs."""
    if not is_known(vm_dir):
        raise _unowned("no engine has shown since this node was booted that it leads")


def require_in_time(claim: Claim) -> None:
    """Return if a claim is to be believed now. Raises AgentError ``unowned``, with what the next one needs."""
    if claim.boot != boot_id():
        raise _unowned("this node was booted anew meanwhile")
    if claim.until_ms is not None and now_ms() >= claim.until_ms:
        raise _unowned("the engine's word that it leads came after the end of its lease")


def keep(vm_dir: str | Path, claim: Claim) -> None:
    """Remember a claim. Raises AgentError ``unowned``: this has taken so long that the claim is too old by now.

    What another engine has shown in this boot stays, whatever becomes of this claim.
    """
    descriptor = os.open(_file(vm_dir), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)  # one claim after the other
        require_in_time(claim)
        if _holds(descriptor, claim.boot):
            return
        os.pwrite(descriptor, f"{claim.boot}\n".encode("ascii"), 0)  # over an old one, which is as long
        try:
            require_in_time(claim)
        except AgentError:
            os.ftruncate(descriptor, 0)  # it was written too late
            raise
    finally:
        os.close(descriptor)


def _holds(descriptor: int, boot: str) -> bool:
    return os.pread(descriptor, _MOST_BYTES, 0).strip() == boot.encode("ascii")


def _file(vm_dir: str | Path) -> str:
    return os.path.join(vm_dir, f"{_FILE}{os.uname().nodename}")


def _unowned(why: str) -> AgentError:
    return AgentError("unowned", why, boot=boot_id(), now_ms=now_ms())
