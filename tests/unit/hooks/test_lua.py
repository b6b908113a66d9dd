"""The part of the plugin inside slurmctld: which jobs it takes, what becomes of them, and what may be changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from unit.lua_harness import INTERPRETERS, LUA, MEM_PER_CPU, NO_VAL, NO_VAL16, NO_VAL64, SITE, UNSET, Outcome, Runner


@pytest.fixture(params=INTERPRETERS or [pytest.param("", marks=pytest.mark.skip(reason="no lua is installed"))])
def lua(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    return Runner(request.param, tmp_path)


# --- other partitions ---


@pytest.mark.parametrize("partition", ["plain", None, "vjob3", "plain,other", "vjo", "xvjob"])
def test_other_partitions_pass_untouched(lua: Runner, partition: str | None) -> None:
    assert lua.submit(partition=partition, script=None, gres="gpu:1") == Outcome(0, {}, [])


def test_other_partitions_pass_even_when_the_plugin_is_broken(lua: Runner) -> None:
    assert lua.submit(site={"broken": "no settings", "wrapper": ""}, partition="plain") == Outcome(0, {}, [])


def test_default_partition(lua: Runner) -> None:
    assert lua.submit(partition=None, default="vjob").geometry.vms == 1


# --- geometry ---

GEOMETRIES: list[tuple[dict[str, Any], str]] = [
    ({}, "vms=1,cpus=1,memory=256,ntasks=1,cpus_per_task=1"),
    ({"num_tasks": 2}, "vms=2,cpus=1,memory=256,ntasks=2,cpus_per_task=1"),
    ({"num_tasks": 3, "cpus_per_task": 2}, "vms=3,cpus=2,memory=512,ntasks=3,cpus_per_task=2"),
    ({"cpus_per_task": 4, "pn_min_cpus": 4}, "vms=1,cpus=4,memory=1024,ntasks=1,cpus_per_task=4"),
    # --nodes counts VMs
    ({"min_nodes": 2, "max_nodes": 2}, "vms=2,cpus=1,memory=256,ntasks=2,cpus_per_task=1"),
    ({"min_nodes": 2, "max_nodes": 4}, "vms=2,cpus=1,memory=256,ntasks=2,cpus_per_task=1"),
    ({"min_nodes": 2, "num_tasks": 4}, "vms=2,cpus=2,memory=512,ntasks=4,cpus_per_task=1"),
    ({"min_nodes": 1, "num_tasks": 4}, "vms=1,cpus=4,memory=1024,ntasks=4,cpus_per_task=1"),
    ({"min_nodes": 2, "ntasks_per_node": 2}, "vms=2,cpus=2,memory=512,ntasks=4,cpus_per_task=1"),
    ({"min_nodes": 2, "cpus_per_task": 2}, "vms=2,cpus=2,memory=512,ntasks=2,cpus_per_task=2"),
    # --ntasks-per-node without --nodes
    ({"ntasks_per_node": 2}, "vms=1,cpus=2,memory=512,ntasks=2,cpus_per_task=1"),
    ({"ntasks_per_node": 2, "num_tasks": 5}, "vms=3,cpus=2,memory=512,ntasks=5,cpus_per_task=1"),
    # --mincpus
    ({"pn_min_cpus": 3}, "vms=1,cpus=3,memory=768,ntasks=1,cpus_per_task=1"),
    # --mem is a node's; without nodes the tasks share it
    ({"min_mem_per_node": 1000}, "vms=1,cpus=1,memory=1000,ntasks=1,cpus_per_task=1"),
    ({"min_nodes": 2, "min_mem_per_node": 1000}, "vms=2,cpus=1,memory=1000,ntasks=2,cpus_per_task=1"),
    ({"num_tasks": 3, "min_mem_per_node": 1000}, "vms=3,cpus=1,memory=334,ntasks=3,cpus_per_task=1"),
    (
        {"num_tasks": 4, "ntasks_per_node": 2, "min_mem_per_node": 1000},
        "vms=2,cpus=2,memory=1000,ntasks=4,cpus_per_task=1",
    ),
    # --mem-per-cpu
    ({"cpus_per_task": 2, "min_mem_per_cpu": 100}, "vms=1,cpus=2,memory=200,ntasks=1,cpus_per_task=2"),
    ({"min_nodes": 2, "num_tasks": 4, "min_mem_per_cpu": 100}, "vms=2,cpus=2,memory=200,ntasks=4,cpus_per_task=1"),
    # tasks that do not divide evenly: the first VMs have one more
    (
        {"min_nodes": 2, "num_tasks": 3},
        "vms=2,cpus=2,memory=512,ntasks=3,cpus_per_task=1,image=default,small_cpus=1,small_memory=256",
    ),
    (
        {"min_nodes": 5, "num_tasks": 6, "cpus_per_task": 2, "min_mem_per_cpu": 50},
        "vms=5,cpus=4,memory=200,ntasks=6,cpus_per_task=2,image=default,small_cpus=2,small_memory=100",
    ),
    (
        {"min_nodes": 2, "num_tasks": 5, "min_mem_per_node": 1000},
        "vms=2,cpus=3,memory=1000,ntasks=5,cpus_per_task=1,image=default,small_cpus=2,small_memory=1000",
    ),
    (
        {"min_nodes": 2, "num_tasks": 5, "pn_min_cpus": 3},
        "vms=2,cpus=3,memory=768,ntasks=5,cpus_per_task=1",
    ),
    (
        {"min_nodes": 2, "num_tasks": 7, "pn_min_cpus": 3, "cpus_per_task": 1},
        "vms=2,cpus=4,memory=1024,ntasks=7,cpus_per_task=1,image=default,small_cpus=3,small_memory=768",
    ),
    # Slurm takes the CPUs of --ntasks-per-node tasks on each node, whether there are so many or not
    (
        {"min_nodes": 2, "num_tasks": 5, "ntasks_per_node": 4},
        "vms=2,cpus=4,memory=1024,ntasks=5,cpus_per_task=1",
    ),
    # numbers that mean "unset" in a field of another width
    ({"min_mem_per_node": 254}, "vms=1,cpus=1,memory=254,ntasks=1,cpus_per_task=1"),
]


@pytest.mark.parametrize(("job", "expected"), GEOMETRIES)
def test_geometry(lua: Runner, job: dict[str, Any], expected: str) -> None:
    if "min_mem_per_cpu" in job:
        job = {**job, "pn_min_memory": MEM_PER_CPU}
    outcome = lua.submit(**job)
    assert str(outcome.geometry) == (expected if "image" in expected else f"{expected},image=default")
    line = outcome.written["script"].split("\\n")[0]
    assert ("x_memory=per_cpu" in line, "x_ntasks=default" in line) == (
        "min_mem_per_cpu" in job,
        "num_tasks" not in job,
    )


def test_geometry_of_much_memory(lua: Runner) -> None:
    outcome = lua.submit(site={"max_vm_memory_mib": 100000, "max_total_memory_mib": 100000}, min_mem_per_node=65534)
    assert outcome.geometry.memory_mib == 65534


def test_geometry_of_many_cpus(lua: Runner) -> None:
    outcome = lua.submit(
        site={"max_vm_cpus": 512, "max_total_cpus": 512, "max_vm_memory_mib": 65024}, cpus_per_task=254
    )
    assert outcome.code == -1  # 254 CPUs of 256 MiB each: the site's limit in total
    assert "65024 MiB are more than the 8192 MiB" in outcome.refusal


def test_geometry_where_unset_fields_are_nil(lua: Runner) -> None:
    """As a newer Slurm may have it."""
    assert lua.submit(**{key: None for key, value in UNSET.items() if value in (NO_VAL, NO_VAL16, NO_VAL64)}).geometry


# --- Slurm's side ---


def test_slurm_side(lua: Runner) -> None:
    """All CPUs and memory of the VMs, on one node; what the user said of a node is of a VM, and not of that node."""
    job = {"min_nodes": 2, "max_nodes": 2, "num_tasks": 4, "min_cpus": 4, "ntasks_per_node": 2, "min_mem_per_node": 300}
    written = lua.submit(**job).written
    written.pop("script")
    assert written == {
        "licenses": "vjobgate",
        "min_mem_per_node": "600",
        "ntasks_per_node": "65534",
        "pn_min_cpus": "65534",
        "min_cpus": "4",
        "max_cpus": str(NO_VAL),
        "num_tasks": "4",
        "min_nodes": "1",
        "max_nodes": "1",
        "requeue": "1",
    }


def test_slurm_side_of_memory_for_each_cpu(lua: Runner) -> None:
    job = {"num_tasks": 4, "cpus_per_task": 2, "min_cpus": 8, "min_mem_per_cpu": 1024, "pn_min_memory": MEM_PER_CPU}
    written = lua.submit(**job).written
    assert (written["min_cpus"], written["min_mem_per_node"], written["num_tasks"]) == ("8", "8192", "4")
    assert "cpus_per_task" not in written


@pytest.mark.parametrize(
    ("job", "cpus", "tasks"),
    [
        ({"min_nodes": 2, "ntasks_per_node": 2}, "4", "4"),
        ({"min_nodes": 2, "num_tasks": 3}, "3", "3"),
        ({"min_nodes": 7, "num_tasks": 8}, "8", "8"),
        ({"min_nodes": 3, "num_tasks": 5, "cpus_per_task": 2}, "10", "5"),
        ({"ntasks_per_node": 2, "num_tasks": 5}, "6", str(NO_VAL)),
        ({"num_tasks": 2, "pn_min_cpus": 2}, "4", str(NO_VAL)),
    ],
)
def test_slurm_counts_no_tasks_that_leave_cpus_of_vms_over(
    lua: Runner, job: dict[str, int], cpus: str, tasks: str
) -> None:
    """Slurm 24 gives a job the CPUs of its tasks, whatever it asked for."""
    written = lua.submit(**job).written
    assert (written["min_cpus"], written["num_tasks"]) == (cpus, tasks)


@pytest.mark.parametrize(
    ("job", "memory_mib"),
    [
        ({"min_nodes": 2, "num_tasks": 3}, "768"),
        ({"min_nodes": 2, "num_tasks": 3, "min_mem_per_cpu": 100, "pn_min_memory": MEM_PER_CPU}, "300"),
        ({"min_nodes": 2, "num_tasks": 3, "min_mem_per_node": 500}, "1000"),
    ],
)
def test_slurm_counts_the_memory_of_uneven_vms(lua: Runner, job: dict[str, int], memory_mib: str) -> None:
    assert lua.submit(**job).written["min_mem_per_node"] == memory_mib


@pytest.mark.parametrize(
    ("site", "refusal"),
    [
        ({"max_vm_cpus": 1}, "no node can host a VM of 2 CPUs"),
        ({"max_vm_memory_mib": 511}, "no node can host a VM of 512 MiB"),
        ({"max_total_cpus": 4}, "4 VMs of up to 2 CPUs are more than the 4 CPUs"),
        ({"max_total_memory_mib": 1279}, "4 VMs of up to 512 MiB are more than the 1279 MiB"),
        ({"image_memory_mib": {"default": 257}}, "a VM of 256 MiB is too small"),
    ],
)
def test_limits_of_uneven_vms(lua: Runner, site: dict[str, Any], refusal: str) -> None:
    job = {"min_nodes": 4, "num_tasks": 5}
    assert lua.submit(site={"max_total_cpus": 5, "max_total_memory_mib": 1280}, **job).geometry.vms == 4
    assert refusal in lua.submit(site=site, **job).refusal


def test_what_is_slurms_own_stays_as_the_user_said(lua: Runner) -> None:
    """Hold, begin time, dependency, nice and the like are Slurm's to honour."""
    job = {
        "priority": 0, "begin_time": 1900000000, "dependency": "afterok:1", "nice": 2147483653, "qos": "high",
        "time_limit": 60, "time_min": 5, "account": "users", "comment": "mine", "array_inx": "1-3%1", "shared": 1,
        "mail_type": 1, "acctg_freq": "1", "wckey": "w", "site_factor": 7, "delay_boot": 60, "end_time": 1900000001,
    }  # fmt: skip
    assert set(lua.submit(**job).written).isdisjoint(job)


