"""Platform native inside slurmctld: a job goes behind the gate, with the same on each node, and its script stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.lua_harness import INTERPRETERS, MEM_PER_CPU, RECORD, SITE, UNCHANGED, UNSET, Outcome, Runner

NATIVE: dict[str, Any] = {
    "platform": "native",
    "max_vms": 8,
    "max_vm_cpus": 4,
    "max_vm_memory_mib": 4096,
    "max_total_cpus": 12,
    "max_total_memory_mib": 8192,
    "default_memory_per_cpu_mib": 256,
}


@pytest.fixture(params=INTERPRETERS or [pytest.param("", marks=pytest.mark.skip(reason="no lua is installed"))])
def lua(request: pytest.FixtureRequest, tmp_path: Path) -> Runner:
    return Runner(request.param, tmp_path)


def submit(lua: Runner, site: dict[str, Any] | None = None, **job: Any) -> Outcome:
    if "min_mem_per_cpu" in job:
        job["pn_min_memory"] = MEM_PER_CPU
    return lua.submit(site={**NATIVE, **(site or {})}, **job)


def asked(outcome: Outcome) -> tuple[int, int, int, int, int]:
    """Nodes, tasks, CPUs of a task, tasks on each node, memory on each node, as Slurm gets them."""
    assert outcome.code == 0, outcome.said
    assert outcome.said == []
    written = {key: int(value) for key, value in outcome.written.items() if value.isdecimal()}
    assert written["min_nodes"] == written["max_nodes"]
    nodes, tasks = written["min_nodes"], written["num_tasks"]
    on_each = written.get("ntasks_per_node", tasks)
    assert nodes * on_each == tasks
    assert written["min_cpus"] == tasks * written["cpus_per_task"]
    return nodes, tasks, written["cpus_per_task"], on_each, written["min_mem_per_node"]


def test_a_job_is_put_behind_the_gate_and_its_script_stays(lua: Runner) -> None:
    outcome = submit(lua, licenses="matlab:2")
    assert outcome.written["licenses"] == "matlab:2,vjobgate"
    assert outcome.written["requeue"] == "1"
    assert "script" not in outcome.written


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({}, (1, 1, 1, 1, 256)),
        ({"cpus_per_task": 2, "pn_min_cpus": 2}, (1, 1, 2, 1, 512)),
        # without --nodes all tasks are on one node
        ({"num_tasks": 3}, (1, 3, 1, 3, 768)),
        ({"min_nodes": 2, "max_nodes": 2}, (2, 2, 1, 1, 256)),
        # of a range the least
        ({"min_nodes": 2, "max_nodes": 4}, (2, 2, 1, 1, 256)),
        ({"min_nodes": 2, "num_tasks": 4}, (2, 4, 1, 2, 512)),
        ({"min_nodes": 2, "ntasks_per_node": 2, "cpus_per_task": 2}, (2, 4, 2, 2, 1024)),
        # what --nodelist=n1,n2 makes of it
        ({"min_nodes": 2, "req_nodes": "n1,n2"}, (2, 2, 1, 1, 256)),
        ({"ntasks_per_node": 2, "num_tasks": 4}, (2, 4, 1, 2, 512)),
        ({"min_nodes": 2, "min_mem_per_node": 1000}, (2, 2, 1, 1, 1000)),
        ({"min_nodes": 2, "num_tasks": 4, "min_mem_per_cpu": 100}, (2, 4, 1, 2, 200)),
    ],
)
def test_each_node_of_a_job_has_the_same(
    lua: Runner, job: dict[str, Any], expected: tuple[int, int, int, int, int]
) -> None:
    assert asked(submit(lua, **job)) == expected


def test_memory_is_slurms_default_where_the_site_names_none(lua: Runner) -> None:
    site = {key: value for key, value in (SITE | NATIVE).items() if key != "default_memory_per_cpu_mib"}
    outcome = lua.run(what="submit", job={**UNSET, "partition": "vjob"}, site=site)
    assert outcome.code == 0
    assert "min_mem_per_node" not in outcome.written


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ({"min_nodes": 2, "num_tasks": 3}, "3 tasks cannot be the same number on each of 2 nodes"),
        ({"min_nodes": 3, "num_tasks": 2}, "2 tasks cannot be the same number on each of 3 nodes"),
        ({"ntasks_per_node": 2, "num_tasks": 3}, "ask for 2 or 4 tasks"),
        ({"min_nodes": 2, "num_tasks": 4, "ntasks_per_node": 1}, "more than --ntasks-per-node=1"),
        ({"pn_min_cpus": 3}, "--mincpus=3"),
        ({"num_tasks": 4, "min_cpus": 1}, "--overcommit"),
        ({"min_mem_per_node": 0}, "--mem=0"),
        ({"num_tasks": 5}, "no node has 5 CPUs"),
        ({"min_mem_per_node": 5000}, "no node has 5000 MiB"),
        ({"min_nodes": 9}, "9 nodes are more than the 8"),
        ({"min_nodes": 4, "cpus_per_task": 4}, "4 nodes of 4 CPUs are more than the 12 CPUs"),
        ({"min_nodes": 4, "min_mem_per_node": 4000}, "4 nodes of 4000 MiB are more than the 8192 MiB"),
        ({"gres": "gpu:1"}, "keeps its GPUs"),
        ({"tres_per_task": "gres:gpu:1"}, "--tres-per-task"),
        ({"shared": 0}, "--exclusive"),
        ({"shared": 2}, "--exclusive"),
        ({"threads_per_core": 1}, "counts CPUs, not sockets"),
        ({"core_spec": 1}, "--core-spec"),
        ({"reservation": "mine"}, "--reservation"),
        ({"requeue": 0}, "--no-requeue"),
        ({"script": None}, "salloc and srun"),
        ({"het_job_offset": 0}, "heterogeneous"),
        ({"features": "[a*2]"}, "--constraint"),
        ({"req_nodes": "n[1"}, "--nodelist"),
        ({"licenses": "vjobgate"}, "plugin's own"),
    ],
)
def test_what_the_engine_cannot_count_with_is_refused(lua: Runner, job: dict[str, Any], sentence: str) -> None:
    assert sentence in submit(lua, **job).refusal


@pytest.mark.parametrize(
    "job", [{"contiguous": 1}, {"prefer": "a"}, {"features": "a&b"}, {"user_id": 0}, {"shared": 1}]
)
def test_what_is_slurms_own_stays(lua: Runner, job: dict[str, Any]) -> None:
    outcome = submit(lua, **job)
    assert outcome.code == 0
    assert not set(job) & set(outcome.written)


def test_a_copy_of_a_vjobs_script_is_as_its_user_wrote_it(lua: Runner) -> None:
    line = "#!/usr/bin/rmsplugin-job vms=1,cpus=1,memory=1,ntasks=1,cpus_per_task=1,image=default\n"
    assert submit(lua, script=f"{line}#!/bin/sh\ndate\n").written["script"] == "#!/bin/sh\\ndate\\n"


def test_an_unknown_platform_refuses_jobs_as_a_fault_of_the_site(lua: Runner) -> None:
    outcome = submit(lua, {"platform": "docker"})
    assert outcome.code == -1
    assert "`platform` must be libvirt, podman or native: docker" in outcome.said[0]


def test_jobs_in_containers_are_wrapped_as_those_in_vms_are(lua: Runner) -> None:
    wrapped = [lua.submit(site={"platform": platform}).written["script"] for platform in ("libvirt", "podman")]
    assert wrapped[0] == wrapped[1]
    assert wrapped[0].startswith(f"#!{SITE['wrapper']} vms=")
    assert "absolute path of rmsplugin-job" in lua.submit(site={"platform": "podman", "wrapper": ""}).said[0]


def test_a_native_site_needs_no_wrapper(lua: Runner) -> None:
    assert submit(lua, {"wrapper": ""}).code == 0
    assert lua.submit(site={"wrapper": ""}).code == -1


def test_a_user_changes_neither_size_nor_partition_of_a_native_job(lua: Runner) -> None:
    for change in ({"min_nodes": 3}, {"partition": "plain"}):
        outcome = lua.run(what="modify", job={**UNCHANGED, **change}, record=RECORD, site={**SITE, **NATIVE})
        assert "may be paused" in outcome.denial
