"""Engines of two groups switch nodes: each its own ones only, whoever is killed, handed over, or gets other hosts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenarios.test_nodes_switched_off import WATTS
from scenarios.two_groups import HOSTS, Site
from scenarios.world import spread

from rmsplugin.engine.ledger.power_book import SwitchState
from rmsplugin.engine.serve.views import power_sentence
from rmsplugin.groups.given import text_of
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.power import PowerWatts

S = VJobState
OFF = SwitchState.OFF
NODES = (*HOSTS["left"], *HOSTS["right"])
#: Of the instants of a life CI tries so many.
SAMPLE = 16


def make_site(directory: Path, *, objective: str = "nodes", **power: Any) -> Site:
    """A site whose groups' engines switch nodes."""
    site = Site(directory, is_parted=False, rooms="elastic", room_idle_s=10)
    world = site.world
    world.rms.powering.saving = replace(world.rms.powering.saving, resume_timeout_s=300)
    world.resumed = []
    world.rms.powering.when_resumed = world.resumed.append
    for node in NODES:
        world.rms.register(node, world.wall() - 1000)
    classes = (PowerWatts.model_validate(WATTS),)
    settings = world.settings.power.model_copy(update={"switch": True, "classes": classes, **power})
    planning = world.settings.planning.model_copy(update={"objective": objective})
    world.settings = world.settings.model_copy(update={"power": settings, "planning": planning})
    for group in HOSTS:
        site.begin(group, directory / group / "ledger.sqlite")
    return site


@pytest.fixture
def site(directory: Path) -> Iterator[Site]:
    site = make_site(directory)
    yield site
    site.close()


def states(site: Site, group: str) -> dict[str, SwitchState]:
    return {each.node: each.state for each in site.engines[group].context.ledger.power.switches().values()}


def are_off(site: Site, group: str, *nodes: str) -> bool:
    """Whether these nodes, and no others, are off to the engine of the group; and whether they are."""
    bmcs = site.world.power.bmcs
    return states(site, group) == dict.fromkeys(nodes, OFF) and not any(bmcs[node].on for node in nodes)


def all_off(site: Site) -> bool:
    return all(are_off(site, group, *hosts) for group, hosts in HOSTS.items())


def orders(site: Site, what: str) -> list[str]:
    """The nodes whose BMCs were given this order, in the order of time."""
    return [node for order, node in site.world.power.calls if order == what]


def tick_until(site: Site, enough: Callable[[], bool], ticks: int = 200, seconds: float = 10.0) -> None:
    for _ in range(ticks):
        tick(site, seconds)
        if not any(engine.life.dead for engine in site.engines.values()) and enough():
            return
    raise AssertionError(
        f"never: {[(states(site, each), engine.cycle.report) for each, engine in site.engines.items()]}"
    )


def tick(site: Site, seconds: float = 10.0) -> None:
    """One cycle of each engine; Slurm's ResumeProgram switches on what Slurm powers up."""
    site.tick()
    site.hand_on()
    site.pass_time(seconds)
    while site.world.resumed:
        node = site.world.resumed.pop(0)
        if not site.world.power.bmcs[node].on:
            site.world.power.on(node)


def run_in(site: Site, group: str, **options: Any) -> int:
    """A vjob that runs in a group, whose script has started."""
    job, engine = site.world.submit(**{"vms": 1, **options}), site.engines[group]
    site.give(job, group)
    tick_until(site, lambda: site.where(job) == {group: S.RUNNING})
    engine.alive(lambda: engine.context.ledger.update_vjob(job, script_started=True))
    return job


def hand_over(site: Site, group: str) -> None:
    """Another manager's engine leads the group: it begins with the newest ledger, under a name of its own."""
    before = site.engines[group]
    before.close()
    place = before._ledger_path.with_name("ledger-next.sqlite")
    shutil.copy(before._ledger_path, place)
    site.begin(group, place)


def test_each_group_switches_its_own_nodes_off_and_only_the_one_that_needs_one_has_it_on(site: Site) -> None:
    tick_until(site, lambda: all_off(site))
    assert sorted(orders(site, "off")) == sorted(NODES), "each once"
    job = run_in(site, "right")
    assert site.engines["right"].context.ledger.vms(job)[0].host == "n3"
    assert orders(site, "on") == ["n3"]
    assert are_off(site, "left", *HOSTS["left"]) and are_off(site, "right", "n4")


