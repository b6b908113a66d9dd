"""Slurm handed down: snapshots and the pulse are made of what another process has read; Slurm is asked all else.

A reading counts only if it was begun after it was asked for, so it is as good as one of this process's own. Where there
is none, this process reads Slurm itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rmsplugin.adapters.rms.base import Rms, RmsSnapshot
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_reading import Handed
from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)


class HandedSlurm:
    """The Rms of a process to which readings are handed down."""

    def __init__(self, own: Rms, commands: SlurmCli, handed: Handed) -> None:
        """Ask nobody yet.

        Args:
            own: the Rms of this process, for all but ``handed``.
            commands: understands what is handed down.
            handed: what others read.
        """
        self._own, self._commands, self._handed = own, commands, handed
        self._follows = False  # whether a squeue of its own stays
        self.batch_script = own.batch_script
        self.geometry = own.geometry
        self.job = own.job
        self.leaf_switches = own.leaf_switches
        self.jobs = own.jobs
        self.unheard = own.unheard
        self.ended = own.ended
        self.mail_wish = own.mail_wish
        self.overseers = own.overseers
        self.reserve_gate = own.reserve_gate
        self.split = own.split
        self.open_gate = own.open_gate
        self.close_gate = own.close_gate
        self.hold = own.hold
        self.suspend = own.suspend
        self.resume = own.resume
        self.requeue = own.requeue
        self.cancel = own.cancel
        self.tell_end = own.tell_end
        self.comment = own.comment
        self.request_room = own.request_room
        self.extend_room = own.extend_room
        self.power_down = own.power_down
        self.power_up = own.power_up
        self.repair_node = own.repair_node

    def pulse(self, partitions: Iterable[str]) -> str:
        """See ``Rms.pulse``."""
        told = self._handed.pulse()
        if told is None:
            self._follows = True
            return self._own.pulse(partitions)
        if self._follows:
            self._follows = False
            self._commands.end_pulse()
        return told

    def snapshot(self) -> RmsSnapshot:
        """See ``Rms.snapshot``."""
        try:
            found = self._commands.snapshot_of(self._handed.texts())
        except RmspluginError as error:
            why = str(error)
        except Exception as error:  # whatever another process sends, this one goes on
            log.exception("what was handed down cannot be read")
            why = f"what was handed down cannot be read ({type(error).__name__})"
        else:
            self._handed.note("")
            return found
        self._handed.note(why)
        return self._own.snapshot()
