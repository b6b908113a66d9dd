"""Child: the program that becomes the engine of one group, and ends with the manager, whose pipe is its input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rmsplugin.adapters.coordination.turns import TURN_SEEN
from rmsplugin.child_process import killed_with
from rmsplugin.engine.controllers.given_to import MANAGER

_PROGRAM = "rmsplugin.cli.main"


def command(config: str, group: str, seen: str = "", manager: str = "") -> Sequence[str]:
    """The words by which the engine of a group is started.

    Args:
        config: the settings file.
        group: its group.
        seen: its last turn, as the manager has watched it.
        manager: the name of the manager.
    """
    program = [sys.executable, "-P", "-m", "rmsplugin.manager.child"]
    return [*program, seen, manager, "engine", "--config", config, "--group", group]


def main() -> None:
    """Become the engine that the words name. The kernel goes on to watch the pipe for it: the process is the same."""
    killed_with(sys.stdin.fileno())
    os.environ[TURN_SEEN], os.environ[MANAGER] = sys.argv[1:3]
    os.execv(sys.executable, [sys.executable, "-P", "-m", _PROGRAM, *sys.argv[3:]])


if __name__ == "__main__":
    main()