def test_slurm_side_without_any_limit_of_the_site(lua: Runner) -> None:
    outcome = lua.run(
        what="submit",
        site={"partitions": ["vjob"], "wrapper": SITE["wrapper"]},
        job={**UNSET, "partition": "vjob", "num_tasks": 100, "min_cpus": 100},
    )
    assert (outcome.written["max_nodes"], outcome.written["min_cpus"]) == ("1", "100")
    assert str(outcome.geometry) == "vms=100,cpus=1,memory=1024,ntasks=100,cpus_per_task=1,image=default"


def test_no_requeue_stays_the_users_choice(lua: Runner) -> None:
    assert "requeue" not in lua.submit(requeue=0).written


# --- a copy of a script, with the plugin's line ---

SCRIPT = "#!/bin/sh\nsleep 30\n"
LINES = [
    f"#!{SITE['wrapper']} vms=1,cpus=99,memory=99999,ntasks=1,cpus_per_task=1,image=default\n",
    "#!/where/it/lay/once vms=2,cpus=1,memory=128,ntasks=2,cpus_per_task=1,image=debian-12,nodes=n[1-2];n4\n",
    "#!/a vms=2,cpus=2,memory=128,ntasks=3,cpus_per_task=1,image=default,small_cpus=1,small_memory=64,nodes=n1\n",
]


