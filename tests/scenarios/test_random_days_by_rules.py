"""On random days no VM ever comes where a rule of the site bars it from, whatever fails, is killed, or is asked for."""

from __future__ import annotations

from collections import defaultdict

import examples
import pytest
from fresh_ledger import in_memory
from scenarios.interleaved import InterleavedWorld
from scenarios.invariants import Watch
from scenarios.random_day import Day, events_of

from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.settings.rules import PlacementRule

SEEDS = (1, 2, 3, 4, 5, 6) if examples.whole else (2, 3)
EVENTS = 60

RULES = {
    "apart": PlacementRule(kind="spread", per="vjob", partitions=("urgent",)),
    "rivals": PlacementRule(kind="split", per="partition"),
    "stay": PlacementRule(kind="root", partitions=("vjob",)),
    "few": PlacementRule(kind="capacity", partitions=("vjob",), most=3),
}


class RuledWorld(InterleavedWorld):
    """A world whose site has rules."""

    def start_engine(self, kill_at: int | None = None) -> None:
        """See World."""
        self.settings = self.settings.model_copy(update={"rule": RULES})
        super().start_engine(kill_at)


class RuledWatch(Watch):
    """Looks at all VMs that there are, whoever knows of them."""

    most = 0

    def look(self) -> None:
        """See Watch."""
        super().look()
        partitions = defaultdict(set)
        jobs = defaultdict(list)
        all_of_vjob = set()
        for node, vms in self._world.hypervisor.machines.seen().items():
            for vm in vms:
                parsed = parse_vm_name(vm)
                assert parsed is not None
                partition = self._world.rms._find(parsed[0]).request.partition
                partitions[node].add(partition)
                if partition == "urgent":
                    jobs[parsed[0]].append((node, vm))
                else:
                    all_of_vjob.add(vm)
        assert all(len(found) < 2 for found in partitions.values()), f"two partitions on one node: {dict(partitions)}"
        for places in jobs.values():
            assert len({node for node, _ in places}) == len(places), f"two VMs of one vjob on one node: {places}"
        assert len(all_of_vjob) <= 3, f"more VMs than may run: {all_of_vjob}"
        self.most = max(self.most, len(all_of_vjob))


class RuledDay(Day):
    """A day of it."""

    makes_world = RuledWorld
    makes_watch = RuledWatch


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_vm_comes_where_a_rule_bars_it_from_and_all_vjobs_end(seed: int) -> None:
    with in_memory() as directory:
        day = RuledDay(directory, seed, events_of(seed, EVENTS))
        try:
            day.live()
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *day.happened])) from error
        assert isinstance(day.watch, RuledWatch)
        assert day.watch.most > 1, "VMs came near to what a rule allows"
        moved = {
            parsed[0]
            for call in day.world.hypervisor.calls
            if call[0] == "migrate" and (parsed := parse_vm_name(call[2]))
        }
        assert {day.world.rms._find(job).request.partition for job in moved} <= {"urgent"}
