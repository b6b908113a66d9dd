"""Invariants I1-I6 hold when a neighbour of the engine is silent for a while, from any of its calls on.

Each life is a whole one: run, suspend, resume elsewhere, migrate, end. One neighbour (Slurm, the hypervisor or the
agent of a node, a guest) does not answer k calls in a row; after that the vjob has to be right: nothing lost, nothing
run twice, nothing left behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from scenarios.neighbours import Silence, Way
from scenarios.world import World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind

CALLS = (1, 4, 12, 40)
#: Of all silences CI tries every so manieth; coprime to the numbers of ways and of CALLS, so that all of them are met.
SAMPLE = 23


class Life:
    """A vjob from its submission to its end, in a world where one neighbour is silent for a while."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.job = 0

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Tick until the condition is met with nothing under way; first by the second, then by the minute."""
        for tick in range(400):
            self.world.tick(1.0 if tick < 40 else 60.0)
            known = {vjob.job_id for vjob in self.world.context.ledger.vjobs(ended=True)}
            if self.job in known and self.job not in self.world.executor.busy() and condition():
                return
        vjob = self.world.context.ledger.vjob(self.job)
        raise AssertionError(f"{what}: it is {vjob.state} ({vjob.reason}); {self.world.cycle.report}")

    def reach(self, *states: VJobState, ask: OperationKind | None = None, to: str = "") -> None:
        """Have the vjob in one of the states; ``ask`` for it as often as it is refused or fails."""

        def there() -> bool:
            if self.world.state(self.job) in states:
                return True
            if ask is not None and self.world.cycle.seen is not None:
                self.world.ask(self.job, ask, to)
            return False

        self.until(there, f"never {' or '.join(states)}")

    def live(self) -> None:
        """The whole life."""
        world = self.world
        self.job = world.submit(vms=2)
        self.reach(S.RUNNING)
        world.context.ledger.update_vjob(self.job, script_started=True)
        boots, restarts = self._boots(), world.rms.job(self.job).restarts
        self.reach(S.SLEEPING, ask=K.SUSPEND)
        self.reach(S.RUNNING, ask=K.RESUME, to="n3")
        self.check_running()
        self._migrate()
        self.check_running()
        assert (self._boots(), world.rms.job(self.job).restarts) == (boots, restarts), "it began once (I5)"
        world.rms.finish(self.job)
        self.reach(S.TERMINATED)
        vjob = world.context.ledger.vjob(self.job)
        assert (vjob.losses, vjob.private_key) == (0, "")
        assert world.leftovers() == []
        assert world.hypervisor.violations == []
        assert world.context.ledger.vms() == []

    def _boots(self) -> int:
        return len([call for call in self.world.hypervisor.calls if call[0] == "boot"])

    def _migrate(self) -> None:
        """Off n3, which may take as many attempts as the silence lasts."""
        world = self.world

        def moved() -> bool:
            vms = world.context.ledger.vms(self.job)
            if all(vm.host != "n3" and not vm.destination for vm in vms):
                return True
            if world.state(self.job) is S.RUNNING and not any(vm.destination for vm in vms):
                world.ask(self.job, K.MIGRATE)
            return False

        self.until(moved, "never migrated")

    def check_running(self) -> None:
        """Each VM runs once, where the ledger says (I1), all of them (I4), and its job with them."""
        self.until(lambda: self.world.rms.job(self.job).state == "RUNNING", "its job never runs")
        for vm in self.world.context.ledger.vms(self.job):
            assert self.world.hypervisor.where(vm.name) == [vm.host], "one VM, where the ledger says (I1)"
            assert self.world.hypervisor.list_vms(vm.host)[vm.name].power == "running"
            assert vm.destination == ""


def silences(directory: Path) -> list[Silence]:
    """All there are to try, from the calls of a life without any."""
    world = World(directory)
    Life(world).live()
    neighbours = sorted(world.neighbours.calls)
    assert {name.split()[0] for name in neighbours} == {"rms", "hypervisor", "agent", "guest"}
    return [
        Silence(name, first, calls, way)
        for name in neighbours
        for first in range(1, world.neighbours.calls[name] + 1)
        for calls, way in itertools.product(CALLS, Way)
        if way is not Way.BROKEN_OFF or name.startswith("hypervisor")
    ]


@pytest.mark.timeout(7200)
def test_a_silent_neighbour_costs_time_and_nothing_else(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    all_of_them = silences(directory / "0")
    assert len(all_of_them) > 1000
    wrong = []
    for number, silence in enumerate(all_of_them if whole else all_of_them[::SAMPLE], 1):
        where = directory / str(number)
        where.mkdir()
        world = World(where)
        world.neighbours.silence = silence
        try:
            Life(world).live()
        except AssertionError as error:
            wrong.append(f"{silence}: {error}")
        world.close()
    assert not wrong, "\n".join([f"{len(wrong)} of {number}:", *wrong])
