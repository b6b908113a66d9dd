"""Engines of two groups on one cluster: each sees and acts on its own only; a vjob is never two groups' (I1, I5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from scenarios.two_groups import HOSTS, Site

from rmsplugin.adapters.power.base import PowerState
from rmsplugin.adapters.rms.base import ROOM_NAME
from rmsplugin.engine.ledger.rows import OperationKind, StepState
from rmsplugin.engine.schedule.jobs import jobs_of
from rmsplugin.engine.schedule.programs import Programs
from rmsplugin.engine.serve.summary_view import summary_view
from rmsplugin.errors import OperationFailedError, RefusedError, UnavailableError
from rmsplugin.groups.given import Place, text_of
from rmsplugin.groups.giving import Heard
from rmsplugin.groups.told import heard
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.steps import PlannedStep

S = VJobState


@pytest.fixture
def site(directory: Path) -> Iterator[Site]:
    site = Site(directory)
    yield site
    site.close()


def full(site: Site, group: str) -> list[int]:
    """Vjobs that take all CPUs of a group."""
    jobs = [site.world.submit(vms=1, cpus=2) for _ in HOSTS[group]]
    for job in jobs:
        site.give(job, group)
    site.until(lambda: all(site.where(job) == {group: S.RUNNING} for job in jobs))
    return jobs


def test_each_group_runs_what_it_was_given_on_its_hosts(site: Site) -> None:
    left, right = site.world.submit(vms=2), site.world.submit(vms=2)
    site.give(left, "left")
    site.give(right, "right")
    site.until(lambda: (site.where(left), site.where(right)) == ({"left": S.RUNNING}, {"right": S.RUNNING}))
    for group, job in (("left", left), ("right", right)):
        vms = site.engines[group].context.ledger.vms(job)
        assert {vm.host for vm in vms} <= {*HOSTS[group]}


def test_a_job_that_nobody_was_given_waits(site: Site) -> None:
    job = site.world.submit(vms=1)
    for _ in range(5):
        site.tick()
    assert site.where(job) == {}
    assert site.world.rms.job(job).gated


def test_a_group_holds_rooms_on_its_own_hosts_only(site: Site) -> None:
    for _ in range(3):
        site.tick()
    rooms = [job.nodes for job in site.world.rms.snapshot().jobs if job.name == ROOM_NAME]
    assert sorted(rooms) == [("n1",), ("n2",), ("n3",), ("n4",)]
    for group, engine in site.engines.items():
        seen = engine.cycle.seen
        assert seen is not None
        assert set(seen.rooms.by_node) == set(seen.vms) == {*HOSTS[group]}
        assert seen.rooms.strange == ()
        assert engine.cycle.report.problems == []


def test_an_engine_refuses_to_ask_for_what_is_not_its_own(site: Site) -> None:
    job = site.world.submit(vms=1)
    site.give(job, "left")
    site.tick()
    context = site.engines["right"].context
    rooms = {job.nodes[0]: job.job_id for job in site.world.rms.snapshot().jobs if job.name == ROOM_NAME}
    for act in (context.rms.open_gate, context.rms.requeue, context.rms.cancel, context.rms.hold):
        with pytest.raises(RefusedError, match=f"job {job} is not of group right"):
            act(job)
    with pytest.raises(RefusedError, match="is not of group right"):
        context.rms.cancel(rooms["n1"])
    with pytest.raises(RefusedError, match="node n1 is not of group right"):
        context.rms.request_room("n1", "vmhosts", time_limit_s=600, time_min_s=600)
    with pytest.raises(UnavailableError, match="n1 is not a host of group right"):
        context.hypervisor.list_vms("n1")
    with pytest.raises(UnavailableError, match="n2 is not a host of group right"):
        context.hypervisor.migrate("n3", "n2", "vjob1-0")
    with pytest.raises(UnavailableError, match="n1 is not a host of group right"):
        context.nodes.drop_state("n1", "vjob1-0")
    context.rms.cancel(rooms["n3"])


def test_an_engine_refuses_to_switch_what_is_not_its_own(site: Site) -> None:
    context = site.engines["right"].context
    for act in (partial(context.rms.power_down, reason="idle"), context.rms.power_up, context.rms.repair_node):
        with pytest.raises(RefusedError, match="node n1 is not of group right"):
            act("n1")
    for order in (context.power.off, context.power.on, context.power.reading):
        with pytest.raises(UnavailableError, match="n1 is not a host of group right"):
            order("n1")
    assert not context.power.drives("n1")
    assert site.world.power.calls == []
    assert [call for call in site.world.rms.calls if "power" in call[0]] == []
    assert context.power.drives("n3")
    assert context.power.reading("n3").state is PowerState.ON
    context.rms.power_up("n3")
    assert ("power_up", "n3") in site.world.rms.calls


def test_the_elements_of_an_array_are_one_groups(site: Site) -> None:
    array = site.world.submit(vms=1, array=range(3))
    site.give(array, "right")
    ledger = site.engines["right"].context.ledger
    site.until(lambda: [vjob.state for vjob in ledger.vjobs()].count(S.RUNNING) == 3)
    assert {vjob.display_id.partition("_")[0] for vjob in ledger.vjobs()} == {str(array)}
    assert site.engines["left"].context.ledger.vjobs(ended=True) == []


def test_a_waiting_vjob_goes_to_the_group_that_has_room(site: Site) -> None:
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    assert site.where(job) == {"left": S.WAITING}
    site.wish(job, "right")
    site.until(lambda: site.where(job) == {"right": S.RUNNING})
    assert site.given.vjobs[job] == Place("right")
    assert site.engines["left"].context.ledger.given.released() == frozenset(), "it is another group's by now"


def test_an_array_of_which_nothing_has_begun_goes_as_a_whole(site: Site) -> None:
    full(site, "left")
    array = site.world.submit(vms=1, cpus=2, array=range(2))
    site.give(array, "left")
    site.tick()
    site.wish(array, "right")
    ledger = site.engines["right"].context.ledger
    site.until(lambda: [vjob.state for vjob in ledger.vjobs()].count(S.RUNNING) == 2)


def test_a_vjob_that_has_begun_is_not_given_up(site: Site) -> None:
    (job, _) = full(site, "left")
    site.wish(job, "right")
    for _ in range(5):
        site.tick()
        site.hand_on()
    assert site.where(job) == {"left": S.RUNNING}
    assert site.given.vjobs[job] == Place("left", "right")


def test_a_vjob_that_has_slept_is_not_given_up(site: Site) -> None:
    (job, _) = full(site, "left")
    engine = site.engines["left"]
    engine.context.ledger.update_vjob(job, script_started=True)
    vjob = engine.context.ledger.vjob(job)
    engine.placing.suspend(vjob, "asked", "root", resumes=False)
    site.until(lambda: site.where(job) == {"left": S.SLEEPING})
    site.wish(job, "right")
    for _ in range(5):
        site.tick()
        site.hand_on()
    assert site.where(job) == {"left": S.SLEEPING}


def test_a_vjob_that_was_started_once_is_not_given_up(site: Site) -> None:
    job = site.world.submit(vms=1)
    site.give(job, "left")
    site.world.hypervisor.fail_next("boot", OperationFailedError("boot fails"))
    engine = site.engines["left"]
    site.until(lambda: site.where(job) == {"left": S.WAITING} and engine.context.ledger.starts(job) == 1)
    site.wish(job, "right")
    site.tick("left")
    assert not any("internal error" in problem for problem in engine.cycle.report.problems)
    site.until(lambda: site.where(job) == {"left": S.RUNNING})


def test_a_vjob_that_is_about_to_begin_is_not_given_up(site: Site) -> None:
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    ledger = site.engines["left"].context.ledger
    plan = ledger.plans.add(ledger.plans.plans(1)[0], [PlannedStep(str(job), OperationKind.START, {}, ())])
    site.wish(job, "right")
    site.engines["left"].cycle.run()
    assert site.where(job) == {"left": S.WAITING}
    for step in ledger.plans.steps(plan):
        ledger.plans.step_ends(step.id, StepState.SKIPPED)
    site.tick("left")
    assert site.where(job) == {}


def test_a_vjob_of_which_a_vm_is_seen_is_not_given_up(site: Site) -> None:
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    hypervisor = site.world.hypervisor
    (guest,) = list(hypervisor.machines.vms["n1"].values())
    hypervisor.machines.vms["n1"][f"vjob{job}-0"] = guest  # of an engine whose ledger was lost
    site.wish(job, "right")
    site.engines["left"].cycle.run()
    assert site.where(job) == {"left": S.WAITING}
    assert not hypervisor.where(f"vjob{job}-0"), "nobody else would have ended it"
    site.tick("left")
    assert site.where(job) == {}


def test_a_wish_that_is_taken_back_leaves_the_vjob_where_it_is(site: Site) -> None:
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    site.wish(job, "right")
    site.tick("left")
    assert site.where(job) == {}
    site.wish(job, None)
    site.tick()
    assert site.where(job) == {"left": S.WAITING}
    assert site.engines["left"].context.ledger.given.released() == frozenset()


def test_a_vjob_that_the_leader_has_elsewhere_stays_if_it_has_begun_and_this_is_said(site: Site) -> None:
    (job, _) = full(site, "left")
    site.engines["right"].close()  # a mistake of the leader's: nobody may believe it
    engine = site.engines["left"]
    site.say(job, Place("right"))
    engine.tick()
    assert engine.state(job) is S.RUNNING
    assert (
        f"vjob {job}: the leader's word has it in group right, but it has begun here, and stays"
        in engine.cycle.report.problems
    )
    site.engines = {"left": engine}


def test_a_vjob_that_the_leader_has_elsewhere_goes_if_nothing_has_begun(site: Site) -> None:
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    site.say(job, Place("right"))
    site.tick("left")
    assert site.where(job) == {}


def test_no_older_word_is_followed_after_a_restart_and_nothing_is_given_up_for_it(site: Site) -> None:
    first = text_of(site.given)
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    site.files.write(site.epoch, first)
    engine = site.engines["left"]
    engine.start_engine()
    engine.tick()
    assert engine.territory.hosts == frozenset()
    assert any("was followed before" in problem for problem in engine.cycle.report.problems)
    assert site.where(job) == {"left": S.WAITING}
    site.files.write(site.epoch, text_of(site.given))
    engine.tick()
    assert engine.territory.hosts == {*HOSTS["left"]}


def test_without_the_leaders_word_the_word_before_is_followed(site: Site, directory: Path) -> None:
    (job, _) = full(site, "left")
    (directory / "site" / f"given-{site.epoch}.json").write_text("{}")
    site.tick()
    engine = site.engines["left"]
    assert engine.state(job) is S.RUNNING
    assert engine.territory.hosts == {*HOSTS["left"]}
    assert any("is of format None" in problem for problem in engine.cycle.report.problems)
    assert not engine.territory.news(), "it is not read again and again"
    site.files.write(site.epoch, text_of(site.given))
    assert engine.territory.news()
    site.tick()
    assert engine.cycle.report.problems == []


def test_a_new_leader_goes_on(site: Site) -> None:
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    site.wish(job, "right")
    site.tick("left")
    site.lead()
    site.until(lambda: site.where(job) == {"right": S.RUNNING})


def test_vms_of_two_groups_have_no_address_in_common(site: Site) -> None:
    jobs = {group: full(site, group) for group in HOSTS}
    taken = {
        group: {vm.address for job in jobs[group] for vm in site.engines[group].context.ledger.vms(job)}
        for group in HOSTS
    }
    assert len(taken["left"] | taken["right"]) == 4
    left = site.engines["left"]
    left.start_engine()
    assert taken["right"] <= left.context.ledger.addresses() and taken["left"] <= left.context.ledger.claims.mine()
    left.territory.remember_in(left.context.ledger)
    site.tick()
    assert site.where(jobs["left"][0]) == {"left": S.RUNNING}


def test_an_address_is_used_again_by_the_group_that_had_it(site: Site) -> None:
    (first, _) = full(site, "left")
    address = site.engines["left"].context.ledger.vms(first)[0].address
    full(site, "right")
    site.world.rms.finish(first)
    site.until(lambda: site.where(first) == {"left": S.TERMINATED})
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.until(lambda: site.where(job) == {"left": S.RUNNING})
    assert site.engines["left"].context.ledger.vms(job)[0].address == address


def summary(site: Site, group: str) -> tuple[int, Heard]:
    context, cycle = site.engines[group].context, site.engines[group].cycle
    return heard(summary_view(context.ledger, context.territory, context.epoch, cycle.deciding.groups))


def test_the_leader_is_told_of_the_groups_room_and_its_vjobs(site: Site) -> None:
    assert summary(site, "left")[1].summary.up == 0, "nothing was decided yet"
    full(site, "left")
    job, array = site.world.submit(vms=1, cpus=2), site.world.submit(vms=1, cpus=2, array=range(2))
    site.give(job, "left")
    site.give(array, "right")
    site.until(lambda: S.RUNNING in summary(site, "right")[1].vjobs.values())
    _, left = summary(site, "left")
    assert left.vjobs[job] is S.WAITING
    assert (left.summary.nodes, left.summary.up, left.summary.free.cpus) == (2, 2, 0)
    ledger = site.engines["right"].context.ledger
    begun = next(vjob for vjob in ledger.vjobs() if vjob.state is S.RUNNING)
    waits = {"display_id": f"{array}_7", "state": S.WAITING}
    for place, submitted in enumerate((begun.submitted - 1, begun.submitted + 1)):
        ledger.add_vjob(replace(begun, **{**waits, "job_id": 900 + place, "submitted": submitted}))
    assert summary(site, "right")[1].vjobs == {array: S.RUNNING}, "the array, not its elements"
    site.wish(job, "right")
    site.tick("left")
    _, left = summary(site, "left")
    assert (left.seen, left.released) == (site.given.version, {job})
    assert job not in left.vjobs


def test_a_word_counts_as_read_when_all_that_can_go_has_gone(site: Site) -> None:
    full(site, "left")
    job = site.world.submit(vms=1, cpus=2)
    site.give(job, "left")
    site.tick()
    before = site.given.version
    site.wish(job, "right")
    engine = site.engines["left"]
    engine.territory.hear()  # as at the beginning of a cycle, which takes seconds
    _, left = summary(site, "left")
    assert (left.seen, left.released) == (before, frozenset()), "it may release the vjob a moment later"
    engine.tick()
    _, left = summary(site, "left")
    assert (left.seen, left.released) == (site.given.version, {job})


def test_the_engine_of_all_groups_tells_no_leader(site: Site) -> None:
    with pytest.raises(RefusedError, match="this engine has all groups"):
        summary_view(site.world.context.ledger, None, 1, None)


class Mute(Programs):
    """Has no command that answers."""

    def run(self, command: str, *words: str, timeout_s: float, timezone: str = "") -> str:
        raise OperationFailedError(f"`{command}` was run")


def test_a_group_has_backups_of_its_own_and_the_first_one_does_once_what_is_for_all(
    site: Site, directory: Path
) -> None:
    for group, engine in site.engines.items():
        section = engine.settings.engine.model_copy(update={"state_dir": directory})
        schedule = engine.settings.schedule.model_copy(update={"report": "0 6 * * *", "report_to": ("ops@x",)})
        settings = engine.settings.model_copy(update={"engine": section, "schedule": schedule})
        settings._territory = group
        context = replace(engine.context, settings=settings)
        jobs = {job.name: job for job in jobs_of(context, Mute(directory), engine.cycle.gate, lambda: None)}
        jobs["ledger-backup"].act()
        assert len(list((directory / "backups" / "groups" / group).iterdir())) == 1
        if group == "left":
            with pytest.raises(OperationFailedError, match="`report` was run"):
                jobs["report"].act()
        else:
            for name in ("report", "calibration"):
                assert jobs[name].act() == "the engine of group left does it, for all groups"
