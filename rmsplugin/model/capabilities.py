"""Capabilities: the abilities of a platform with its VMs. Decisions and plans ask for nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The operations on a VM that are possible besides start and stop.

    Attributes:
        migrate: a running VM moves to another node, and hardly stands still.
        suspend: its state is written to a file and it ends; the file is restored on the same node.
        elsewhere: the file is restored on any other node of the platform, too.
        pause: it stands still, and keeps its memory.
        checkpoint: its state is written to a file, and it runs on.
        resize: while it runs it can be asked to do with less memory or fewer CPUs, and be given them back.
        template: the saved state of one VM is restored as another one, which starts sooner than by booting.
        own_kernel: it has a kernel of its own: a user who breaks out of a job is root of a guest, not of the node.
        tells: the platform tells by itself that a VM has ended; else that is seen at the next look.
    """

    migrate: bool = True
    suspend: bool = True
    elsewhere: bool = True
    pause: bool = True
    checkpoint: bool = True
    resize: bool = True
    template: bool = True
    own_kernel: bool = True
    tells: bool = True

    @property
    def bounds(self) -> bool:
        """Whether the platform itself bounds the CPUs and the memory that a running VM may use."""
        return self.resize and not self.own_kernel

    @property
    def balloons(self) -> bool:
        """Whether a VM's own kernel is asked to do with less memory, and takes back what it needs."""
        return self.resize and self.own_kernel

    @property
    def anchors(self) -> bool:
        """Whether there are VMs that can go nowhere: running ones, or saved ones."""
        return not (self.migrate and self.elsewhere)

    @property
    def makes_detours(self) -> bool:
        """Whether a VM can make every detour of a plan: over a third node, or asleep."""
        return self.migrate and self.suspend and self.elsewhere

    @property
    def makes_way(self) -> bool:
        """Whether a vjob that runs can leave its CPUs to others, and go on later."""
        return self.suspend or self.pause

    @property
    def only_pauses(self) -> bool:
        """Whether a vjob that makes way is always paused: its memory stays on its nodes until the vjob ends."""
        return self.pause and not self.suspend


#: The capabilities of a platform that can do all of it.
EVERYTHING = Capabilities()

#: The capabilities of platform ``podman``: containers, which share the kernel of their node.
PODMAN = Capabilities(migrate=False, template=False, own_kernel=False, tells=False)

#: The capabilities of platform ``native``: plain jobs of the RMS, which are paused and go on where they are.
NATIVE = Capabilities(
    migrate=False,
    suspend=False,
    elsewhere=False,
    checkpoint=False,
    resize=False,
    template=False,
    own_kernel=False,
    tells=False,
)
