"""A neighbour that is silent while others are paused, go on, or make way: it costs time and nothing else (I1-I6).

A full cluster of long vjobs, a short one that is served, and its end; from any request on, of that time, one neighbour
does not answer k requests in a row.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from scenarios.neighbours import Silence, Way
from scenarios.test_neighbours_silent import CALLS
from scenarios.test_pauses import pausing, powers, rows
from scenarios.test_reaction import script_ends
from scenarios.test_slowdown import HOUR_S, full, one, pass_time
from scenarios.world import World, spread

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import VJobState

S = VJobState
#: Of all silences CI tries so many: a number with which most kinds of them are met.
SAMPLE = 39


def live(world: World, silence: Silence | None = None) -> Counter[str]:
    """One life; a silence counts from its middle on. Returns the requests of each neighbour since then."""
    longs = full(world)
    before = Counter(world.neighbours.calls)
    if silence is not None:
        first = before[silence.neighbour] + silence.first
        world.neighbours.silence = Silence(silence.neighbour, first, silence.calls, silence.way)
    job = one(world, time_limit_s=HOUR_S)
    until(world, lambda: world.state(job) is S.RUNNING, job)
    world.context.ledger.update_vjob(job, script_started=True)
    pass_time(world, 30)
    with suppress(RefusedError):  # its time may be over
        script_ends(world, job)
        world.rms.finish(job)
    until(world, lambda: world.state(job) is S.TERMINATED, job)
    until(world, lambda: all(goes_on(world, each) for each in longs), *longs)
    for each in longs:
        assert powers(world, each) == [VMPower.RUNNING]
        assert [world.hypervisor.where(vm.name) for vm in rows(world, each)] == [[vm.host] for vm in rows(world, each)]
        assert (world.context.ledger.vjob(each).losses, world.context.ledger.starts(each)) == (0, 1), each
        assert world.rms.job(each).restarts == 0
    assert world.context.ledger.vjob(job).losses == 0
    return Counter(world.neighbours.calls) - before


def goes_on(world: World, job: int) -> bool:
    """It runs, as Slurm and the engine have it."""
    return world.state(job) is S.RUNNING and world.rms.job(job).state is JobState.RUNNING


def until(world: World, condition: Callable[[], bool], *jobs: int) -> None:
    """Tick until the condition is met with nothing under way; first by the second, then by the minute."""
    for tick in range(400):
        world.tick(1.0 if tick < 40 else 60.0)
        known = {vjob.job_id for vjob in world.context.ledger.vjobs(ended=True)}
        if known.issuperset(jobs) and not world.executor.busy() and condition():
            return
    states = {job: world.context.ledger.vjob(job) for job in jobs}
    told = [f"{job} is {vjob.state} ({vjob.reason})" for job, vjob in states.items()]
    raise AssertionError(f"{'; '.join(told)}; {world.cycle.report}")


def silences(calls: Counter[str]) -> list[Silence]:
    """All there are to try."""
    return [
        Silence(name, first, count, way)
        for name in sorted(calls)
        for first in range(1, calls[name] + 1)
        for count, way in itertools.product(CALLS, Way)
        if way is not Way.BROKEN_OFF or name.startswith("hypervisor")
    ]


@pytest.mark.timeout(3600)
def test_a_neighbour_that_is_silent_around_a_pause_costs_time_and_nothing_else(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    with pausing(directory / "0") as world:
        all_of_them = silences(live(world))
    assert {silence.neighbour.split()[0] for silence in all_of_them} == {"rms", "hypervisor", "agent", "guest"}
    chosen = spread(len(all_of_them), len(all_of_them) if whole else SAMPLE)
    wrong = []
    for number in chosen:
        where = directory / str(number)
        where.mkdir()
        silence = all_of_them[number - 1]
        try:
            with pausing(where) as world:
                live(world, silence)
        except AssertionError as error:
            wrong.append(f"{silence}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(chosen)}:", *wrong])
