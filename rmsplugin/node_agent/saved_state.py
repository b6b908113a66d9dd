"""Saved state: copies of templates' states, as those of other VMs, or without compression.

The platform knows the form of the files (``SavedStates``); the discipline with files is ours.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rmsplugin.adapters.platform.node_base import Identity, SavedStates
from rmsplugin.node_agent import files
from rmsplugin.node_agent.errors import AgentError


def copy_as(states: SavedStates, source: Path, destination: Path, identity: Identity) -> None:
    """Copy a state as that of another VM; ``destination`` must not exist.

    Raises:
        CorruptStateError: the file is not of the known form, or has no room for the new names.
    """
    with open(source, "rb") as old, files.create(destination) as new:
        new.write(states.head_as(old, identity))
        new.flush()
        files.copy_rest(old, new)


def rename(states: SavedStates, state: Path, identity: Identity) -> None:
    """Turn a state into that of another VM, in place. Raises as ``copy_as``."""
    with open(state, "r+b") as file:
        head = states.head_as(file, identity)
        file.seek(0)
        file.write(head)


def copy_unpacked(states: SavedStates, source: Path, destination: Path) -> None:
    """Copy a state without its compression: it is read in half the time; ``destination`` must not exist.

    Raises:
        CorruptStateError: the file is not of the known form.
        OperationFailedError, AgentError: it cannot be unpacked here.
    """
    # The file is unbuffered: the program reads on from its position.
    with open(source, "rb", buffering=0) as old, files.create(destination) as new:
        head, program = states.unpacked(old)
        new.write(head)
        new.flush()
        if program is None:
            files.copy_rest(old, new)
        elif subprocess.run([program, "-dc"], stdin=old, stdout=new, stderr=subprocess.DEVNULL).returncode != 0:
            raise AgentError("failed", f"{program} cannot unpack the template")