@pytest.mark.parametrize("lines", [*LINES, "".join(LINES) * 3])
def test_a_copy_of_a_vjobs_script_is_taken_as_its_user_wrote_it(lua: Runner, lines: str) -> None:
    """`scontrol write batch_script` shows it with the plugin's line; the geometry is that of this submission."""
    assert lua.submit(script=lines + SCRIPT, num_tasks=3) == lua.submit(script=SCRIPT, num_tasks=3)


@pytest.mark.parametrize(
    "script",
    [
        f"#!{SITE['wrapper']} vms=1\n{SCRIPT}",
        f"#!/bin/sh\n{LINES[0]}",
        f" {LINES[0]}{SCRIPT}",
        "#!/bin/sh vms=1,cpus=1\n",
    ],
)
def test_what_is_not_the_plugins_line_stays_in_the_script(lua: Runner, script: str) -> None:
    assert lua.submit(script=script).written["script"].split("\\n", 1)[1] == script.replace("\n", "\\n")


def test_a_copy_of_a_vjobs_script_runs_in_another_partition(lua: Runner) -> None:
    written = {"script": SCRIPT.replace("\n", "\\n")}
    assert lua.submit(partition="plain", script=LINES[0] + SCRIPT) == Outcome(0, written, [])
    assert lua.submit(partition="plain", script=SCRIPT) == Outcome(0, {}, [])
    assert lua.submit(partition="plain", script="RAISE") == Outcome(0, {}, [])


