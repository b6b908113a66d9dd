"""A vjob that sleeps goes to another group: its rows, its saved states, its addresses; and it is nobody else's (I5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from scenarios.two_groups import HOSTS, Site

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedState
from rmsplugin.engine.ledger.checkpoints import CheckpointState, CheckpointVM
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.parcel_book import ParcelKind
from rmsplugin.engine.ledger.parting import known_in
from rmsplugin.engine.ledger.rows import OperationKind, StepState
from rmsplugin.engine.serve.summary_view import summary_view
from rmsplugin.errors import OperationFailedError, RefusedError, UnavailableError
from rmsplugin.groups.given import Place
from rmsplugin.groups.giving import Heard
from rmsplugin.groups.told import heard
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.settings.guests import Qcow2Image

S = VJobState


@pytest.fixture(params=[False, True], ids=["own stores", "one store"])
def site(directory: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(directory, shared=request.param)
    yield site
    site.close()


def asleep(site: Site) -> int:
    """A vjob that sleeps in the left group, where others have all CPUs."""
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.until(lambda: site.where(job) == {"left": S.RUNNING})
    left = site.engines["left"]
    left.alive(lambda: left.context.ledger.update_vjob(job, script_started=True))
    put_to_sleep(site, job, "left")
    return job


def put_to_sleep(site: Site, job: int, group: str) -> list[int]:
    """Have a vjob sleep in a group, where others get all CPUs, which are returned."""
    blockers = [site.world.submit(vms=1, cpus=2, priority=100) for _ in HOSTS[group]]
    for each in blockers:
        site.give(each, group)
    engine = site.engines[group]
    site.tick(group)

    def sleeps() -> bool:
        vjob = engine.context.ledger.vjob(job)
        if vjob.state is S.RUNNING:  # it may have been resumed before a blocker was met
            with suppress(RefusedError):
                engine.placing.suspend(vjob, "asked", "root", resumes=True)
        return vjob.state is S.SLEEPING and all(site.where(each) == {group: S.RUNNING} for each in blockers)

    site.until(sleeps)
    return blockers


def pack(site: Site, job: int, *, give: bool = True) -> None:
    """Have the left group pack it for the right one."""
    site.wish(job, "right")
    site.tick("right")  # sets up its stores
    for _ in range(10):
        site.tick("left")
        if site.where(job) == {}:
            break
    site.tick("left")
    assert len(parcels(site)) == 1
    if give:
        site.hand_on()


def test_a_sleeping_vjob_goes_on_in_the_other_group(site: Site) -> None:
    job = asleep(site)
    (before,) = site.engines["left"].context.ledger.vms(job)
    site.engines["left"].context.ledger.update_vjob(job, preference="running")
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    assert site.engines["right"].context.ledger.vjob(job).preferred is S.RUNNING
    (vm,) = site.engines["right"].context.ledger.vms(job)
    assert vm.host in HOSTS["right"]
    assert (vm.uuid, vm.address, vm.host_key) == (before.uuid, before.address, before.host_key)
    assert site.given.vjobs[job].group == "right"
    assert len(site.booted(job)) == 1


def test_its_state_is_known_to_be_where_all_nodes_see_it_or_on_the_node_that_has_the_copy(site: Site) -> None:
    job = asleep(site)
    pack(site, job)
    site.engines["right"].territory.hear()
    site.engines["right"].territory.collect()
    (vm,) = site.engines["right"].context.ledger.vms(job)
    assert vm.image_node in (HOSTS["right"] if site.store is None else [SHARED])


def test_nothing_of_it_is_left_in_the_group_that_it_came_from(site: Site) -> None:
    job = asleep(site)
    left, right = (site.engines[name].context.ledger for name in HOSTS)
    left.checkpoints.intend(job, [], [])
    (vm,) = left.vms(job)
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    site.until(lambda: not left.nodes.left_behind() and not left.parcels.packed())
    assert site.states_in("left", job) == []
    assert vm.address in right.claims.mine()
    assert vm.address in left.claims.others()
    assert left.parcels.copies() == [] and left.checkpoints.whole(job) is None
    site.until(lambda: parcels(site) == [])
    assert right.starts(job) == 1 and right.has_slept(job)


def parcels(site: Site) -> list[str]:
    directory = site.directory / "site" / "parcels"
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def test_it_comes_back_when_the_leader_wishes_so(site: Site) -> None:
    job = asleep(site)
    others = [vjob.job_id for vjob in site.engines["left"].context.ledger.vjobs() if vjob.job_id != job]
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    put_to_sleep(site, job, "right")
    for each in others:
        site.world.rms.finish(each)
    site.until(lambda: all(site.where(each) == {"left": S.TERMINATED} for each in others))
    site.wish(job, "left")
    site.until(lambda: site.where(job) == {"left": S.RUNNING})
    assert len(site.booted(job)) == 1
    site.until(lambda: parcels(site) == [])


def test_a_wish_that_is_taken_back_brings_it_back_and_the_copies_go(site: Site) -> None:
    job = asleep(site)
    left = site.engines["left"].context.ledger
    pack(site, job, give=False)
    assert site.states_in("right", job) != []
    site.wish(job, None)
    site.tick("left")
    assert site.where(job) == {"left": S.SLEEPING}
    site.wish(job, "right")
    site.tick("left")
    assert site.where(job) == {"left": S.SLEEPING} and left.parcels.copies() == [], "the old copy is still there"
    site.wish(job, None)
    site.tick()
    assert site.states_in("right", job) == []
    site.until(lambda: parcels(site) == [])
    assert left.parcels.packed() == []
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})


def test_one_that_is_on_its_way_goes_nowhere_else_before_it_has_arrived(site: Site) -> None:
    job = asleep(site)
    pack(site, job)
    site.wish(job, "left")
    site.wish(job, None)
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    site.until(lambda: parcels(site) == [])
    assert site.given.vjobs[job] == Place("right")
    assert len(site.booted(job)) == 1


def test_copies_of_the_states_of_one_that_ends_are_removed(site: Site) -> None:
    job = asleep(site)
    site.wish(job, "right")
    site.tick("right")  # sets up its stores
    site.tick("left")
    assert site.where(job) == {"left": S.SLEEPING} and site.states_in("right", job) != []
    site.world.rms.cancel(job)
    site.until(lambda: site.where(job) == {"left": S.TERMINATED})
    site.until(lambda: parcels(site) == [] and site.engines["left"].context.ledger.parcels.packed() == [])
    assert site.states_in("left", job) == site.states_in("right", job) == []


def test_copies_of_a_state_that_is_used_are_removed_and_it_stays(site: Site) -> None:
    job = asleep(site)
    engine = site.engines["left"]
    for _ in range(4):
        site.world.nodes.fail_next(site.sending, OperationFailedError("its store is full"))
    site.wish(job, "right")
    site.tick("left")
    site.tick("left")
    assert engine.context.ledger.parcels.copies() == []
    site.wish(job, None)
    site.until(lambda: parcels(site) == [])
    assert site.where(job) == {"left": S.SLEEPING}
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    sent = [call[3] for call in site.world.nodes.calls if call[0] == "send"]
    assert len({*sent}) == (2 if site.store is None else 0), "the next one was sent to another node"


def summary(site: Site, group: str) -> tuple[int, Heard]:
    context, cycle = site.engines[group].context, site.engines[group].cycle
    return heard(summary_view(context.ledger, context.territory, context.epoch, cycle.deciding.groups))


def test_a_vjob_that_somebody_has_put_to_sleep_is_not_handed_over(site: Site) -> None:
    job = asleep(site)
    ledger = site.engines["left"].context.ledger
    site.until(lambda: summary(site, "left")[1].can_go == {job})  # a cycle finds it, after it has gone to sleep
    ledger.update_vjob(job, resumes=False)
    site.wish(job, "right")
    for _ in range(3):
        site.tick()
        site.hand_on()
    assert summary(site, "left")[1].can_go == frozenset()
    assert site.where(job) == {"left": S.SLEEPING}


def test_the_job_of_a_vjob_whose_parcel_is_late_is_nobodys(site: Site) -> None:
    job = asleep(site)
    pack(site, job)
    (name,) = parcels(site)
    path = site.directory / "site" / "parcels" / name
    text = path.read_text()
    path.unlink()
    for _ in range(3):
        site.tick("right")
    assert site.where(job) == {}
    assert any("is not in" in problem for problem in site.engines["right"].cycle.report.problems)
    path.write_text(text)
    site.until(lambda: site.where(job) == {"right": S.RUNNING})


def test_a_parcel_whose_file_is_lost_is_written_again_and_a_proof_that_is_lost_is_given_again(site: Site) -> None:
    job = asleep(site)
    left = site.engines["left"].context.ledger
    pack(site, job)
    for name in parcels(site):
        (site.directory / "site" / "parcels" / name).unlink()
    site.tick("left")
    assert len(parcels(site)) == 1
    site.tick("right")
    (proof,) = (name for name in parcels(site) if name.endswith("taken"))
    (site.directory / "site" / "parcels" / proof).unlink()
    site.until(lambda: left.parcels.packed() == [])
    assert site.where(job).keys() == {"right"}


def test_a_parcel_is_taken_in_once(site: Site, directory: Path) -> None:
    job = asleep(site)
    pack(site, job)
    (name,) = parcels(site)
    path = site.directory / "site" / "parcels" / name
    text = path.read_text()
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    site.world.rms.finish(job)
    site.until(lambda: site.where(job) == {"right": S.TERMINATED})
    path.write_text(text)
    site.engines["right"].start_engine()
    site.until(lambda: parcels(site) == [])
    assert site.where(job) == {"right": S.TERMINATED}


def test_a_group_with_a_parcel_that_nobody_has_taken_in_counts_as_having_the_vjob(site: Site) -> None:
    job = asleep(site)
    pack(site, job)
    _, left = summary(site, "left")
    assert left.packed.keys() == left.unclean == {job}


def test_an_engine_that_is_killed_between_the_rows_and_the_proof_gives_the_proof_when_it_starts(site: Site) -> None:
    job = asleep(site)
    pack(site, job)
    right = site.engines["right"]
    right.territory.hear()
    post = right.territory._post
    assert post is not None
    post.take_in(job, str(site.given.vjobs[job].parcel))
    site.look()
    right.start_engine()
    assert {vm.address for vm in right.context.ledger.vms(job)} <= right.context.ledger.claims.mine()
    assert any(name.endswith("taken") for name in parcels(site))
    site.until(lambda: site.where(job) == {"right": S.RUNNING} and parcels(site) == [])


def test_it_is_not_packed_while_something_is_done_with_it_or_is_about_to_be(site: Site) -> None:
    job = asleep(site)
    engine = site.engines["left"]
    ledger = engine.context.ledger
    site.wish(job, "right")
    site.tick("right")
    site.tick("left")
    assert all(copy.arrived for copy in ledger.parcels.copies())
    plan = ledger.plans.add(ledger.plans.plans(1)[0], [PlannedStep(str(job), OperationKind.RESUME, {}, ())])
    engine.cycle.run()
    assert site.where(job) == {"left": S.SLEEPING}
    for step in ledger.plans.steps(plan):
        ledger.plans.step_ends(step.id, StepState.SKIPPED)
    begun = ledger.begin_operation(job, OperationKind.RESUME, "root")
    engine.cycle.run()
    assert site.where(job) == {"left": S.SLEEPING}
    ledger.end_operation(begun.id)
    site.until(lambda: site.where(job) == {"right": S.RUNNING})


def test_states_that_have_changed_since_they_were_copied_are_copied_again(site: Site) -> None:
    job = asleep(site)
    ledger = site.engines["left"].context.ledger
    site.wish(job, "right")
    site.tick("right")
    site.tick("left")
    (copy,) = ledger.parcels.copies()
    with ledger._write() as db:
        db.execute("update copies set blake2b = 'of a state before'")
    site.tick("left")
    assert site.where(job) == {"left": S.SLEEPING}
    assert ledger.parcels.copies() == [] and ledger.parcels.ordered() == {job}
    site.wish(job, None)
    site.until(lambda: parcels(site) == [])
    assert copy.node in HOSTS["right"] and site.states_in("right", job) == []


def test_no_vm_gets_the_address_of_one_that_is_on_its_way(site: Site) -> None:
    job = asleep(site)
    left = site.engines["left"].context.ledger
    (vm,) = left.vms(job)
    pack(site, job)
    assert vm.address in left.addresses()
    site.until(lambda: site.where(job) == {"right": S.RUNNING} and parcels(site) == [])
    assert vm.address in left.addresses(), "it is the other group's"


def test_a_vjob_that_sleeps_here_and_is_another_groups_by_the_leaders_word_is_not_resumed(site: Site) -> None:
    """So an engine whose ledger is a backup from before the vjob went away begins nothing with it."""
    job = asleep(site)
    site.engines["right"].close()
    engine = site.engines["left"]
    site.say(job, Place("right"))
    for vjob in engine.context.ledger.vjobs():
        if vjob.job_id != job:
            site.world.rms.finish(vjob.job_id)
    for _ in range(10):
        engine.tick()
    assert engine.state(job) is S.SLEEPING
    assert any("but it has begun here, and stays" in problem for problem in engine.cycle.report.problems)
    site.engines = {"left": engine}


def test_a_vjob_with_states_put_aside_or_of_an_array_is_not_handed_over(site: Site) -> None:
    job = asleep(site)
    engine = site.engines["left"]
    ledger = engine.context.ledger
    vjob = ledger.vjob(job)
    ledger.set_aside.open(vjob, [], "restart")
    site.tick("left")
    assert summary(site, "left")[1].can_go == frozenset()
    ledger.set_aside.drop(1)
    site.tick("left")
    assert summary(site, "left")[1].can_go == {job}
    ledger.update_vjob(job, display_id=f"{job}_1")
    assert engine.cycle._handing is not None
    assert engine.cycle._handing.can_go([ledger.vjob(job)]) == frozenset()
    ledger.update_vjob(job, display_id=str(job))


def test_the_way_back_to_one_engine_is_closed_while_a_vjob_is_on_its_way(site: Site) -> None:
    job = asleep(site)
    pack(site, job, give=False)
    ledger = site.engines["left"].context.ledger
    shared = site.directory / "groups" / "left"
    shared.mkdir(parents=True)
    ledger._db.execute("vacuum into ?", [str(shared / "ledger-7.sqlite")])
    assert str(job) in known_in([shared])["left"]


def test_another_state_of_it_on_a_node_of_the_other_group_is_left_alone(site: Site) -> None:
    job = asleep(site)
    site.wish(job, "right")
    site.tick("right")
    name = f"vjob{job}-0"
    files, ledger = site.world.files, site.engines["left"].context.ledger
    path, other = f"{site.store_of('right')}/{name}.state", SimulatedState(name, 1, 99)
    for node in HOSTS["right"]:
        files.put(node, path, other)
    site.tick("left")
    assert [files.get(node, path) for node in HOSTS["right"]] == [other, other]
    assert site.where(job) == {"left": S.SLEEPING}
    site.tick("left")
    assert ledger.parcels.ordered() == {job}, "what has arrived, if anything has, is for that group to remove"
    for node in HOSTS["right"]:
        files.drop(node, path)
    with pytest.raises(UnavailableError, match="n3 is not a host of group left"):
        site.engines["left"].context.nodes.send("n3", "n1", name, Digest(1, "a"), timeout_s=1)


def test_its_checkpoints_are_removed(site: Site) -> None:
    job = asleep(site)
    ledger = site.engines["left"].context.ledger
    ledger.checkpoints.intend(job, [CheckpointVM(f"vjob{job}-0", ("n1",))], [])
    (taking,) = ledger.checkpoints.in_state(CheckpointState.TAKING)
    ledger.checkpoints.is_whole(taking.id, taking.vms, taken=1.0, ran_s=1.0)
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    assert ledger.checkpoints.whole(job) is None


def test_a_vjob_with_a_disk_or_whose_giver_was_not_told_yet_stays(site: Site) -> None:
    job = asleep(site)
    engine = site.engines["left"]
    handing, ledger = engine.cycle._handing, engine.context.ledger
    assert handing is not None
    with ledger.transaction():
        ledger.parcels.take("abc", job, "right")
    assert handing.can_go(ledger.vjobs()) == frozenset()
    ledger.parcels.told("abc")
    assert handing.can_go(ledger.vjobs()) == {job}
    disk = Qcow2Image(kind="qcow2", base=Path("/images/debian.qcow2"), waits=False)
    handing._settings = engine.settings.model_copy(update={"image": {"default": disk}})
    assert handing.can_go(ledger.vjobs()) == frozenset()


def test_a_state_that_is_used_is_not_removed_by_another_groups_order(site: Site) -> None:
    job = asleep(site)
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING} and parcels(site) == [])
    put_to_sleep(site, job, "right")
    (vm,) = site.engines["right"].context.ledger.vms(job)
    left = site.engines["left"].context.ledger
    with left.transaction():
        left.parcels.pack(ParcelKind.ORDER, job, "right", {"files": [[vm.name, vm.image_node]]})
    site.until(lambda: left.parcels.packed() == [])
    assert any(vm.name in path for path in site.world.files.paths(vm.image_node))
