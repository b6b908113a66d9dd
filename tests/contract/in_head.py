"""Runs pytest where the head of a minicluster stands: in its network and with its host names.

Not inside the head altogether, because the tests also have to reach into the nodes (``contrib/minicluster exec`` and
``kill``), which works only from outside. The mount namespace is private, so that nothing of this is seen elsewhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

#: Set for the pytest inside: the minicluster's directory.
VARIABLE = "RMSPLUGIN_IN_HEAD_OF"


def run_pytest(directory: Path, arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run pytest with the arguments, in the head of the minicluster in ``directory``."""
    head = json.loads((directory / "state/cluster.json").read_text())["init_pids"]["head"]
    entered = ["nsenter", f"--net=/proc/{head}/ns/net", "unshare", "--mount"]
    return subprocess.run(
        [*entered, sys.executable, __file__, str(directory), *arguments],
        env={**os.environ, VARIABLE: str(directory)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )


def main() -> None:
    """Take on the head's host names, then become pytest."""
    directory, *arguments = sys.argv[1:]
    subprocess.run(["mount", "--bind", f"{directory}/hosts/head/etc/hosts", "/etc/hosts"], check=True)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments])


if __name__ == "__main__":
    main()
