"""Guardian: takes a minicluster down when the process that wanted it has ended, however that ended.

Tests that are interrupted are not always given the time for it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

#: A `down` is refused while an `up` or another `down` is going on.
_ATTEMPTS = 120


def start(directory: Path, owner: int) -> None:
    """Start one, in a session of its own: a signal for all processes of a terminal does not reach it."""
    subprocess.Popen(
        [sys.executable, "-m", "minicluster_lib.guardian", str(directory), str(owner)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _await_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = select.poll()
    ended.register(handle, select.POLLIN)
    ended.poll()


def main() -> None:
    """Wait, and take down: ``DIRECTORY OWNER``."""
    directory, owner = sys.argv[1], int(sys.argv[2])
    _await_end(owner)
    for _ in range(_ATTEMPTS):
        if not Path(directory).parent.exists():
            return  # it went down before, and the place for it is not to come back
        if subprocess.run([sys.executable, "-m", "minicluster_lib", "down", "--dir", directory]).returncode == 0:
            return
        time.sleep(1)


if __name__ == "__main__":
    main()