def test_a_native_job_has_its_node_from_the_group_whose_node_it_is(site: Site) -> None:
    tick_until(site, lambda: all_off(site))
    job = site.world.rms.submit(partition="plain", node="n2", cpus=2, memory_mib=1024, time_limit_s=3600)
    tick_until(site, lambda: states(site, "left") == {"n1": OFF})
    assert site.world.rms.job(job).nodes == ("n2",)
    assert are_off(site, "right", *HOSTS["right"])
    assert site.engines["right"].context.ledger.power.acts()[-1].node in HOSTS["right"]


def test_each_group_keeps_a_reserve_of_its_own(directory: Path) -> None:
    site = make_site(directory, reserve=1)
    tick_until(site, lambda: are_off(site, "left", "n2") and are_off(site, "right", "n4"))
    for _ in range(30):
        tick(site, 20.0)
    assert sorted(orders(site, "off")) == ["n2", "n4"]
    site.close()


def test_each_group_empties_its_own_nodes_while_the_other_one_does(directory: Path) -> None:
    site = make_site(directory, objective="energy", underload=0.5)
    jobs = {group: [run_in(site, group) for _ in range(4)] for group in HOSTS}
    for engine in site.engines.values():  # as after days in which nodes had nothing for long
        engine.context.ledger.power.note_idle({}, [], {"*": 5000.0})
    for _ in range(30):
        tick(site, 50.0)
    host = {job: site.engines[group].context.ledger.vms(job)[0].host for group in HOSTS for job in jobs[group]}
    for group, hosts in HOSTS.items():
        assert [sum(host[job] == node for job in jobs[group]) for node in hosts] == [2, 2]
        for node in hosts:  # one of the two on each
            site.world.rms.finish(next(job for job in jobs[group] if host[job] == node))
    tick_until(site, lambda: all(list(states(site, group).values()) == [OFF] for group in HOSTS))
    moved = [call for call in site.world.hypervisor.calls if call[0] == "migrate"]
    assert len(moved) == len(HOSTS)
    for group, hosts in HOSTS.items():
        (off,) = states(site, group)
        left = [job for job in jobs[group] if site.where(job) == {group: S.RUNNING}]
        assert {site.engines[group].context.ledger.vms(job)[0].host for job in left} == {*hosts} - {off}
    site.close()


def test_the_next_engine_of_a_group_goes_on_with_the_nodes_that_are_off(site: Site) -> None:
    tick_until(site, lambda: all_off(site))
    hand_over(site, "right")
    for _ in range(5):
        tick(site)
    assert all_off(site)
    job = run_in(site, "right")
    assert site.engines["right"].context.ledger.vms(job)[0].host == "n3"
    assert (sorted(orders(site, "off")), orders(site, "on")) == (sorted(NODES), ["n3"])


@pytest.mark.parametrize("moment", [SwitchState.GOING_OFF, SwitchState.COMING_ON])
def test_a_group_that_is_handed_over_in_the_middle_of_a_switch_goes_on_with_it(site: Site, moment: SwitchState) -> None:
    if moment is SwitchState.COMING_ON:
        tick_until(site, lambda: all_off(site))
        job = site.world.submit(vms=1)
        site.give(job, "right")
    tick_until(site, lambda: states(site, "right").get("n3") is moment, seconds=2.0, ticks=400)
    hand_over(site, "right")
    if moment is SwitchState.GOING_OFF:
        tick_until(site, lambda: all_off(site))
        assert (sorted(orders(site, "off")), orders(site, "on")) == (sorted(NODES), [])
    else:
        tick_until(site, lambda: site.where(job) == {"right": S.RUNNING})
        assert (orders(site, "off").count("n3"), orders(site, "on")) == (1, ["n3"])
        assert are_off(site, "left", *HOSTS["left"])


