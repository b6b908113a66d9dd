"""Slurm facts: the site's Slurm as guests and the engine know it, from the last observation. In memory only.

A restarted engine that goes on with a start before its first observation uses the defaults.
"""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.adapters.guests.config import SlurmFacts
from rmsplugin.adapters.rms.base import RmsSnapshot


class SeenSlurm:
    """Set by each observation, read by each start of a VM, in any thread: each set or read is one step."""

    def __init__(self) -> None:
        self.facts = SlurmFacts()
        #: The directory of slurmctld's state; empty: not known yet.
        self.state_dir = ""

    def seen(self, rms: RmsSnapshot) -> None:
        """Take over the facts of this snapshot."""
        self.state_dir = rms.state_dir
        facts = SlurmFacts(rms.version, spool_dir=rms.spool_dir)
        self.facts = facts if rms.kill_wait_s is None else replace(facts, kill_wait_s=rms.kill_wait_s)
