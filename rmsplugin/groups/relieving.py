"""Relieving: which vjob that runs goes to another group, so that its own group has room for one that has none anywhere.

A group tells that it is hot, and names vjobs that run and are in the way (``decision.unburdening``). The leader, who
knows the room of all groups, chooses: one vjob at a time leaves a group, and one comes to a group. The vjob is
suspended to go, and handed over as one that sleeps. It goes only to a group of the same migration domain that has room
for it beside all that run, that is not hot, and where nobody ahead of it in the queue is left without room. So it goes
on there at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.groups.choosing import RoomLeft, Shape


@dataclass(frozen=True, slots=True)
class Hot:
    """A group that is hot: a vjob has no room there, and would have it without another one.

    Attributes:
        waits: the vjob that is left without room.
        vjobs: vjobs that run; without any one of them there would be room. The first one costs least.
    """

    waits: int
    vjobs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Relief:
    """A vjob that runs, and the group where it would go."""

    job_id: int
    group: str
    to: str


@dataclass(frozen=True)
class Scene:
    """What a leader's turn has found.

    Attributes:
        shapes: of all vjobs, by job id, in the order of the queue.
        unplaced: by vjob that waits or sleeps, and that has room in no group, the group where it is.
        movable: the vjobs that run, and may go.
        hot: by group.
        gives: groups that no vjob leaves now.
        gets: groups to which no vjob comes now, and whose engine can take one in.
    """

    shapes: Mapping[int, Shape]
    unplaced: Mapping[int, str]
    movable: Collection[int]
    hot: Mapping[str, Hot]
    gives: Collection[str]
    gets: Collection[str]


def reliefs(scene: Scene, domains: Sequence[Collection[str]], room: RoomLeft) -> Iterator[Relief]:
    """The moves that pay; at most one from each group, and one to each.

    Args:
        scene: what there is.
        domains: the migration domains, each the names of groups.
        room: what the queue leaves; the moves take theirs of it.
    """
    place = {job_id: number for number, job_id in enumerate(scene.shapes)}
    first_left: dict[str, int] = {}  # by group, the place in the queue of the first one that is left without room
    for job_id, name in scene.unplaced.items():
        first_left[name] = min(place[job_id], first_left.get(name, place[job_id]))
    gets = {name for name in scene.gets if name not in scene.hot}
    for name, hot in scene.hot.items():
        if name not in scene.gives or scene.unplaced.get(hot.waits) != name:
            continue
        others = gets & partners(name, domains)
        for job_id in (each for each in hot.vjobs if each in scene.movable and each in place):
            open_to = [other for other in others if first_left.get(other, len(place)) > place[job_id]]
            to = room.take(scene.shapes[job_id], open_to)
            if to is not None:
                gets.discard(to)
                yield Relief(job_id, name, to)
                break


def partners(name: str, domains: Sequence[Collection[str]]) -> set[str]:
    """The other groups of the migration domains of a group."""
    return {other for domain in domains if name in domain for other in domain} - {name}