def live_off_and_on(site: Site, group: str, kill_at: int | None) -> int:
    """All nodes go off, and one of each group comes on; the engine of a group is killed. Returns its instants."""
    engine = site.engines[group]
    engine.start_engine(kill_at)
    life = engine.life
    tick_until(site, lambda: all_off(site))
    jobs = {name: site.world.submit(vms=1, cpus=2) for name in HOSTS}
    for name, job in jobs.items():
        site.give(job, name)
    tick_until(site, lambda: all(site.where(job) == {name: S.RUNNING} for name, job in jobs.items()))
    tick_until(site, lambda: are_off(site, "left", "n2") and are_off(site, "right", "n4"))
    assert sorted(orders(site, "off")) == sorted(NODES), "no node is switched off twice"
    assert [each.context.ledger.vjob(jobs[name]).losses for name, each in site.engines.items()] == [0, 0]
    return life.instants


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_going_off_and_coming_on_beside_another_group(directory: Path, whole: bool) -> None:
    def run(name: str, kill_at: int | None) -> int:
        (directory / name).mkdir()
        site = make_site(directory / name)
        try:
            return live_off_and_on(site, "right", kill_at)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {kill_at}: {error}") from error
        finally:
            site.close()

    total = run("0", None)
    assert total > 40
    for instant in spread(total, total if whole else SAMPLE):
        run(str(instant), instant)


def give_to_right(site: Site, monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    """The settings have changed: a host of the left group is one of the right group from now on."""
    monkeypatch.setitem(HOSTS, "left", tuple(each for each in HOSTS["left"] if each != node))
    monkeypatch.setitem(HOSTS, "right", (node, *HOSTS["right"]))
    site.given = site.given.next(groups=HOSTS)
    site.files.write(site.epoch, text_of(site.given))


def fill(site: Site, group: str) -> list[int]:
    """Vjobs that need all nodes of a group."""
    jobs = [site.world.submit(vms=1, cpus=2) for _ in HOSTS[group]]
    for job in jobs:
        site.give(job, group)
    tick_until(site, lambda: all(site.where(job) == {group: S.RUNNING} for job in jobs), ticks=400)
    return jobs


def test_a_node_that_is_off_and_goes_to_another_group_comes_on_for_a_vjob_there(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick_until(site, lambda: all_off(site))
    give_to_right(site, monkeypatch, "n2")
    tick_until(site, lambda: states(site, "right").get("n2") is OFF)
    assert power_sentence(site.engines["left"].context.ledger, site.engines["left"].cycle.seen) == (
        "nodes switched off: n1"
    )
    assert (sorted(orders(site, "off")), orders(site, "on")) == (sorted(NODES), [])
    fill(site, "right")
    assert sorted(orders(site, "on")) == ["n2", "n3", "n4"]
    assert not site.world.power.bmcs["n1"].on
    assert site.engines["right"].cycle.report.problems == []


def test_a_node_that_goes_to_another_group_while_it_goes_off_is_not_forgotten(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm was told, and nobody has ordered the BMC yet."""

    def is_told() -> bool:
        switch = site.engines["left"].context.ledger.power.switches().get("n2")
        return switch is not None and switch.told > 0

    tick_until(site, is_told, seconds=2.0, ticks=400)
    assert ("off", "n2") not in site.world.power.calls
    give_to_right(site, monkeypatch, "n2")
    tick_until(site, lambda: "n2" in states(site, "right"))
    assert states(site, "right")["n2"] is SwitchState.FAILED and site.world.power.bmcs["n2"].on
    fill(site, "right")
    assert "n2" not in states(site, "right")
    assert not [each for each in site.engines["left"].cycle.report.problems if "n2" in each]


def test_one_engine_that_goes_on_after_groups_finds_the_nodes_that_are_off(site: Site) -> None:
    tick_until(site, lambda: all_off(site))
    for engine in site.engines.values():
        engine.close()
    site.engines = {}
    world = site.world
    world.start_engine()  # with a ledger that knows nothing of what groups have done

    def off() -> dict[str, SwitchState]:
        return {each.node: each.state for each in world.context.ledger.power.switches().values()}

    for _ in range(10):
        world.tick(10.0)
    assert off() == dict.fromkeys(NODES, OFF)
    job = world.submit(vms=1)
    for _ in range(60):
        world.tick(10.0)
    assert world.state(job) is S.RUNNING
    assert off() == dict.fromkeys(NODES[1:], OFF)
    assert sorted(orders(site, "off")) == sorted(NODES), "none is switched off twice"