# --- long scripts: Slurm looks at the length when the plugin's line is before them ---


def long_script(size: int) -> str:
    return "#!/bin/sh\n".ljust(size, "x")


def test_a_script_that_is_too_long_with_the_plugins_line_is_refused_in_a_sentence(lua: Runner) -> None:
    line = len(lua.submit().written["script"].split("\\n")[0]) + 1
    most = 4 * 1024 * 1024 - line
    assert lua.submit(script=long_script(most)).code == 0
    said = lua.submit(script=long_script(most + 1)).refusal
    assert said.startswith(f"the script has {most + 1} bytes, and a job that runs in VMs can have {most} at most")
    # Whether Slurm takes one that is longer by itself depends on slurm.conf: it says so.
    assert lua.submit(script=long_script(4 * 1024 * 1024)).code == -1
    assert lua.submit(script=long_script(4 * 1024 * 1024 + 1)).code == 0


def test_a_site_says_how_long_scripts_may_be(lua: Runner) -> None:
    site = {"max_script_size": 1000}
    line = len(lua.submit().written["script"].split("\\n")[0]) + 1
    assert lua.submit(site=site, script=long_script(1000 - line)).code == 0
    assert f"can have {1000 - line} at most" in lua.submit(site=site, script=long_script(1001 - line)).refusal
    assert "can have" in lua.submit(site=site, script=long_script(5000)).refusal
    assert lua.submit(site={"max_script_size": 5 << 20}, script=long_script(4 << 20)).code == 0


