"""Arrivals: what is kept while a look is the same says of each VM that comes what a look at all VMs says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.engine.test_reconcile import JOB, VJOB, VM

from rmsplugin.adapters.rms.base import RmsNode, RmsPartition, RmsSnapshot
from rmsplugin.engine.assess.arrivals import Arrivals
from rmsplugin.engine.assess.ruled_places import RuledPlaces
from rmsplugin.engine.assess.site_rules import Member
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import Rooms
from rmsplugin.engine.observe.topology import Topology
from rmsplugin.errors import RefusedError
from rmsplugin.model.elements import VM as Machine
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_names import vm_name
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings import Settings
from rmsplugin.settings.rules import Traits

NODES = ("n1", "n2", "n3", "n4")
USERS = ("ann", "bob", "cid")
WISHES = ((), (), (), ("spread",), ("exclusive",), ("alone",), ("labelled",))
RULES = (
    {"kind": "spread", "per": "vjob"},
    {"kind": "spread", "users": ["ann"]},
    {"kind": "gather", "per": "vjob", "names": ["db*"]},
    {"kind": "lonely", "per": "user", "users": ["bob"]},
    {"kind": "split", "per": "account"},
    {"kind": "root", "accounts": ["red"]},
    {"kind": "capacity", "nodes": "n[1-2]", "most": 2, "per": "user"},
    {"kind": "online", "most": 3},
    {"kind": "fence", "nodes": "n1", "users": ["cid"]},
)
NEVER_FULL = Resources(1000, 1 << 20)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(tmp_path / "ledger.sqlite")
    yield opened
    opened.close()


def settings(chance: random.Random) -> Settings:
    some = chance.sample(RULES, chance.randint(0, 4))
    return Settings.model_validate(
        {
            "engine": {"user": "root"},
            "slurm": {"partitions": ["vjob"]},
            "partition": {"vjob": {"hosts": "vmhosts"}},
            "nodes": {"store": "/store"},
            "network": {"pool": "10.0.0.1-10.0.255.250", "prefix_length": 16},
            "image": {"default": {"kind": "kernel", "kernel": "/vmlinuz", "initrd": "/initrd"}},
            "rule": {f"r{number}": keys for number, keys in enumerate(some)},
        }
    )


class Site:
    """A ledger with random vjobs that come, move, sleep and go; Slurm's jobs of them are seen."""

    def __init__(self, ledger: Ledger, chance: random.Random) -> None:
        self.ledger, self.chance = ledger, chance
        self.jobs = tuple(
            replace(
                JOB,
                job_id=number,
                display_id=str(number),
                user=chance.choice(USERS),
                name=chance.choice(("db1", "web")),
                mcs_label=chance.choice(("", "secret", "open")),
            )
            for number in range(1, 13)
        )
        self.seen = self.look()

    def look(self) -> Observation:
        """Another look; since the last one, Slurm has given the jobs to other accounts."""
        self.jobs = tuple(replace(job, account=self.chance.choice(("red", "blue"))) for job in self.jobs)
        partition = RmsPartition("vmhosts", True, NODES, "CANCEL", 1, 60)
        nodes = {name: RmsNode(name, 8, 8192, True, False, "IDLE") for name in NODES}
        topology = Topology(lambda: (NODES[:2], NODES[2:]), lambda: 0.0)
        rms = RmsSnapshot(self.jobs, nodes, {"vmhosts": partition})
        return Observation(0.0, rms, Rooms({}, ()), {}, topology=topology)

    def geometry(self) -> Geometry:
        wishes, switches = frozenset(self.chance.choice(WISHES)), self.chance.choice((0, 0, 1))
        return Geometry(self.chance.randint(1, 3), 1, 128, wishes=wishes, switches=switches)

    def change(self) -> None:
        """One vjob comes, or a VM of one that is there moves, or one ends."""
        known = {vjob.job_id for vjob in self.ledger.vjobs(ended=True)}
        fresh = [job for job in self.jobs if job.job_id not in known]
        if fresh and self.chance.random() < 0.6:
            self._come(fresh[0].job_id)
        elif there := self.ledger.vjobs():
            job_id = self.chance.choice(there).job_id
            vm = self.chance.choice(self.ledger.vms(job_id))
            if vm.phase is VMPhase.MIGRATING:
                self.ledger.enter_phase(vm.name, VMPhase.LIVE, host=vm.destination)
            elif self.chance.random() < 0.6:
                self.ledger.enter_phase(vm.name, VMPhase.MIGRATING, destination=self.chance.choice(NODES))
            else:
                self.ledger.set_vms(job_id, [])
                self.ledger.transition(job_id, VJobState.STOPPING, "it is ended")
                self.ledger.transition(job_id, VJobState.TERMINATED, "it has ended")

    def _come(self, job_id: int) -> None:
        job = next(job for job in self.jobs if job.job_id == job_id)
        geometry = self.geometry()
        self.ledger.add_vjob(
            replace(
                VJOB,
                job_id=job_id,
                display_id=str(job_id),
                user=job.user,
                job_name=job.name,
                geometry=geometry,
                state=VJobState.RUNNING,
            )
        )
        vms = [
            replace(
                VM,
                name=vm_name(job_id, idx),
                job_id=job_id,
                idx=idx,
                host=self.chance.choice(NODES),
                phase=VMPhase.PLACED,
                address=f"10.0.{job_id}.{idx + 1}",
                mac=f"{job_id}-{idx}",
            )
            for idx in range(geometry.vms)
        ]
        self.ledger.set_vms(job_id, vms)
        for vm in vms:
            self.ledger.enter_phase(vm.name, VMPhase.BOOTING)
            self.ledger.enter_phase(vm.name, VMPhase.LIVE)

    def arrival(self) -> tuple[int | Member, dict[str, str]]:
        """VMs that come to some nodes: of a vjob that is there, or of one that is still to be made."""
        there = self.ledger.vjobs()
        if there and self.chance.random() < 0.6:
            vjob: int | Member = self.chance.choice(there).job_id
            names = [vm.name for vm in self.ledger.vms(int(vjob))]  # type: ignore[arg-type]
        else:
            geometry, user = self.geometry(), self.chance.choice(USERS)
            names = [f"new-{idx}" for idx in range(geometry.vms)]
            traits = Traits("db2", user, "red", "vjob", frozenset(), geometry.wishes, geometry.switches)
            vjob = Member("99", traits, tuple(names))
        return vjob, {name: self.chance.choice(NODES) for name in names}


