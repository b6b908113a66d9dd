"""Vjobs of one shape that are behind each other are placed together, as if one after the other."""

from __future__ import annotations

from random import Random

import pytest
from unit.queues import Queue, nodes

from rmsplugin.decision.room import Effort, NodeRoom, Site
from rmsplugin.model.elements import VJob
from rmsplugin.model.rules import allowing


def site_of(random: Random) -> tuple[Site, list[VJob]]:
    """Few shapes, often in a row; some may not be everywhere, some have VMs of different sizes, some are pinned."""
    queue = Queue(*nodes(random.randint(1, 5), cpus=random.choice((1, 4)), memory_mib=4096))
    names = [node.name for node in queue.nodes]
    shapes = [
        {
            "vms": random.choice((1, 1, 2, 3)),
            "cpus": random.choice((0.0, 0.25, 1.0)),
            "memory_mib": random.choice((64, 500, 1500)),
            "rules": allowing(exclude=frozenset(random.sample(names, k=random.choice((0, 0, 1))))),
        }
        for _ in range(3)
    ]
    for number in range(random.randint(3, 14)):
        shape = shapes[0] if random.random() < 0.5 else random.choice(shapes)
        queue.add(f"j{number}", **shape)
    vjobs = list(queue.configuration.vjobs)
    pinned = {vjob.name: {vm.name: random.choice(names) for vm in vjob.vms} for vjob in vjobs if random.random() < 0.1}
    return Site(queue.configuration, pinned, effort=Effort(left=1000)), vjobs


def seen(room: NodeRoom | None) -> object:
    if room is None:
        return None
    free = [room.free_at(node) for node in room.site.up]
    return [v.name for v in room.members], room.placement, free, room.free, room.site.effort.left


@pytest.mark.parametrize("base", range(0, 1000, 250))
def test_those_that_are_alike_are_placed_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch, base: int) -> None:
    inserted = together = 0
    append_alike = NodeRoom.append_alike

    def one_by_one(self: NodeRoom, vjobs: list[VJob]) -> int:
        for count, vjob in enumerate(vjobs):
            if not append_alike(self, [vjob]):
                return count
        return len(vjobs)

    def in_vain(self: NodeRoom, vjob: VJob, times: int) -> None:
        for _ in range(times):
            assert not self.append(vjob)

    def asked(seed: int) -> list[object]:
        random = Random(seed)
        site, vjobs = site_of(random)
        item, optional = random.choice(vjobs), {v.name for v in vjobs if random.random() < 0.6}
        room, stuck = site.pack_until(v for v in vjobs if v is not item)
        found = [seen(room), None if stuck is None else stuck.name]
        answer = room.insert(item, optional - {item.name} if random.random() < 0.8 else ())
        if answer is not None:
            found += [seen(answer[0]), [v.name for v in answer[1]], site.effort.left]
        return [*found, seen(room)]

    for seed in range(base, base + 250):
        at_once = asked(seed)
        with monkeypatch.context() as patch:
            patch.setattr(NodeRoom, "append_alike", one_by_one)
            patch.setattr(NodeRoom, "_in_vain", in_vain)
            assert asked(seed) == at_once, f"seed {seed}"
        inserted += len(at_once) > 3
        together += bool(at_once[0][0])
    assert inserted > 50 and together > 100