@pytest.mark.parametrize(
    ("licenses", "expected"),
    [
        (None, "vjobgate"),
        ("", "vjobgate"),
        ("matlab:2", "matlab:2,vjobgate"),
        ("matlab@server:2;vjobgates", "matlab@server:2;vjobgates,vjobgate"),
    ],
)
def test_the_gate_stands_beside_the_users_licences(lua: Runner, licenses: str | None, expected: str) -> None:
    assert lua.submit(licenses=licenses).written["licenses"] == expected


def test_the_gate_has_the_sites_name(lua: Runner) -> None:
    assert lua.submit(site={"gate": "tor_1"}, licenses="vjobgate").written["licenses"] == "vjobgate,tor_1"
    assert "the licence tor_1 is the plugin's own" in lua.submit(site={"gate": "tor_1"}, licenses="a,tor_1:3").refusal


def test_image(lua: Runner) -> None:
    site = {"images": ["default", "debian-12"]}
    assert lua.submit(site=site, environment={"RMSPLUGIN_IMAGE": "debian-12"}).geometry.image == "debian-12"
    assert lua.submit(site=site, environment={"RMSPLUGIN_IMAGE": ""}).geometry.image == "default"
    assert lua.submit(site=site, environment=None).geometry.image == "default"
    refusal = lua.submit(site=site, environment={"RMSPLUGIN_IMAGE": "x y%s"}).refusal
    assert refusal == "RMSPLUGIN_IMAGE=x y%s: there is no such image here; there are: default, debian-12"


# --- faults of ours reject vjobs, and only them ---


@pytest.mark.parametrize(
    ("site", "job", "reason"),
    [
        ({"broken": "site.lua:3: syntax"}, {}, "site.lua:3: syntax"),
        ({"wrapper": "rmsplugin-job"}, {}, "absolute path"),
        ({"wrapper": "/opt/a b/rmsplugin-job"}, {}, "absolute path"),
        ({"wrapper": "/" + "x" * 250}, {}, "too long"),
        ({"images": ["a b"]}, {}, "letters"),
        ({"max_vms": "many"}, {}, "`max_vms` must be a number"),
        ({"max_vm_cpu": 4}, {}, "`max_vm_cpu` is no key of site.lua"),
        ({"slurm_memory_mib": 64}, {}, "`slurm_memory_mib` is no key of site.lua"),
        ({"image_memory_mib": {"default": "1G"}}, {}, "a number for each image, not for default"),
        ({"gate": "a,b"}, {}, "`gate` must be the name of a licence"),
        ({}, {"num_tasks": "RAISE"}, "cannot be read"),
        ({}, {"environment": "RAISE"}, "cannot be read"),
        ({}, {"exc_nodes": "RAISE"}, "cannot be read"),
        ({}, {"licenses": "RAISE"}, "cannot be read"),
    ],
)
def test_a_fault_rejects(lua: Runner, site: dict[str, Any], job: dict[str, Any], reason: str) -> None:
    outcome = lua.submit(site=site, **job)
    assert outcome.code == -1
    assert outcome.written == {}
    error, user = outcome.said
    assert error.startswith("error: rmsplugin: job_submit: ")
    assert reason in error
    assert user.startswith("user: this job was refused because of a fault in the site's VM plugin")


def test_a_fault_rejects_a_change(lua: Runner) -> None:
    outcome = lua.modify(num_tasks="RAISE")
    assert outcome.code == 2002
    assert "cannot be read" in outcome.said[0]


# --- changes of a submitted job ---

