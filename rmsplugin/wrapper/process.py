"""Processes of the wrapper: they die with their parent, and are started as programs of their own."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

from rmsplugin.errors import OperationFailedError

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_M_ARENA_MAX = -8
CANNOT_RUN = 1
# Names the descriptor of the user's environment (native/rmsplugin-job.c).
_LAID_ASIDE = "RMSPLUGIN_ENVIRONMENT"
# Not the user's PATH: no program of the user's runs here.
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
#: Our tools on a front, where they may be missing.
TOOLS_PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "guest_tools", "vjob-tools")
_LAUNCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch.py")


def die_with_parent() -> None:
    """Die when the parent does: a wrapper without slurmstepd would write into the output beside its successor."""
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OperationFailedError("prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(CANNOT_RUN)


def set_name(name: str) -> None:
    """Set this process's name in the list of processes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def share_one_heap() -> None:
    """Let all threads take memory from one heap; call it before there are any threads."""
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back_memory() -> None:
    """Return free memory to the system: connecting takes much, and little is needed after that."""
    ctypes.CDLL(None).malloc_trim(0)


def run_of_job(environ: Mapping[str, str]) -> int:
    """The number of the job's requeues before this run, by its environment."""
    count = environ.get("SLURM_RESTART_COUNT", "")
    return int(count) if count.isdecimal() else 0


def is_stopped(pid: int) -> bool:
    """Whether there is such a process, and it is stopped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def own_environment() -> dict[str, str]:
    """The environment with which this program was started, for the programs that it starts.

    Not ``os.environ``: Python adds LC_CTYPE to that where the locale is C (PEP 538), as with ``--export=NONE``.
    """
    with open("/proc/self/environ", "rb") as file:
        return _variables(file.read())


def job_environment() -> dict[str, str]:
    """The environment with which Slurm started the job. rmsplugin-job laid it aside: none of it must act here."""
    laid_aside = os.environ.get(_LAID_ASIDE, "")
    if not laid_aside:
        return own_environment()
    with open(f"/proc/self/fd/{int(laid_aside)}", "rb") as file:
        return _variables(file.read())


def _variables(data: bytes) -> dict[str, str]:
    words = (os.fsdecode(word).partition("=") for word in data.split(b"\0") if word)
    return {name: value for name, _, value in words}


def command(program: str, *words: str) -> list[str]:
    """Command line of one of the wrapper's programs: no site-packages, and independent of the user's variables."""
    return [sys.executable, "-I", "-S", _LAUNCHER, program, *words]


def complain(error: BaseException, who: str = "rmsplugin-job: ") -> None:
    """Write an error in one line to standard error, which is the job's or is read by the wrapper."""
    os.write(2, f"{who}{error or type(error).__name__}\n".encode("utf-8", "backslashreplace"))
