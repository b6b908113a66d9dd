"""The leaf switches of the RMS's nodes: when they are asked for, and what is known while nobody tells."""

from __future__ import annotations

import pytest

from rmsplugin.engine.observe.topology import NO_TOPOLOGY, Topology
from rmsplugin.errors import UnavailableError

HOUR_S = 3600.0


class Slurm:
    """Tells of switches, unless it is silent."""

    def __init__(self) -> None:
        self.switches = (("n1", "n2"), ("n3",))
        self.silent, self.asked, self.now = False, 0, 1000.0
        self.topology = Topology(self.tell, lambda: self.now)

    def tell(self) -> tuple[tuple[str, ...], ...]:
        self.asked += 1
        if self.silent:
            raise UnavailableError("slurmctld does not answer")
        return self.switches


def test_switches_are_asked_for_when_they_are_needed_and_again_after_a_while() -> None:
    slurm = Slurm()
    assert slurm.asked == 0
    assert [slurm.topology.switches() for _ in range(3)] == [(frozenset({"n1", "n2"}), frozenset({"n3"}))] * 3
    assert slurm.asked == 1
    slurm.switches, slurm.now = (("n1", "n2", "n3"),), slurm.now + HOUR_S
    assert slurm.topology.switches() == (frozenset({"n1", "n2", "n3"}),)
    assert slurm.asked == 2


def test_while_slurm_is_silent_what_it_told_last_is_known() -> None:
    slurm = Slurm()
    known = slurm.topology.switches()
    slurm.silent, slurm.now = True, slurm.now + HOUR_S
    assert slurm.topology.switches() == known


def test_nothing_is_guessed_before_slurm_has_told_anything() -> None:
    slurm = Slurm()
    slurm.silent = True
    with pytest.raises(UnavailableError, match="does not answer"):
        slurm.topology.switches()
    slurm.silent = False
    assert len(slurm.topology.switches()) == 2


def test_without_an_rms_there_are_no_switches() -> None:
    assert NO_TOPOLOGY.switches() == ()
