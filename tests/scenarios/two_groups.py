"""Two engines, one for each group of hosts, on one simulated Slurm and one platform; and a leader that gives vjobs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from scenarios.neighbours import Neighbours
from scenarios.world import Life, World

from rmsplugin.adapters.coordination.epoch_files import EpochFiles, EpochText
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import ROOM_NAME, JobState
from rmsplugin.defaults import GROUPS_DIR
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.territory.territory import Territory, territory_of
from rmsplugin.groups.given import Given, Place, read, text_of
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name

HOSTS = {"left": ("n1", "n2"), "right": ("n3", "n4")}
#: What asks Slurm for something about a job.
_ACTS = {"open_gate", "close_gate", "hold", "suspend", "resume", "requeue", "cancel", "extend_room"}
#: What asks Slurm for something about the power of a node.
_SWITCHES = {"power_down", "power_up", "repair_node"}


class Recorded(Neighbours):
    """Tells what an engine asks of its neighbours, before it happens."""

    def __init__(self, neighbours: Neighbours, clock: Callable[[], float], tell: Callable[..., None]) -> None:
        super().__init__(neighbours._hypervisor, clock)
        self._tell = tell

    def call(self, kind: str, name: str, method: Any, arguments: Any, options: Any) -> Any:
        """See Neighbours."""
        self._tell(kind, name, arguments)
        return super().call(kind, name, method, arguments, options)


class GroupEngine(World):
    """The engine of one group; what it asks for is checked against what is its own."""

    def __init__(self, site: Site, group: str, ledger: Path) -> None:
        self.site, self.group = site, group
        world = site.world
        ledger.parent.mkdir(exist_ok=True)
        self.sizes, self.settings, self.workers = world.sizes, world.settings, world.workers
        self.nodes = world.nodes
        if world.settings.nodes.shared_store is not None:  # as Settings.of_group
            part = {"shared_store": world.settings.nodes.shared_store / GROUPS_DIR / group}
            nodes = world.settings.nodes.model_copy(update=part)
            self.settings = world.settings.model_copy(update={"nodes": nodes})
            self.nodes = world.nodes.of_group(group)
        self.jumped_s = 0.0
        self._time_lock, self._ledger_path = world._time_lock, ledger
        self.files, self.hypervisor, self.rms = world.files, world.hypervisor, world.rms
        self.guests, self.power = world.guests, world.power
        self.neighbours = Recorded(world.neighbours, lambda: self.time, self._asks)
        self.settled, self.wrappers_answer, self._wakes = 0, True, threading.Event()
        self._dead_nodes, self.ended_by_epilog = world._dead_nodes, world.ended_by_epilog
        self.outside: list[str] = []
        self.life = Life(None)
        self.start_engine()

    @property
    def time(self) -> float:  # type: ignore[override]
        """The same for all."""
        return self.site.world.time

    def pass_time(self, seconds: float) -> None:
        """See World."""
        with self._time_lock:
            self.site.world.time += seconds
        self.life.changed()

    def make_territory(self) -> Territory:
        """See World."""
        self.territory = territory_of(self.group, self.site.directory)
        self.territory.hear()
        return self.territory

    def _asks(self, kind: str, name: str, arguments: tuple[Any, ...]) -> None:
        """Check that it asks nothing of other groups' nodes, and for nothing about other groups' jobs."""
        if kind in ("hypervisor", "agent", "power") or name in _SWITCHES:
            # A node sends a saved state to one of another group, which this engine asks nothing.
            asked = arguments[:1] if name == "send" else arguments
            nodes = {each for each in asked if isinstance(each, str)} & {*self.sizes}
            if foreign := nodes - {*HOSTS[self.group]}:
                self.outside.append(f"{name} at {foreign}")
        if kind == "rms" and name == "request_room" and arguments[0] not in HOSTS[self.group]:
            self.outside.append(f"a room on {arguments[0]}")
        if kind == "rms" and name in _ACTS and not self.site.is_of(self.group, arguments[0]):
            self.outside.append(f"{name} of {arguments[0]}")


class Site:
    """The world, its two engines, and its leader."""

    def __init__(self, directory: Path, *, is_parted: bool = True, is_domain: bool = False, **options: Any) -> None:
        """Begin. ``is_parted``: groups have engines from the beginning; ``is_domain``: they are a migration domain."""
        self.directory = directory
        (directory / "none").mkdir()
        # Its own engine has never run a cycle.
        self.world = World(
            directory / "none", nodes=dict.fromkeys([*HOSTS["left"], *HOSTS["right"]], (2, 1024)), **options
        )
        if is_domain:
            cluster = self.world.settings.cluster.model_copy(update={"migration_domains": (tuple(HOSTS),)})
            self.world.settings = self.world.settings.model_copy(update={"cluster": cluster})
        self.files = EpochFiles(directory / "site", "given")
        self.given = Given(1, 0, HOSTS)
        self.epoch = 0
        self.begun: set[int] = set()  # vjobs of which something has begun
        self.lead()
        self.engines: dict[str, GroupEngine] = {}
        for name in HOSTS if is_parted else ():
            self.begin(name, directory / name / "ledger.sqlite")

    def begin(self, group: str, ledger: Path) -> None:
        """Start the engine of a group, with this ledger."""
        self.engines[group] = GroupEngine(self, group, ledger)

    def close(self) -> None:
        """End all engines; whatever happened, nothing ran twice, and nobody left its own."""
        for engine in (*self.engines.values(), self.world):
            engine.close()
        assert self.world.hypervisor.violations == []

    # -- the leader ----------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Have a new leader begin."""
        self.epoch += 1

        def first(before: EpochText | None) -> str:
            if before is None:
                return text_of(Given(self.epoch, 0, HOSTS))
            return text_of(read(before.text, epoch=before.epoch, name=before.name).begun(self.epoch))

        self.given = read(self.files.begin(self.epoch, first), epoch=self.epoch, name="given")

    def say(self, job: int, place: Place) -> None:
        """Have the leader write."""
        self.given = self.given.next(vjobs={**self.given.vjobs, job: place})
        self.files.write(self.epoch, text_of(self.given))

    def give(self, job: int, group: str) -> None:
        """Give a new vjob to a group."""
        assert job not in self.given.vjobs
        self.say(job, Place(group))

    def wish(self, job: int, group: str | None) -> None:
        """Wish a vjob in another group; None: where it is. One that comes with a parcel stays until that is taken in.

        As with the managers' leader: a group to which the parcel is named no more would meet the vjob as a new one.
        """
        self._note_the_taken()
        place = self.given.vjobs[job]
        if place.parcel is None:
            self.say(job, Place(place.group, None if group == place.group else group))

    def hand_on(self) -> None:
        """Give to other groups what groups have given up."""
        self._note_the_taken()
        for name, engine in self.engines.items():
            if engine.life.dead or engine.territory.version != self.given.version:
                continue
            for job in engine.context.ledger.given.released():
                place = self.given.vjobs[job]
                assert place.group == name
                if place.to is not None and engine.territory.version == self.given.version:
                    self.say(job, Place(place.to))
            for job, (parcel, to) in engine.context.ledger.parcels.vjobs().items():
                place = self.given.vjobs[job]
                if (place.group, place.to) == (name, to) and engine.territory.version == self.given.version:
                    self.say(job, Place(to, parcel=parcel))

    def _note_the_taken(self) -> None:
        """Name no parcels any more that were taken in."""
        taken = self._all_taken()
        for job, place in self.given.vjobs.items():
            if place.parcel in taken:
                self.say(job, replace(place, parcel=None))

    # -- where saved states are ----------------------------------------------------------------------------------

    @property
    def store(self) -> Path | None:
        """The store that all nodes mount, if there is one."""
        return self.world.settings.nodes.shared_store

    @property
    def sending(self) -> str:
        """What an engine asks of its node to give another group a state."""
        return "send" if self.store is None else "lend"

    def store_of(self, group: str) -> str:
        """The directory in which the states of a group are, on each of its nodes or for all."""
        return "/store" if self.store is None else f"{self.store}/{GROUPS_DIR}/{group}"

    def states_in(self, group: str, job: int) -> list[str]:
        """The files with states of a vjob that the nodes of a group have for it."""
        begin = f"{self.store_of(group)}/"
        paths = (path for node in HOSTS[group] for path in self.world.files.paths(node))
        return [path for path in paths if path.startswith(begin) and f"vjob{job}-" in path]

    # -- what is checked -----------------------------------------------------------------------------------------

    def is_of(self, group: str, job_id: int) -> bool:
        """Whether a job is a group's own: a room on its hosts; or given to it, by the leader's word."""
        job = self.world.rms._find(job_id)
        if job.request.name == ROOM_NAME:
            return not {*HOSTS[group]}.isdisjoint(self.world.rms.job(job_id).nodes)
        place = self.given.vjobs.get(int(job.display_id.partition("_")[0]))
        return place is not None and place.group == group

    def look(self) -> None:
        """What holds at any time."""
        world = self.world
        assert world.hypervisor.violations == []
        for name, engine in self.engines.items():
            assert engine.outside == [], f"the engine of {name} asked for {engine.outside}"
        there = world.hypervisor.machines.seen()  # operations may be under way
        for node, vms in there.items():
            taken_mib = sum(guest.spec.memory_mib for guest in vms.values())
            assert taken_mib <= world.sizes[node][1], f"I3: {taken_mib} MiB on {node}"
            for vm in vms:
                parsed = parse_vm_name(vm)
                assert parsed is not None
                runs_on = [name for name, at in there.items() if vm in at and at[vm].power is VMPower.RUNNING]
                assert len(runs_on) <= 1, f"I1: {vm} runs on {runs_on}"
                owner = next(name for name, hosts in HOSTS.items() if node in hosts)
                assert self.is_of(owner, parsed[0]), f"{vm} is on {node}, and is not of group {owner}"
        addresses = [vm.address for engine in self.engines.values() for vm in self._ledger(engine).vms()]
        assert len(addresses) == len(set(addresses)), f"VMs have the same addresses: {sorted(addresses)}"
        packed = self._packed()
        for job, ledgers in self._begun().items():
            assert len(ledgers) <= 1, f"I5: vjob {job} has begun in {ledgers}"
            assert job not in packed, f"I5: vjob {job} is packed in {packed[job]}, and has begun in {ledgers}"
            self.begun.add(job)
        for job in self.begun - packed.keys():
            assert self.where(job), f"vjob {job} is lost"

    def _begun(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for name, engine in self.engines.items():
            for vjob in self._ledger(engine).vjobs(ended=True):
                if vjob.state is not VJobState.WAITING or self._ledger(engine).starts(vjob.job_id):
                    found.setdefault(vjob.job_id, []).append(name)
        return found

    def _packed(self) -> dict[int, str]:
        """By job, the group that has packed it, if nobody has taken it in."""
        taken = self._all_taken()
        return {
            job: name
            for name, engine in self.engines.items()
            for job, (parcel, _) in self._ledger(engine).parcels.vjobs().items()
            if parcel not in taken
        }

    def _all_taken(self) -> set[str]:
        return {each for engine in self.engines.values() for each in self._taken(engine)}

    def _taken(self, engine: GroupEngine) -> list[str]:
        return [row["id"] for row in self._ledger(engine).parcels._rows("select id from taken")]

    def _ledger(self, engine: GroupEngine) -> Ledger:
        return engine.context.ledger

    def tick(self, *groups: str) -> None:
        """One cycle of each of these engines, or of all, and what they begin."""
        for name in groups or tuple(self.engines):
            self.engines[name].tick()
            self.look()

    def pass_time(self, seconds: float) -> None:
        """Time passes, and the wrappers of all groups' jobs give their signs of life."""
        self.world.pass_time(seconds)
        for engine in self.engines.values():
            if not engine.life.dead:
                engine._give_signs_of_life()

    def where(self, job: int) -> dict[str, VJobState]:
        """The state of a vjob in each ledger that has it."""
        found = {}
        for name, engine in self.engines.items():
            row = engine.context.ledger.vjobs_among([job]).get(job)
            if row is not None:
                found[name] = row.state
        return found

    def until(self, enough: Callable[[], bool], ticks: int = 60) -> None:
        """Tick, with the leader at work, until it is so."""
        for _ in range(ticks):
            self.tick()
            self.hand_on()
            if enough():
                return
        reports = {name: engine.cycle.report for name, engine in self.engines.items()}
        raise AssertionError(f"it did not come so: {reports}; there is {self.world.leftovers()}")

    def booted(self, job: int) -> list[str]:
        """Where VMs of a vjob were booted."""
        calls = [call for call in self.world.hypervisor.calls if call[0] == "boot"]
        return [str(call) for call in calls if f"vjob{job}-" in str(call)]

    def ended(self, job: int) -> bool:
        """Whether Slurm says that a job has ended."""
        return self.world.rms.job(job).state is JobState.ENDED
