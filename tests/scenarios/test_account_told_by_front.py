"""Who a vjob's user is: as the controller has it, unless the front's prolog knows otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scenarios.world import World

from rmsplugin.accounts import Account, Group
from rmsplugin.adapters.guests.base import Guests
from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.context.slurm_facts import SeenSlurm
from rmsplugin.engine.execute.identity import account_of, guest_config, take_account
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import Mount


def as_on_front(world: World, job: int) -> Account:
    """The account of the job's user, with a group that the controller does not know."""
    account = account_of(world.context.ledger.vjob(job), None)
    return account._replace(groups=(*account.groups, Group("proj", 54321)))


def parts(world: World) -> tuple[Settings, Ledger, Guests, SeenSlurm, JobReader]:
    """What taking an account needs of the engine."""
    context = world.context
    return context.settings, context.ledger, context.guests, context.slurm, context.jobs


@pytest.fixture
def groups(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The groups that guests were given, at each configuration."""
    given: list[tuple[str, ...]] = []

    def configure(_address: str, _host_key: str, config: Any, **_: Any) -> None:
        given.append(tuple(group.name for group in config.account.groups))

    monkeypatch.setattr(world.guests, "configure", configure)
    return given


@pytest.fixture
def places(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where guests were told that the front has the script, at each configuration."""
    told: list[str] = []

    def configure(_address: str, _host_key: str, config: Any, **_: Any) -> None:
        lines = str(config.files()["vjob"]).splitlines()
        told.extend(line.removeprefix("script=") for line in lines if line.startswith("script="))

    monkeypatch.setattr(world.guests, "configure", configure)
    return told


def test_vms_are_told_where_the_front_has_the_script(world: World, places: list[str]) -> None:
    job = world.submit(vms=1)
    world.until(job, VJobState.RUNNING)
    assert take_account(*parts(world), job, as_on_front(world, job))
    assert places == [f"/var/spool/slurmd/job{job:05}/slurm_script"] * 2


def test_a_place_with_the_fronts_name_is_told_after_the_allocation(world: World, places: list[str]) -> None:
    world.rms.spool_dir = "/var/spool/slurmd.%n"
    job = world.submit(vms=1)
    world.until(job, VJobState.RUNNING)
    front = world.rms.job(job).batch_host
    assert front
    assert places == ["", f"/var/spool/slurmd.{front}/job{job:05}/slurm_script"]


def test_vms_that_run_follow_the_front_once(world: World, groups: list[tuple[str, ...]]) -> None:
    job = world.submit(vms=2)
    world.until(job, VJobState.RUNNING)
    told = as_on_front(world, job)
    before = list(groups)
    assert take_account(*parts(world), job, told)
    assert [names[-1] for names in groups[len(before) :]] == ["proj", "proj"]
    assert not take_account(*parts(world), job, told)
    assert len(groups) == len(before) + 2


def test_the_same_rights_cost_nothing(world: World, groups: list[tuple[str, ...]]) -> None:
    job = world.submit(vms=1)
    world.until(job, VJobState.RUNNING)
    before = len(groups)
    told = account_of(world.context.ledger.vjob(job), None)._replace(gecos="another")
    assert not take_account(*parts(world), job, told)
    assert len(groups) == before


def test_what_a_vm_was_not_given_is_not_taken_for_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.submit(vms=1)
    world.until(job, VJobState.RUNNING)
    told = as_on_front(world, job)

    def silent(*_: Any, **__: Any) -> None:
        raise UnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.guests, "configure", silent)
        with pytest.raises(UnavailableError):
            take_account(*parts(world), job, told)
    assert take_account(*parts(world), job, told)


def test_a_front_that_tells_while_vms_boot_is_heard_before_the_vjob_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, ...]] = []
    job = 0

    def configure(_address: str, _host_key: str, config: Any, **_: Any) -> None:
        given.append(tuple(group.name for group in config.account.groups))
        if len(given) == 1:
            assert take_account(*parts(world), config.job_id, as_on_front(world, config.job_id))

    monkeypatch.setattr(world.guests, "configure", configure)
    job = world.submit(vms=1)
    world.until(job, VJobState.RUNNING)
    assert given[0][-1] != "proj"
    assert given[-1][-1] == "proj"
    assert len(given) == 2


def test_another_users_account_is_refused(world: World) -> None:
    job = world.submit(vms=1)
    world.until(job, VJobState.RUNNING)
    with pytest.raises(RefusedError, match="belongs to uid"):
        take_account(*parts(world), job, as_on_front(world, job)._replace(uid=4242))


def test_a_vm_mounts_the_home_of_its_user_where_the_settings_name_it(world: World) -> None:
    job = world.submit(vms=1)
    world.until(job, VJobState.RUNNING)
    context = world.context
    mounts = (
        Mount(source="10.0.0.1:/export/{user}", target="{home}"),
        Mount(source="10.0.0.1:/proj", target="/proj", options="vers=4.1,suid"),
    )
    guest = context.settings.guest.model_copy(update={"mounts": mounts})
    settings = context.settings.model_copy(update={"guest": guest})
    vjob = context.ledger.vjob(job)
    account = account_of(vjob, None)._replace(name="eve", home="/home/physics/eve")
    config = guest_config(
        replace(context, settings=settings).settings,
        replace(context, settings=settings).ledger,
        replace(context, settings=settings).slurm,
        vjob,
        context.ledger.vms(job)[0],
        account,
        "front1",
    )
    assert str(config.files()["mounts"]).splitlines() == [
        "10.0.0.1:/export/eve /home/physics/eve nfs vers=4.2,nosuid,nodev",
        "10.0.0.1:/proj /proj nfs vers=4.1,suid,nodev",
    ]
