"""One engine's ledger becomes those of groups' engines, and back: nothing is lost or runs twice, or it is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from scenarios.two_groups import HOSTS, Site

from rmsplugin.adapters.coordination.candidates import Candidate
from rmsplugin.adapters.coordination.elected import Elected
from rmsplugin.adapters.simulated.ensemble import SimulatedEnsemble
from rmsplugin.engine.ledger.checkpoints import CheckpointVM
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.ledger.shared_files import name_of
from rmsplugin.engine.ledger.takeover import take_over
from rmsplugin.engine.parted import Parted
from rmsplugin.engine.territory.territory import Territory, territory_of
from rmsplugin.errors import LedgerError
from rmsplugin.groups.given import Given, Place, text_of
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

S = VJobState
PATH = "/rmsplugin"


class Parting:
    """A site with one engine, whose groups are to have engines of their own; and an ensemble."""

    def __init__(self, directory: Path, *, one_store: bool = False) -> None:
        self.shared = directory
        self.site = Site(directory, is_parted=False, shared=one_store)
        self.ensemble = SimulatedEnsemble(lambda: 0.0)
        self.tree = self.ensemble.open(4.0)
        self.waited: list[float] = []
        self.epoch = 5

    def settings(self, group: str = "") -> Settings:
        path = f"{PATH}/groups/{group}" if group else PATH
        places = SimpleNamespace(state_dir=self.shared / "state" / "groups" / group)
        parts = {"territory": group, "site_path": PATH, "engine": places, "cluster": SimpleNamespace(path=path)}
        return cast(Settings, SimpleNamespace(**parts))

    def parted(self, group: str = "") -> Parted:
        return Parted(self.settings(group), self.shared, self.tree, self.waited.append)

    def territory(self, group: str) -> Territory:
        territory = territory_of(group, self.shared)
        territory.hear()
        return territory

    def stop_all(self) -> None:
        """The engine of all groups ends; its ledger is on the shared directory."""
        self.site.world.context.ledger.epochs.begin_turn(self.epoch)
        self.site.world.close()
        (self.shared / "groups" / "all").mkdir(parents=True, exist_ok=True)
        shutil.copy(self.site.world._ledger_path, self.shared / "groups" / "all" / name_of(self.epoch))

    def ledger_of(self, group: str) -> Path:
        """The first or next ledger of a group, as its engine makes it when it begins."""
        self.epoch += 1
        change = self.parted(group).for_a_group(self.territory(group))
        return take_over(self.shared / "groups" / group, self.epoch, leads=lambda: True, change=change)

    def begin(self, *groups: str) -> None:
        for group in groups or HOSTS:
            self.site.begin(group, self.ledger_of(group))

    def lead(self, folder: str) -> Elected:
        """An engine that waits there."""
        elected = Elected(self.ensemble.open(4.0), folder, Candidate("c1:7", "there", 4.0, 1.0), lambda: 0.0)
        elected.campaign()
        return elected

    def join(self) -> Ledger:
        """The ledger of one engine again."""
        self.epoch += 1
        parted = self.parted()
        change = parted.for_all()
        path = take_over(self.shared / "groups" / "all", self.epoch, leads=lambda: True, change=change)
        if change is not None:
            parted.joined(self.epoch)
        return Ledger(path)


@pytest.fixture
def parting(directory: Path) -> Iterator[Parting]:
    parting = Parting(directory)
    yield parting
    assert parting.site.world.hypervisor.violations == []


def test_vjobs_go_to_the_group_whose_hosts_have_them_and_run_on(parting: Parting) -> None:
    site, world = parting.site, parting.site.world
    running = [world.running(vms=1, cpus=1) for _ in range(4)]
    sleeper, ended = world.sleeping(vms=1, cpus=1), world.running(vms=1)
    world.rms.finish(ended)
    world.until(ended, S.TERMINATED)
    world.context.ledger.plans.set_pause("root")
    waiting = world.submit(vms=1)
    world.tick()
    world.context.ledger.plans.clear_pause()
    images = {vm.image_node for vm in world.context.ledger.vms(sleeper)}
    hosts = {job: world.host(job) for job in running}
    group_of = {host: group for group, names in HOSTS.items() for host in names}
    parting.stop_all()
    parting.begin()
    for job in running:
        assert site.where(job) == {group_of[hosts[job]]: S.RUNNING}
    assert site.where(sleeper) == {group_of[images.pop()]: S.SLEEPING}
    assert site.where(waiting) == {}, "nothing of it has begun: the leader gives it"
    assert site.where(ended) == {"left": S.TERMINATED}, "the first group remembers"
    for job in (*running, sleeper):
        site.give(job, next(iter(site.where(job))))
    site.give(waiting, "right")
    for group in HOSTS:
        ledger = site.engines[group].context.ledger
        if sleeper in {vjob.job_id for vjob in ledger.vjobs()}:
            ledger.update_vjob(sleeper, resumes=True)
    site.until(lambda: {*site.where(sleeper).values()} == {*site.where(waiting).values()} == {S.RUNNING})
    assert {job: site.booted(job) for job in running if len(site.booted(job)) != 1} == {}, "they run on"
    for engine in site.engines.values():
        assert engine.cycle.report.problems == []
    for job in (*running, sleeper, waiting):
        world.rms.finish(job)
    site.until(lambda: all({*site.where(job).values()} == {S.TERMINATED} for job in (*running, sleeper, waiting)))
    assert world.leftovers() == []
    for engine in site.engines.values():
        engine.close()


def test_states_in_a_store_that_all_nodes_mount_become_those_of_the_group_that_had_the_vm_last(directory: Path) -> None:
    parting = Parting(directory, one_store=True)
    site, world = parting.site, parting.site.world
    sleepers = [world.running(vms=1, cpus=2) for _ in range(4)]
    hosts = {job: world.host(job) for job in sleepers}
    for job in sleepers:
        world.ask(job, OperationKind.SUSPEND)
        world.until(job, S.SLEEPING)
    parting.stop_all()
    parting.begin()
    homes = {job: next(iter(site.where(job))) for job in sleepers}
    assert {job: hosts[job] in HOSTS[group] for job, group in homes.items()} == dict.fromkeys(sleepers, True)
    assert {*homes.values()} == {*HOSTS}
    for job, group in homes.items():
        site.give(job, group)
        site.engines[group].context.ledger.update_vjob(job, resumes=True)
    site.until(lambda: all(site.where(job) == {homes[job]: S.RUNNING} for job in sleepers))
    assert [path for path in world.files.paths("n1") if path.count("/") == 2] == [], "the whole store has no state left"
    assert [len(site.booted(job)) for job in sleepers] == [1, 1, 1, 1]
    for engine in site.engines.values():
        assert engine.cycle.report.problems == []
        engine.close()
    assert world.hypervisor.violations == []


@pytest.mark.parametrize("kind", ["aside", "checkpoint"])
def test_checkpoints_and_states_put_aside_in_such_a_store_go_with_their_vjob(directory: Path, kind: str) -> None:
    parting = Parting(directory, one_store=True)
    site, world = parting.site, parting.site.world
    job = world.sleeping(vms=1)
    ledger, (vm,) = world.context.ledger, world.context.ledger.vms(job)
    state = world.files.get("n1", f"/shared/{vm.name}.state")
    assert state is not None
    if kind == "aside":
        ledger.set_aside.open(ledger.vjob(job), [vm], "it was damaged")
    else:
        ledger.checkpoints.intend(job, [CheckpointVM(vm.name, (SHARED,))], [])
        ledger._db.execute("update vjobs set state = 'terminated'")
    ledger._db.execute("delete from vms")
    world.files.put("n1", f"/shared/{kind}-1.{vm.name}.state", state)
    parting.stop_all()
    parting.begin()
    (group,) = site.where(job)
    site.engines[group].context.stores.ensure(HOSTS[group][0])
    names = [f"{begin}{vm.name}.state" for begin in ("", f"{kind}-1.")]
    assert {*site.states_in(group, job)} == {f"/shared/groups/{group}/{name}" for name in names}
    for engine in site.engines.values():
        engine.close()


def test_the_addresses_of_all_vms_are_claimed_by_the_first_group_that_begins(parting: Parting) -> None:
    world = parting.site.world
    jobs = [world.running(vms=1, cpus=2) for _ in range(4)]
    addresses = {vm.address for job in jobs for vm in world.context.ledger.vms(job)}
    parting.stop_all()
    parting.ledger_of("left")
    claims = parting.territory("right").claims
    claims.read()
    assert claims.mine() | claims.others() == addresses
    assert len(claims.mine()) == len(claims.others()) == 2


def test_a_vjob_whose_vms_are_lost_goes_where_they_were(parting: Parting) -> None:
    world = parting.site.world
    job = world.running(vms=1)
    (vm,) = world.context.ledger.vms(job)
    world.context.ledger._db.execute("update vms set host = '', phase = 'lost'")
    parting.stop_all()
    for group, hosts in HOSTS.items():
        ledger = Ledger(parting.ledger_of(group))
        assert [vjob.job_id for vjob in ledger.vjobs()] == ([job] if vm.host in hosts else [])
        ledger.close()


def test_saved_states_that_were_put_aside_decide_too(parting: Parting) -> None:
    world = parting.site.world
    job = world.sleeping(vms=1)
    (vm,) = world.context.ledger.vms(job)
    world.context.ledger.set_aside.open(world.context.ledger.vjob(job), [vm], "it was damaged")
    world.context.ledger._db.execute("delete from vms")
    parting.stop_all()
    for group, hosts in HOSTS.items():
        ledger = Ledger(parting.ledger_of(group))
        assert [vjob.job_id for vjob in ledger.vjobs()] == ([job] if vm.image_node in hosts else [])
        assert len(ledger.set_aside.all()) == len(ledger.vjobs())
        ledger.close()


def test_a_vjob_on_hosts_of_two_groups_is_no_groups_and_nothing_is_parted(parting: Parting) -> None:
    world = parting.site.world
    job = world.running(vms=4, cpus=2)
    parting.stop_all()
    for group in HOSTS:
        with pytest.raises(LedgerError, match=rf"cannot be parted: the VMs or saved states of vjobs {job} \(on n1, n2"):
            parting.ledger_of(group)
    ledger = parting.join()
    assert ledger.vjob(job).state is S.RUNNING, "one engine goes on as before"
    assert not (parting.shared / "groups" / "all" / "split").exists()
    ledger.close()


def test_a_group_that_begins_later_finds_its_vjobs_by_the_hosts_of_the_parting(parting: Parting) -> None:
    world = parting.site.world
    jobs = [world.running(vms=1, cpus=2) for _ in range(4)]
    hosts = {job: world.host(job) for job in jobs}
    parting.stop_all()
    parting.begin("left")
    moved = {"left": (*HOSTS["left"], *HOSTS["right"]), "right": ()}
    parting.site.given = parting.site.given.next(groups=moved)
    parting.site.say(1, Place("left"))
    ledger = Ledger(parting.ledger_of("right"))
    assert {vjob.job_id for vjob in ledger.vjobs()} == {job for job in jobs if hosts[job] in HOSTS["right"]}
    ledger.close()
    parting.site.engines["left"].close()


def test_the_next_ledger_of_a_group_is_made_of_its_own(parting: Parting) -> None:
    job = parting.site.world.running(vms=1)
    parting.stop_all()
    parting.begin()
    (group,) = parting.site.where(job)
    engine = parting.site.engines[group]
    engine.close()
    again = Ledger(parting.ledger_of(group))
    assert [vjob.job_id for vjob in again.vjobs()] == [job]
    again.close()


def test_one_engine_goes_on_when_no_group_has_a_vjob(parting: Parting) -> None:
    world = parting.site.world
    job, other = world.running(vms=1), world.running(vms=1)
    parting.stop_all()
    parting.begin()
    (group,) = parting.site.where(job)
    with pytest.raises(LedgerError, match=rf"group {group}: {job}"):
        parting.join()
    for each in (job, other):
        parting.site.give(each, next(iter(parting.site.where(each))))
        world.rms.finish(each)
    parting.site.until(
        lambda: {S.TERMINATED} == {*parting.site.where(job).values(), *parting.site.where(other).values()}
    )
    for engine in parting.site.engines.values():
        engine.close()
    ledger = parting.join()
    assert ledger.vjobs() == [], "they have ended in their groups"
    assert ledger.vms() == [] and ledger.running_operations() == []
    ledger.close()
    assert [each.name for each in (parting.shared / "groups").iterdir() if not each.name.startswith(".")] == ["all"]
    again = parting.join()
    again.close()


def test_a_ledger_that_was_joined_is_parted_again(parting: Parting) -> None:
    world, site = parting.site.world, parting.site
    job = world.running(vms=1)
    parting.stop_all()
    parting.begin()
    (group,) = site.where(job)
    site.give(job, group)
    world.rms.finish(job)
    site.until(lambda: site.where(job) == {group: S.TERMINATED})
    for engine in site.engines.values():
        engine.close()
    parting.join().close()
    assert not (parting.shared / "site").exists(), "what the leader said then, and addresses, count no more"
    site.epoch, site.given = 0, Given(1, 0, {"left": HOSTS["right"], "right": HOSTS["left"]})
    site.files.write(1, text_of(site.given))
    for each in HOSTS:
        assert Ledger(parting.ledger_of(each)).vjobs() == []


def test_vjobs_of_a_group_that_never_began_stay_with_one_engine(parting: Parting) -> None:
    world = parting.site.world
    jobs = {world.host(job): job for job in [world.running(vms=1, cpus=2) for _ in range(4)]}
    parting.stop_all()
    parting.begin("left")
    for group, nodes in HOSTS.items():
        for node in nodes:
            parting.site.give(jobs[node], group)
    for node in HOSTS["left"]:
        world.rms.finish(jobs[node])
    parting.site.until(lambda: all(parting.site.where(jobs[node]) == {"left": S.TERMINATED} for node in HOSTS["left"]))
    parting.site.engines["left"].close()
    ledger = parting.join()
    assert {vjob.job_id for vjob in ledger.vjobs()} == {jobs[node] for node in HOSTS["right"]}
    ledger.close()


def test_a_group_does_not_begin_beside_the_engine_of_all(parting: Parting) -> None:
    parting.stop_all()
    engine = parting.lead(PATH)
    with pytest.raises(LedgerError, match=r"an engine of all groups is there \(c1:7, at /rmsplugin of the ensemble\)"):
        parting.ledger_of("left")
    engine.resign(at_rest=True)
    parting.ledger_of("left")


def test_the_engine_of_all_does_not_begin_beside_a_group(parting: Parting) -> None:
    parting.stop_all()
    engine = parting.lead(f"{PATH}/groups/left")
    with pytest.raises(LedgerError, match=r"an engine of one group, is there \(c1:7, at /rmsplugin/groups/left"):
        parting.join()
    engine.resign(at_rest=True)
    manager = parting.lead(f"{PATH}/site")
    with pytest.raises(LedgerError, match=r"a manager, or .* is there \(c1:7, at /rmsplugin/site"):
        parting.join()
    manager.resign(at_rest=True)
    parting.join().close()


def test_an_engine_that_begins_while_the_mark_is_written_is_seen(parting: Parting) -> None:
    parting.stop_all()
    territory, parted = parting.territory("left"), parting.parted("left")
    as_before = parted._parted_as

    def meanwhile(groups: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        parting.lead(PATH)
        return as_before(groups)

    parted._parted_as = meanwhile  # type: ignore[method-assign, assignment]
    with pytest.raises(LedgerError, match="an engine of all groups is there"):
        parted.for_a_group(territory)
    assert not (parting.shared / "groups" / "all" / "split").exists()


def test_what_a_killed_engine_of_the_other_kind_has_begun_is_waited_for(parting: Parting) -> None:
    parting.stop_all()
    parting.lead(PATH).resign(at_rest=False)
    parting.ledger_of("left")
    assert parting.waited == [5.0], "a session, and an act"
    parting.ledger_of("left")
    assert parting.waited == [5.0], "once"


def test_a_group_begins_once_the_leader_has_given_hosts(parting: Parting, directory: Path) -> None:
    parting.stop_all()
    shutil.rmtree(directory / "site")
    with pytest.raises(LedgerError, match="once the leader has given hosts"):
        parting.ledger_of("left")
    assert not (parting.shared / "groups" / "all" / "split").exists()


def test_a_ledger_that_only_this_host_has_is_not_passed_over(parting: Parting) -> None:
    (parting.shared / "state").mkdir()
    (parting.shared / "state" / "ledger.sqlite").touch()
    with pytest.raises(LedgerError, match=r"start one engine with cluster\.shared_dir first"):
        parting.ledger_of("left")


def test_a_site_that_begins_with_groups_has_empty_ledgers(parting: Parting) -> None:
    ledger = Ledger(parting.ledger_of("left"))
    assert ledger.vjobs(ended=True) == []
    ledger.close()
    parting.join().close()


def test_a_mark_that_cannot_be_read_is_said(parting: Parting) -> None:
    parting.stop_all()
    (parting.shared / "groups" / "all" / "split").write_text("?")
    with pytest.raises(LedgerError, match="does not say how the ledger was parted"):
        parting.ledger_of("left")
