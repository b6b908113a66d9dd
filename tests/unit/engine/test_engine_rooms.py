"""Rooms: how they are told in Slurm's list of jobs, and which are requested and given back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from rmsplugin.adapters.rms.base import (
    ROOM_NAME,
    JobState,
    RmsJob,
    RmsNode,
    RmsPartition,
    RmsReservation,
    RmsSnapshot,
)
from rmsplugin.engine.observe.rooms import HostUse, Room, RoomState, find_rooms, plan_rooms
from rmsplugin.settings import Settings
from rmsplugin.settings.slurm import Hosts

NOW = 1_000_000.0
SETTINGS = Settings.model_validate(
    {
        "slurm": {"partitions": ["vjob"]},
        "partition": {"vjob": {"hosts": "vmhosts"}},
        "network": {"pool": "10.0.0.10-10.0.0.20", "prefix_length": 24},
        "image": {"default": {"kind": "kernel", "kernel": "/vmlinuz", "initrd": "/initrd"}},
    }
)
IDLE = RmsNode("n1", 4, 4096, up=True, draining=False, state="IDLE")


def job(job_id: int = 5, **changes: Any) -> RmsJob:
    room = RmsJob(
        *(str(job_id), job_id, "vmhosts", "slurm", 64030, ROOM_NAME, JobState.RUNNING, "RUNNING"),
        reason="None",
        held=False,
        gated=False,
        completing=False,
        cpus=4,
        memory_mib=4096,
        priority=1,
        submit_time=int(NOW) - 600,
        eligible=False,
        nodes=("n1",),
        batch_host="n1",
        restarts=0,
        start_time=int(NOW) - 500,
        end_time=int(NOW) + 80000,
    )
    return replace(room, **changes)


def snapshot(*jobs: RmsJob, node: RmsNode = IDLE, reservations: tuple[RmsReservation, ...] = ()) -> RmsSnapshot:
    return RmsSnapshot(
        jobs,
        nodes={"n1": node, "n2": replace(node, name="n2")},
        partitions={"vmhosts": RmsPartition("vmhosts", True, ("n1", "n2"), "CANCEL", 1, grace_time_s=120)},
        reservations={each.name: each for each in reservations},
    )


def reservation(start: float, users: tuple[str, ...] = ("root",)) -> RmsReservation:
    return RmsReservation("upgrade", int(start), int(start) + 3600, ("n1",), {}, users, ("MAINT",))


def found(*jobs: RmsJob, **world: Any) -> Room:
    return find_rooms(SETTINGS, snapshot(*jobs, **world), NOW).by_node["n1"]


def test_a_running_room_is_held_until_its_time_is_up() -> None:
    assert found(job()) == Room("n1", "vmhosts", 5, RoomState.HELD, NOW - 500, NOW + 80000)


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({"state": JobState.PENDING, "reason": "Resources"}, RoomState.REQUESTED, "Resources"),
        ({"state": JobState.CONFIGURING}, RoomState.STARTING, "prepares"),
        ({"preempt_time": int(NOW) - 2}, RoomState.LEAVING, "higher tier"),
        ({"end_time": int(NOW) + 200}, RoomState.LEAVING, "time is up"),
    ],
)
def test_what_slurm_says_of_the_job_is_the_rooms_state(changes: dict[str, Any], state: RoomState, reason: str) -> None:
    room = found(job(**changes))
    assert room.state is state
    assert reason in room.reason


def test_a_preempted_room_lasts_for_the_grace_time() -> None:
    assert found(job(preempt_time=int(NOW) - 2)).until == NOW - 2 + 120


def test_a_drained_node_is_left_with_the_admins_reason() -> None:
    room = found(job(), node=replace(IDLE, draining=True, reason="new disk"))
    assert (room.state, room.reason) == (RoomState.LEAVING, "it is being drained: new disk")


@pytest.mark.parametrize(
    ("start_s", "users", "leaving"),
    [(200, ("root",), True), (-10, ("root",), True), (4000, ("root",), False), (200, ("slurm",), False)],
    ids=["soon", "now", "later", "ours"],
)
def test_a_reservation_of_others_is_left_in_time(start_s: float, users: tuple[str, ...], leaving: bool) -> None:
    room = found(job(), reservations=(reservation(NOW + start_s, users),))
    assert (room.state is RoomState.LEAVING) is leaving


@pytest.mark.parametrize(
    "changes",
    [{"partition": "plain"}, {"nodes": ()}, {"nodes": ("n9",)}, {"nodes": ("n1", "n2")}],
    ids=["another partition", "no node", "unknown node", "two nodes"],
)
def test_a_job_of_ours_that_holds_no_vm_host_is_strange(changes: dict[str, Any]) -> None:
    rooms = find_rooms(SETTINGS, snapshot(job(**changes)), NOW)
    assert (dict(rooms.by_node), [each.job_id for each in rooms.strange]) == ({}, [5])


def test_a_second_request_for_a_node_is_strange_and_the_one_that_runs_stays() -> None:
    rooms = find_rooms(SETTINGS, snapshot(job(4, state=JobState.PENDING), job(5)), NOW)
    assert rooms.by_node["n1"].job_id == 5
    assert [each.job_id for each in rooms.strange] == [4]


@pytest.mark.parametrize(
    "changes", [{"user": "alice"}, {"name": "room"}, {"state": JobState.ENDED}, {"completing": True}]
)
def test_jobs_of_others_and_ended_ones_are_neither_rooms_nor_strange(changes: dict[str, Any]) -> None:
    rooms = find_rooms(SETTINGS, snapshot(job(**changes)), NOW)
    assert (dict(rooms.by_node), rooms.strange) == ({}, ())


# -- which rooms to have -----------------------------------------------------------------------------------------------

HOLD = Hosts.model_validate({"rooms": "hold"})


def elastic(**more: Any) -> Hosts:
    return Hosts.model_validate({"rooms": "elastic", "room_idle_s": 60, **more})


def use(state: str = "IDLE", **changes: Any) -> HostUse:
    node = RmsNode("n", 4, 4096, up=changes.pop("up", True), draining=changes.pop("draining", False), state=state)
    return replace(HostUse(node, occupied=False, idle_s=0.0, wanted=False, resting=False), **changes)


def held(node: str, state: RoomState = RoomState.HELD, reason: str = "") -> Room:
    return Room(node, "vmhosts", 1, state, NOW, math.inf, reason)


def test_dedicated_hosts_are_held_all_of_them_busy_ones_too() -> None:
    uses = {"n1": use(), "n2": use("ALLOCATED"), "n3": use()}
    assert plan_rooms(HOLD, {"n3": held("n3")}, uses).request == ("n1", "n2")


@pytest.mark.parametrize("changes", [{"up": False}, {"draining": True}, {"resting": True}])
@pytest.mark.parametrize("hosts", [HOLD, elastic(rooms_min=1)], ids=["hold", "elastic"])
def test_a_node_that_is_down_drained_or_rests_is_not_requested(hosts: Hosts, changes: dict[str, bool]) -> None:
    assert plan_rooms(hosts, {}, {"n1": use(wanted=True, **changes)}).request == ()


def test_an_elastic_partition_requests_idle_nodes_that_are_wanted() -> None:
    uses = {"n1": use(wanted=True), "n2": use("MIXED", wanted=True), "n3": use()}
    assert plan_rooms(elastic(), {}, uses).request == ("n1",)


def test_an_idle_node_with_vms_but_without_a_room_is_requested() -> None:
    assert plan_rooms(elastic(), {}, {"n1": use(occupied=True)}).request == ("n1",)


def test_rooms_have_a_least_and_a_greatest_number() -> None:
    uses = {name: use(wanted=True) for name in ("n1", "n2", "n3")}
    assert plan_rooms(elastic(rooms_max=2), {}, uses).request == ("n1", "n2")
    assert plan_rooms(elastic(rooms_max=0), {}, uses).request == ()
    assert plan_rooms(elastic(rooms_min=2), {}, {name: use() for name in uses}).request == ("n1", "n2")


def test_a_room_without_vms_is_given_back_after_its_time_unless_it_is_one_of_the_least_or_wanted() -> None:
    uses = {
        "n1": use(idle_s=61.0),
        "n2": use(idle_s=59.0),
        "n3": use(idle_s=99.0, occupied=True),
        "n4": use(idle_s=99.0, wanted=True),
        "n5": use(idle_s=80.0),
    }
    rooms = {name: held(name) for name in uses}
    assert set(plan_rooms(elastic(), rooms, uses).give_back) == {"n1", "n5"}
    assert set(plan_rooms(elastic(rooms_min=4), rooms, uses).give_back) == {"n5"}
    assert plan_rooms(elastic(rooms_min=5), rooms, uses).give_back == {}
    assert plan_rooms(HOLD, rooms, uses).give_back == {}


def test_a_room_that_is_still_coming_is_not_idle_but_one_that_slurm_leaves_pending_is_withdrawn() -> None:
    rooms = {"n1": held("n1", RoomState.STARTING), "n2": held("n2", RoomState.REQUESTED)}
    soon = {name: use(idle_s=299.0) for name in rooms}
    assert plan_rooms(elastic(), rooms, soon).give_back == {}
    late = {name: use(idle_s=301.0) for name in rooms}
    assert set(plan_rooms(elastic(), rooms, late).give_back) == {"n2"}
    assert plan_rooms(elastic(room_idle_s=600), rooms, late).give_back == {}


@pytest.mark.parametrize("hosts", [HOLD, elastic(rooms_min=1)], ids=["hold", "elastic"])
def test_a_leaving_room_is_given_back_as_soon_as_nothing_is_there(hosts: Hosts) -> None:
    rooms = {"n1": held("n1", RoomState.LEAVING, "it is being drained: x")}
    assert plan_rooms(hosts, rooms, {"n1": use(occupied=True)}).give_back == {}
    assert plan_rooms(hosts, rooms, {"n1": use(draining=True)}).give_back == {"n1": "it is being drained: x"}


def test_a_request_whose_node_was_taken_meanwhile_is_withdrawn() -> None:
    rooms = {"n1": held("n1", RoomState.REQUESTED), "n2": held("n2", RoomState.REQUESTED)}
    plan = plan_rooms(elastic(), rooms, {"n1": use("ALLOCATED", wanted=True), "n2": use(wanted=True)})
    assert set(plan.give_back) == {"n1"}


def test_a_room_whose_prolog_found_a_fault_is_given_back() -> None:
    plan = plan_rooms(HOLD, {"n1": held("n1")}, {"n1": use(fault="the store /store is not there")})
    assert plan.give_back == {"n1": "the store /store is not there"}