FIXED: list[tuple[dict[str, Any], str]] = [
    ({"num_tasks": 3}, "NumTasks"),
    ({"min_cpus": 3}, "NumCPUs"),
    ({"max_cpus": 3}, "NumCPUs"),
    ({"min_nodes": 1}, "NumNodes"),
    ({"max_nodes": 2}, "NumNodes"),
    ({"cpus_per_task": 2}, "CPUs/Task"),
    ({"pn_min_cpus": 1}, "MinCPUsNode"),
    ({"pn_min_memory": 70}, "MinMemory"),
    ({"pn_min_tmp_disk": 1}, "MinTmpDiskNode"),
    ({"ntasks_per_node": 2}, "TasksPerNode"),
    ({"shared": 0}, "OverSubscribe"),
    ({"contiguous": 1}, "Contiguous"),
    ({"req_switch": 1}, "Switches"),
    ({"core_spec": 1}, "CoreSpec"),
    ({"sockets_per_node": 1}, "Sockets"),
    ({"cores_per_socket": 1}, "Cores"),
    ({"threads_per_core": 1}, "Threads"),
    ({"features": "a"}, "Features"),
    ({"batch_features": "a"}, "BatchFeatures"),
    ({"prefer": "a"}, "Prefer"),
    ({"req_nodes": "n2"}, "ReqNodeList"),
    ({"req_nodes": ""}, "ReqNodeList"),
    ({"exc_nodes": "n2"}, "ExcNodeList"),
    ({"reservation": "r"}, "ReservationName"),
    ({"network": "n"}, "Network"),
    ({"burst_buffer": "b"}, "BurstBuffer"),
    ({"script": "#!/bin/sh"}, "the script"),
    ({"gres": "gres:gpu:1"}, "Gres"),
    *(({f"tres_per_{what}": "gres:gpu:1"}, "TresPer") for what in ("job", "node", "socket", "task")),
    ({"cpus_per_tres": "gres:gpu:1"}, "CpusPerTres"),
    ({"mem_per_tres": "gres:gpu:1"}, "MemPerTres"),
]


@pytest.mark.parametrize(("change", "name"), FIXED, ids=lambda value: "" if isinstance(value, str) else str(value))
def test_what_users_may_not_change(lua: Runner, change: dict[str, Any], name: str) -> None:
    assert lua.modify(**change).denial.startswith(name)
    for uid in (0, 64030):
        assert lua.modify(uid=uid, **change) == Outcome(0, {}, [])
    assert lua.modify(record={"partition": "plain"}, **change) == Outcome(0, {}, [])


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"priority": 0},  # scontrol hold
        {"priority": 4294967295},  # scontrol release
        {"priority": 7},
        {"nice": 2147483653},
        {"time_limit": 5},
        {"time_min": 5},
        {"name": "x"},
        {"dependency": "afterany:1"},
        {"dependency": ""},
        {"comment": "x"},
        {"begin_time": 1900000000},
        {"end_time": 1900000000},
        {"mail_user": "bob", "mail_type": 1},
        {"account": "a", "qos": "q", "wckey": "w"},
        {"requeue": 0},
        {"array_inx": "%2"},
        {"partition": "vjob"},
    ],
)
def test_what_users_may_change(lua: Runner, change: dict[str, Any]) -> None:
    assert lua.modify(**change) == Outcome(0, {}, [])


@pytest.mark.parametrize(
    ("had", "wants", "gets"),
    [
        ("vjobgate", "matlab:2", "matlab:2,vjobgate"),
        ("matlab:2,vjobgate", "", "vjobgate"),
        ("vjobgate:1,a", "b@s", "b@s,vjobgate"),
    ],
)
def test_a_change_of_licences_keeps_the_gate(lua: Runner, had: str, wants: str, gets: str) -> None:
    assert lua.modify(record={"licenses": had}, licenses=wants) == Outcome(0, {"licenses": gets}, [])


@pytest.mark.parametrize("had", [None, "", "matlab:1", "vjobgate2"])
def test_a_job_past_the_gate_is_not_put_behind_it(lua: Runner, had: str | None) -> None:
    assert lua.modify(record={"licenses": had}, licenses="matlab:2") == Outcome(0, {}, [])


@pytest.mark.parametrize("had", ["vjobgate", "matlab:1"])
@pytest.mark.parametrize(
    "wants", ["vjobgate", "vjobgate:2,a", "a,vjobgate@x:1", "a; vjobgate", "a|vjobgate", "vjobgate*2"]
)
def test_the_gate_is_not_the_users_to_name(lua: Runner, had: str, wants: str) -> None:
    assert "vjobgate is the plugin's own" in lua.modify(record={"licenses": had}, licenses=wants).denial
    assert "vjobgate is the plugin's own" in lua.submit(licenses=wants).refusal


