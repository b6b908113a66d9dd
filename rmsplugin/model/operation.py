"""Operation: an action on a vjob as a whole, on all its VMs together."""

from __future__ import annotations

import enum


class OperationKind(enum.StrEnum):
    """The kinds of operations on a vjob as a whole."""

    START = "start"
    STOP = "stop"
    SUSPEND = "suspend"
    RESUME = "resume"
    MIGRATE = "migrate"
    PAUSE = "pause"  # all its VMs compute no more, and keep their memory
    UNPAUSE = "unpause"  # all its VMs go on where they are
    CHECKPOINT = "checkpoint"  # its VMs are written to files as they are at one instant, and go on
    REATTACH = "reattach"  # the RMS job was requeued while the VMs run on: start the wrapper again
    GO_ON = "go-on"  # the RMS job runs and its wrapper stands still: the RMS is told again to let it go on
    RESTART = "restart"  # the VMs were lost: clean up, requeue from the start
    RELOCATE = "relocate"  # its saved states move to another node's store
