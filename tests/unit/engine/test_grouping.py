"""The groups that an engine forms of what Slurm shows to it."""

from __future__ import annotations

from pathlib import Path

from scenarios.world import World

from rmsplugin.engine.decide.grouping import Grouping
from rmsplugin.groups.forming import Formed, Group
from rmsplugin.settings.groups import Group as GroupSettings


def test_the_engine_of_one_group_forms_that_group_and_finds_no_fault_with_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    others = {"left": GroupSettings(hosts="n1"), "right": GroupSettings(hosts="elsewhere[1-9]")}
    settings = world.context.settings.model_copy(update={"group": others})
    seen = world.rms.snapshot()
    assert Grouping(settings, lambda: ()).of(seen).faults
    settings._territory = "left"
    (partition,) = settings.hosts_partitions
    hosts = tuple(seen.partitions[partition].nodes)
    assert Grouping(settings, lambda: ()).of(seen) == Formed((Group("left", hosts),))
