"""What the processes of vjobs have used: kept by the engine, told to their owners, shown with seff's lines."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.served import ME, Served

from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.simulated.guests import SimulatedGuests
from rmsplugin.cli.live.usage import clock, lines_of
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.errors import ForbiddenError, NotFoundError
from rmsplugin.model.vjob import VJobState as S

NOBODY = 65534

USED = Used(9_000_000, 8_000_000, 1_000_000, 80 << 20, 120 << 20, 3 << 20, 5 << 20, 300 << 10)
SHOWN = """\
Job ID: 12_3
Cluster: minicluster
User/Group: alice/users
State: FAILED (exit code 3)
Nodes: 2
Cores per node: 4
CPU Utilized: 00:01:30
CPU Efficiency: 11.25% of 00:13:20 core-walltime
Job Wall-clock time: 00:01:40
Memory Utilized: 150.00 MB (the most in one VM: 80.00 MB)
Memory Efficiency: 29.30% of 512.00 MB (256.00 MB/node)
Disk Read: 2.00 GB
Disk Written: 0.50 MB""".splitlines()


@pytest.fixture
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as name:
        made = Served(Path(name))
        try:
            yield made
        finally:
            made.close()


def guests(served: Served) -> SimulatedGuests:
    return served.world.guests


def running(served: Served, job_id: int, used: Used | None, **changes: object) -> None:
    served.add_vjob(job_id, ME, S.RUNNING, script_started=True, state_since=served.context.clock.now(), **changes)
    (vm,) = served.ledger.vms(job_id)
    guests(served).add(vm.address, vm.host_key_public)
    guests(served).guests[vm.address].used = used


def test_a_running_vjob_is_asked_and_what_it_said_is_kept_when_it_falls_silent(served: Served) -> None:
    running(served, 12, USED)
    status, answer = served.ask("GET", "/v1/jobs/12/usage")
    (usage,) = answer["usage"]
    assert (status, usage["cpu_s"], usage["user_s"], usage["memory_used_mib"]) == (200, 9.0, 8.0, 80.0)
    assert (usage["read_mib"], usage["written_mib"], usage["memory_with_caches_mib"]) == (3.0, 5.0, 120.0)
    assert usage["memory_efficiency"] == round(80 / 256, 4)
    (vm,) = served.ledger.vms(12)
    guests(served).remove(vm.address)
    assert served.ask("GET", "/v1/jobs/12/usage")[1]["usage"][0]["cpu_s"] == 9.0


def test_of_a_vjob_whose_guest_does_not_count_nothing_is_known(served: Served) -> None:
    running(served, 12, None)
    (usage,) = served.ask("GET", "/v1/jobs/12/usage")[1]["usage"]
    assert (usage["cpu_s"], usage["memory_used_mib"], usage["counted"]) == (None, None, None)
    assert "CPU Utilized: not known" in lines_of(usage, "")


def test_all_elements_of_an_array_are_told_and_a_name_that_only_begins_alike_is_not(served: Served) -> None:
    for job_id, name in ((13, "12_0"), (14, "12_1"), (12, "12_2"), (120, "120_0")):
        running(served, job_id, USED, display_id=name)
    told = served.ask("GET", "/v1/jobs/12/usage")[1]["usage"]
    assert [each["display_id"] for each in told] == ["12_0", "12_1", "12_2"]
    assert [each["display_id"] for each in served.ask("GET", "/v1/jobs/12_1/usage")[1]["usage"]] == ["12_1"]


def test_what_does_not_exist_is_404(served: Served) -> None:
    assert served.ask("GET", "/v1/jobs/99/usage")[0] == 404


def test_what_is_anothers_is_not_told(served: Served) -> None:
    running(served, 12, USED)
    world = served.world
    requests = Requests(served.context, world.executor, world.placing, world.cycle, lambda: None)
    with pytest.raises(NotFoundError, match="no vjob 12"):
        requests.usage(NOBODY, "12")  # before the first look nobody knows what Slurm keeps private
    world.cycle.seen = world.cycle._observe()
    with pytest.raises(ForbiddenError, match="belongs to"):
        requests.usage(NOBODY, "12")
    assert served.ledger.usage.of_vjob(12) == [], "nor is its guest asked"


def test_a_guest_with_less_memory_than_was_asked_for_is_an_event_that_says_how_much(served: Served) -> None:
    running(served, 12, replace(USED, available_kib=200 << 10))
    for _ in range(2):
        served.ask("GET", "/v1/jobs/12/usage")
    (event,) = [each for each in served.ledger.events() if each.kind == "memory-short"]
    assert re.search(r"200 MiB of the 256 .* \[image.default\] has to be larger by 56", event.message)


def test_the_ending_is_told_as_slurm_tells_it(served: Served) -> None:
    running(served, 12, USED)
    assert served.ask("POST", "/v1/jobs/12/finished", {"exit_code": 3, "signal": 0})[0] == 200
    (usage,) = served.ask("GET", "/v1/jobs/12/usage")[1]["usage"]
    assert (usage["state"], usage["exit_code"], usage["signal"]) == ("FAILED", 3, 0)


def test_usage_is_forgotten_with_its_vjob(served: Served) -> None:
    running(served, 12, USED)
    served.ask("GET", "/v1/jobs/12/usage")
    assert served.ledger.usage.of_vjob(12)
    for state in (S.STOPPING, S.TERMINATED):
        served.ledger.transition(12, state, "over")
    served.ledger.set_vms(12, [])
    served.ledger.prune(served.context.clock.now() + 1)
    assert served.ledger.usage.of_vjob(12) == []


def test_lines_are_those_of_seff() -> None:
    usage = {
        "display_id": "12_3", "user": "alice", "group": "users", "state": "FAILED", "exit_code": 3, "signal": 0,
        "vms": 2, "cpus": 4, "memory_mib": 256, "cpus_total": 8, "memory_total_mib": 512,
        "elapsed_s": 100.0, "cpu_s": 90.0, "cpu_efficiency": 0.1125,
        "memory_used_mib": 150.0, "memory_most_mib": 80.0, "memory_efficiency": 0.293, "read_mib": 2048.0,
        "written_mib": 0.5,
    }  # fmt: skip
    assert lines_of(usage, "minicluster") == SHOWN


@pytest.mark.parametrize(
    ("seconds", "written"), [(0, "00:00:00"), (59.6, "00:01:00"), (3661, "01:01:01"), (86400 * 2 + 5, "2-00:00:05")]
)
def test_times_are_written_as_slurm_writes_them(seconds: float, written: str) -> None:
    assert clock(seconds) == written
