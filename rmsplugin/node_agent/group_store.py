"""Group store: the part of a shared store that is one group's own: a directory with marker, epoch, locks and states.

Engines of groups have epochs of their own, which say nothing of each other. So no file of theirs is in the same
directory. States that an engine of all groups has left in the whole store become the group's when its engine sets its
part up: a vjob is one group's, so no other one asks for them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rmsplugin.node_agent import files

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


def adopt(whole: Path, own: Path, vms: Collection[str]) -> int:
    """Move the files of these VMs from the whole store to the group's own, unless that has them. Returns how many."""
    adopted = 0
    for path in sorted(whole.iterdir()):
        # STATE, checkpoint-N.STATE or aside-N.STATE, where STATE is VM.state, perhaps with another suffix.
        words = path.name.split(".")
        if (
            not any(word in vms for word in words[:2])
            or "state" not in words[1:3]
            or files.size_of(own / path.name) is not None
        ):
            continue
        with suppress(FileNotFoundError):  # another call was first
            path.rename(own / path.name)
            adopted += 1
    files.sync_directory(own)
    files.sync_directory(whole)
    return adopted