def refusal(site: Site, rules: Settings, vjob: int | Member, hosts: dict[str, str]) -> str | None:
    """The first VM that a look at all VMs of the ledger keeps from its node."""
    places = RuledPlaces(rules, site.ledger, site.seen, [vjob] if isinstance(vjob, Member) else [])
    for vm, node in hosts.items():
        try:
            places.fit([Machine(vm, Resources(1, 128))], {node: NEVER_FULL})
        except RefusedError:
            return vm
    return None


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_says_what_a_look_at_all_vms_says(ledger: Ledger, seed: int) -> None:
    chance = random.Random(seed)
    site, rules = Site(ledger, chance), settings(chance)
    arrivals = Arrivals(rules, ledger)
    for step in range(25):
        if step == 15:
            site.seen = site.look()
        site.change()
        vjob, hosts = site.arrival()
        barred = refusal(site, rules, vjob, hosts)
        if barred is None:
            arrivals.require(site.seen, vjob, hosts)
        else:
            with pytest.raises(RefusedError, match=f"{barred} may not come to {hosts[barred]} now: "):
                arrivals.require(site.seen, vjob, hosts)


def test_an_arrival_of_a_vjob_that_ends_just_then_is_refused(ledger: Ledger) -> None:
    site, rules = Site(ledger, random.Random(0)), settings(random.Random(0))
    arrivals = Arrivals(rules, ledger)
    while not (vjobs := ledger.vjobs()):
        site.change()
    vjob = vjobs[0]
    hosts = {vm.name: vm.host for vm in ledger.vms(vjob.job_id)}
    ledger.transition(vjob.job_id, VJobState.STOPPING, "it is ended")
    ledger.transition(vjob.job_id, VJobState.TERMINATED, "it has ended")
    with pytest.raises(RefusedError, match="has ended"):
        arrivals.require(site.seen, vjob.job_id, hosts)
