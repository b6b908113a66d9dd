"""Capabilities: what a platform can do with its VMs. Decisions and plans ask for nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be done with a VM besides being started and stopped.

    Attributes:
        migrate: a VM that runs moves to another node, and hardly stands still.
        suspend: its state is written to a file and it ends; the file is restored on any node of the platform.
        pause: it stands still, and keeps its memory.
        checkpoint: its state is written to a file, and it runs on.
        resize: it can be asked to do with less memory, and be given it back.
        template: the saved state of one is restored as another one, which starts sooner than by booting.
        own_kernel: it has a kernel of its own: who breaks out of a job is root of a guest, not of the node.
    """

    migrate: bool = True
    suspend: bool = True
    pause: bool = True
    checkpoint: bool = True
    resize: bool = True
    template: bool = True
    own_kernel: bool = True


#: Of a platform that can do all of it.
EVERYTHING = Capabilities()
