"""Together: the scenes of all groups as one, for the page of a manager. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rmsplugin.live_page.scene import Row, Scene, Switch

#: Context switches of the past that are shown.
_SWITCHES = 10


def together(
    number: int, scenes: Mapping[str, Scene], silent: Mapping[str, str], host: str, version: str, now: float
) -> Scene:
    """One scene of all groups.

    Args:
        number: of the page: ``number_of`` the numbers of all engines that answer.
        scenes: by group, the scene that its engine has drawn, as the viewer may see it; numbers of context switches are
            the site's.
        silent: by group whose engine tells nothing, the reason.
        host: on which it is put together.
        version: of the release that does so.
        now: seconds since the epoch.
    """
    with_cycle = {group: scene for group, scene in scenes.items() if scene.cycle_time}
    oldest = min(with_cycle, key=lambda group: with_cycle[group].cycle_time, default="")
    cycle = with_cycle[oldest].cycle if oldest else ""
    return Scene(
        number=number,
        time=min((scene.time for scene in scenes.values()), default=now),
        version=version,
        host=host,
        leader=" ".join(f"Group {group}: {scene.leader}" for group, scene in scenes.items()),
        cycle=f"group {oldest}: {cycle}" if cycle else "",
        cycle_time=with_cycle[oldest].cycle_time if oldest else 0.0,
        notices=(
            *(f"group {group} is missing on this page: {why}" for group, why in silent.items()),
            *(f"group {group}: {each}" for group, scene in scenes.items() for each in scene.notices),
        ),
        energy=tuple(f"Group {group}: {each}" for group, scene in scenes.items() for each in scene.energy),
        nodes=tuple(node for scene in scenes.values() for node in scene.nodes),
        drawings=tuple(replace(each, group=group) for group, scene in scenes.items() for each in scene.drawings),
        acts=tuple(act for scene in scenes.values() for act in scene.acts),
        queue=_rows(scene.queue for scene in scenes.values()),
        paused=_rows(scene.paused for scene in scenes.values()),
        sleeping=_rows(scene.sleeping for scene in scenes.values()),
        switches=_newest(scene.switches for scene in scenes.values()),
        private=any(scene.private for scene in scenes.values()),
        nodes_private=any(scene.nodes_private for scene in scenes.values()),
        hidden=sum(scene.hidden for scene in scenes.values()),
    )


def number_of(numbers: Iterable[int]) -> int:
    """The number of the page of all groups: another one when that of a group is another one, or a group is missing."""
    return sum(numbers) % (1 << 53)


def _rows(parts: Iterable[Iterable[Row]]) -> tuple[Row, ...]:
    """In the order of each group's queue; a job that several engines see in Slurm, because none has it yet, once."""
    found: dict[str, Row] = {}
    for rows in parts:
        for row in rows:
            found.setdefault(row.vjob, row)
    return tuple(sorted(found.values(), key=lambda row: (row.position is None, row.position or 0, row.since)))


def _newest(parts: Iterable[Iterable[Switch]]) -> tuple[Switch, ...]:
    def all_of_them() -> Iterator[Switch]:
        for switches in parts:
            yield from switches

    return tuple(sorted(all_of_them(), key=lambda each: -each.time)[:_SWITCHES])
