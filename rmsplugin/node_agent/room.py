"""Room: the engine's job on this node. It ends by the end of one process, which its script has started.

The proof that a process is that one: it is the engine's user's, and the environment with which it was started has the
id of the job and the mark of the room's script. Nobody else can start such a process, but root and that user.
"""

from __future__ import annotations

import os
import pwd
import signal
from typing import TYPE_CHECKING

from rmsplugin.defaults import ROOM_MARK
from rmsplugin.node_agent.errors import AgentError

if TYPE_CHECKING:
    from pathlib import Path


def end(job: int, user: str, proc: Path) -> bool:
    """End the room of this job; returns whether its process was here.

    Args:
        job: the id of the room's job.
        user: the engine's.
        proc: the host's /proc.

    Raises:
        AgentError: the node does not know the user.
    """
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        raise AgentError("failed", f"this node has no account {user}, whose jobs the rooms are") from None
    marks = {f"SLURM_JOB_ID={job}".encode(), ROOM_MARK.encode()}
    pids = [int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()]
    return sum(_kill(pid, uid, marks, proc) for pid in pids) > 0


def _kill(pid: int, uid: int, marks: set[bytes], proc: Path) -> bool:
    """Kill the process if it is the user's and was started with these marks; returns whether it was."""
    entry = proc / str(pid)
    try:
        handle = os.pidfd_open(pid)  # of this process for good: the number may be another's when the signal is sent
    except ProcessLookupError:
        return False  # it has just ended
    try:
        if entry.stat().st_uid != uid or not marks.issubset((entry / "environ").read_bytes().split(b"\0")):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return False
    finally:
        os.close(handle)
    return True
