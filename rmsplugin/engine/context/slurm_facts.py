"""Slurm facts: what guests and the engine know of the site's Slurm, as the last observation found it. In memory only.

An engine that has just been restarted, and goes on with a start before its first observation, tells the defaults.
"""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.adapters.guests.config import SlurmFacts
from rmsplugin.adapters.rms.base import RmsSnapshot


class SeenSlurm:
    """Set by each observation, read by each start of a VM, in any thread: each is one step."""

    def __init__(self) -> None:
        self.facts = SlurmFacts()
        #: Where slurmctld keeps its state; empty: not known yet.
        self.state_dir = ""

    def seen(self, rms: RmsSnapshot) -> None:
        """This was read."""
        self.state_dir = rms.state_dir
        facts = SlurmFacts(rms.version, spool_dir=rms.spool_dir)
        self.facts = facts if rms.kill_wait_s is None else replace(facts, kill_wait_s=rms.kill_wait_s)