@pytest.mark.parametrize("uid", [0, 64030])
@pytest.mark.parametrize("licenses", ["", "matlab:1", "matlab:1,vjobgate", "vjobgate"])
def test_the_engine_and_root_open_and_close_the_gate(lua: Runner, uid: int, licenses: str) -> None:
    assert lua.modify(uid=uid, licenses=licenses) == Outcome(0, {}, [])


@pytest.mark.parametrize("uid", [0, 2001, 64030])
@pytest.mark.parametrize(
    ("source", "target"), [("vjob", "plain"), ("plain", "vjob"), ("vjob", "vjob2"), ("plain", "plain,vjob")]
)
def test_nobody_moves_a_job_in_or_out(lua: Runner, source: str, target: str, uid: int) -> None:
    refused = lua.run(what="modify", job={"partition": target}, record={"partition": source}, uid=uid)
    assert refused.code == 2002
    assert "cannot be moved into, out of or between" in refused.said[0]


def test_moves_between_other_partitions(lua: Runner) -> None:
    moved = lua.run(what="modify", job={"partition": "other"}, record={"partition": "plain"})
    assert moved == Outcome(0, {}, [])


def test_slurm_uid_is_found_out(lua: Runner) -> None:
    """Without the setting it is who slurmctld, here the interpreter, runs as."""
    site = {key: value for key, value in SITE.items() if key != "slurm_uid"}
    for uid, code in ((os.getuid(), 0), (os.getuid() + 1, 2002)):
        given = {"job": {"num_tasks": 5}, "record": {"partition": "vjob"}, "uid": uid, "site": site}
        assert lua.run(what="modify", **given).code == code


# --- job_submit.lua ---


MODULES = ("rmsplugin.lua", "rmsplugin_options.lua", "rmsplugin_native.lua")


def through_job_submit(lua: Runner, site: str | None, partition: str, modules: tuple[str, ...] = MODULES) -> Outcome:
    directory = lua.directory / "slurm"
    directory.mkdir()
    site_file = lua.directory / "site.lua"
    text = (LUA / "job_submit.lua").read_text()
    assert text.count('"/etc/rmsplugin/site.lua"') == 1
    (directory / "job_submit.lua").write_text(text.replace("/etc/rmsplugin/site.lua", str(site_file)))
    for name in modules:
        shutil.copy(LUA / name, directory)
    if site is not None:
        site_file.write_text(site)
    outcome: Outcome = lua.run(
        what="submit", through="job_submit", job={**UNSET, "partition": partition}, lua=str(directory)
    )
    return outcome


def test_example_without_settings(lua: Runner) -> None:
    outcome = through_job_submit(lua, None, "vjob")
    assert outcome.written["script"].startswith("#!/usr/bin/rmsplugin-job vms=1,")


def test_example_with_settings(lua: Runner) -> None:
    outcome = through_job_submit(lua, 'return { partitions = {"big"}, wrapper = "/w" }', "big")
    assert outcome.written["script"].startswith("#!/w vms=1,")


@pytest.mark.parametrize("site", ["return {", "return 7", "error('x')", "return { wrapper = '/w' }", ""])
def test_example_with_broken_settings(lua: Runner, site: str) -> None:
    outcome = through_job_submit(lua, site, "vjob")
    assert outcome.code == -1
    assert "site.lua" in outcome.said[0]


def test_example_with_broken_settings_leaves_other_partitions_alone(lua: Runner) -> None:
    assert through_job_submit(lua, "return {", "plain") == Outcome(0, {}, [])


@pytest.mark.parametrize("modules", [(), MODULES[:1], MODULES[1:], MODULES[:2]])
def test_example_without_a_module(lua: Runner, modules: tuple[str, ...]) -> None:
    outcome = through_job_submit(lua, None, "vjob", modules)
    assert outcome.code == -1
    assert outcome.said[-1].startswith("user: jobs that run in VMs are refused: the plugin's Lua files cannot be read")


@pytest.mark.parametrize("modules", [(), MODULES[:1], MODULES[1:], MODULES[:2]])
def test_example_without_a_module_leaves_other_partitions_alone(lua: Runner, modules: tuple[str, ...]) -> None:
    outcome = through_job_submit(lua, None, "plain", modules)
    assert (outcome.code, outcome.written) == (0, {})
