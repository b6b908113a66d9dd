"""The part of the plugin inside slurmctld, on real Lua interpreters and a fake ``slurm`` table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmsplugin.model.vjob import Geometry

LUA = Path(__file__).resolve().parents[2] / "lua"

# Slurm of Debian 12 embeds Lua 5.1, that of Debian 13 Lua 5.4.
INTERPRETERS = [name for name in ("lua5.1", "lua5.3", "lua5.4") if shutil.which(name)]

NO_VAL16, NO_VAL, NO_VAL64, MEM_PER_CPU = 65534, 4294967294, 18446744073709551614.0, 9223372036854775808.0

SITE: dict[str, Any] = {
    "partitions": ["vjob", "vjob2"],
    "wrapper": "/opt/rmsplugin/bin/rmsplugin-job",
    "max_vms": 8,
    "max_vm_cpus": 4,
    "max_vm_memory_mib": 4096,
    "max_total_cpus": 12,
    "max_total_memory_mib": 8192,
    "default_memory_per_cpu_mib": 256,
    "slurm_uid": 64030,
}

# What Slurm 22.05 hands over for `sbatch script`: measured.
UNSET: dict[str, Any] = {
    "script": "#!/bin/sh\nsleep 30\n",
    "priority": NO_VAL,
    "het_job_offset": NO_VAL,
    "num_tasks": NO_VAL,
    "min_nodes": NO_VAL,
    "max_nodes": NO_VAL,
    "min_cpus": 1,
    "max_cpus": NO_VAL,
    "cpus_per_task": NO_VAL16,
    "ntasks_per_node": NO_VAL16,
    "pn_min_cpus": NO_VAL16,
    "pn_min_memory": NO_VAL64,
    "shared": NO_VAL16,
    "requeue": NO_VAL16,
    "begin_time": 0,
    "nice": NO_VAL,
    "environment": {"HOME": "/home/alice"},
}

HARNESS = r"""
local said = {}
slurm = {
  SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002, NO_VAL = 4294967294, NO_VAL16 = 65534,
  log_user = function(format, ...) said[#said + 1] = "user: " .. string.format(format, ...) end,
  log_error = function(format, ...) said[#said + 1] = "error: " .. string.format(format, ...) end,
}
local input = dofile(arg[1])
-- Slurm's structures are tables whose fields are functions in C; what the module writes is seen in `written`.
local function structure(values)
  local written = {}
  return setmetatable({}, {
    __index = function(_, key)
      if values[key] == "RAISE" then error("field " .. key .. " cannot be read") end
      return values[key]
    end,
    __newindex = function(_, key, value) written[key] = value; values[key] = value end,
  }), written
end
local job, written = structure(input.job)
local record = structure(input.record or {})
local parts = { vjob = { flag_default = 0 }, plain = { flag_default = 1 } }
for name, part in pairs(parts) do part.flag_default = name == input.default and 1 or 0 end
local result
if input.through == "job_submit" then
  assert(dofile(input.lua .. "/job_submit.lua") == slurm.SUCCESS)
  if input.what == "submit" then
    result = slurm_job_submit(job, parts, input.uid)
  else
    result = slurm_job_modify(job, record, parts, input.uid)
  end
else
  package.path = input.lua .. "/?.lua;" .. package.path
  local vjobs = require("rmsplugin").new(input.site)
  if input.what == "submit" then
    result = vjobs.submit(job, parts, input.uid)
  else
    result = vjobs.modify(job, record, parts, input.uid)
  end
end
print("result", result)
for key, value in pairs(written) do
  if type(value) == "number" then value = string.format("%.0f", value) end
  print("written", key, (string.gsub(tostring(value), "\n", "\\n")))
end
for _, line in ipairs(said) do print("said", line) end
"""


def literal(value: Any) -> str:
    """A Lua expression for a value."""
    if isinstance(value, dict):
        return "{" + ",".join(f"[{literal(key)}]={literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ",".join(literal(each) for each in value) + "}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\\n", "\\010")
    return str(value)


@dataclass
class Outcome:
    code: int
    written: dict[str, str]
    said: list[str]

    @property
    def refusal(self) -> str:
        """What the user is told."""
        assert self.code == -1
        assert self.written == {}
        assert [line for line in self.said if line.startswith("error: ")] == []
        (line,) = self.said
        return line.removeprefix("user: ")

    @property
    def geometry(self) -> Geometry:
        assert self.code == 0, self.said
        assert self.said == []
        line, _, rest = self.written["script"].partition("\\n")
        assert rest == UNSET["script"].replace("\n", "\\n")
        interpreter, _, text = line.partition(" ")
        assert interpreter == "#!" + SITE["wrapper"]
        return Geometry.parse(text)


@pytest.fixture(params=INTERPRETERS or [pytest.param("", marks=pytest.mark.skip(reason="no lua is installed"))])
def lua(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    class Runner:
        directory = tmp_path

        def run(self, **given: Any) -> Outcome:
            harness, data = tmp_path / "harness.lua", tmp_path / "input.lua"
            harness.write_text(HARNESS)
            data.write_text(
                "return " + literal({"default": "plain", "uid": 2001, "site": SITE, "lua": str(LUA), **given})
            )
            done = subprocess.run(
                [request.param, str(harness), str(data)],
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
                cwd=tmp_path,
            )
            assert done.returncode == 0, done.stderr
            rows = [line.split("\t", 2) for line in done.stdout.splitlines()]
            return Outcome(
                code=int(float(rows[0][1])),
                written={row[1]: row[2] for row in rows if row[0] == "written"},
                said=[row[1] for row in rows if row[0] == "said"],
            )

        def submit(self, site: dict[str, Any] | None = None, default: str = "plain", **job: Any) -> Outcome:
            values = {**UNSET, "partition": "vjob", **job}
            values = {key: value for key, value in values.items() if value is not None}
            return self.run(what="submit", job=values, site={**SITE, **(site or {})}, default=default)

        def modify(self, uid: int = 2001, was_in: str = "vjob", had: float = 0, **job: Any) -> Outcome:
            unset = {key: value for key, value in UNSET.items() if key not in ("script", "environment", "min_cpus")}
            record = {"partition": was_in, "priority": had}
            return self.run(what="modify", job={**unset, **job}, record=record, uid=uid)

    return Runner()


# --- other partitions ---


@pytest.mark.parametrize("partition", ["plain", None, "vjob3", "plain,other", "vjo", "xvjob"])
def test_other_partitions_pass_untouched(lua: Any, partition: str | None) -> None:
    assert lua.submit(partition=partition, script=None, gres="gpu:1") == Outcome(0, {}, [])


def test_other_partitions_pass_even_when_the_plugin_is_broken(lua: Any) -> None:
    assert lua.submit(site={"broken": "no settings", "wrapper": ""}, partition="plain") == Outcome(0, {}, [])


def test_default_partition(lua: Any) -> None:
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
    ({"min_nodes": 2, "num_tasks": 3}, "vms=2,cpus=2,memory=512,ntasks=3,cpus_per_task=1"),
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
    # numbers that mean "unset" in a field of another width
    ({"min_mem_per_node": 254}, "vms=1,cpus=1,memory=254,ntasks=1,cpus_per_task=1"),
]


@pytest.mark.parametrize(("job", "expected"), GEOMETRIES)
def test_geometry(lua: Any, job: dict[str, Any], expected: str) -> None:
    if "min_mem_per_cpu" in job:
        job = {**job, "pn_min_memory": MEM_PER_CPU}
    assert str(lua.submit(**job).geometry) == f"{expected},image=default"


@pytest.mark.parametrize("cpus", ["cpu=2", "cpu:2"])
def test_cpus_per_task_as_slurm_says_it_since_23_11(lua: Any, cpus: str) -> None:
    assert lua.submit(cpus_per_task=2, tres_per_task=cpus).geometry.cpus == 2


def test_geometry_of_much_memory(lua: Any) -> None:
    outcome = lua.submit(site={"max_vm_memory_mib": 100000, "max_total_memory_mib": 100000}, min_mem_per_node=65534)
    assert outcome.geometry.memory_mib == 65534


def test_geometry_of_many_cpus(lua: Any) -> None:
    outcome = lua.submit(
        site={"max_vm_cpus": 512, "max_total_cpus": 512, "max_vm_memory_mib": 65024}, cpus_per_task=254
    )
    assert outcome.code == -1  # 254 CPUs of 256 MiB each: the site's limit in total
    assert "65024 MiB are more than the 8192 MiB" in outcome.refusal


def test_geometry_where_unset_fields_are_nil(lua: Any) -> None:
    """As a newer Slurm may have it."""
    assert lua.submit(**{key: None for key, value in UNSET.items() if value in (NO_VAL, NO_VAL16, NO_VAL64)}).geometry


# --- Slurm's side ---


def test_slurm_side_of_a_job_that_fits_a_node(lua: Any) -> None:
    written = lua.submit(min_nodes=2, max_nodes=2, num_tasks=4, shared=0, ntasks_per_node=2).written
    written.pop("script")
    assert written == {
        "priority": "0",
        "pn_min_memory": "64",
        "shared": "65534",
        "ntasks_per_node": "65534",
        "pn_min_cpus": "65534",
        "min_cpus": "4",
        "min_nodes": "1",
        "max_nodes": "1",
        "requeue": "1",
    }


def test_slurm_side_of_a_job_larger_than_a_node(lua: Any) -> None:
    written = lua.submit(min_nodes=2, max_nodes=2, cpus_per_task=3).written
    assert (written["min_cpus"], written["min_nodes"], written["max_nodes"]) == ("6", "1", str(NO_VAL))


def test_slurm_side_without_a_limit_of_cpus(lua: Any) -> None:
    outcome = lua.run(
        what="submit",
        site={"partitions": ["vjob"], "wrapper": SITE["wrapper"]},
        job={**UNSET, "partition": "vjob", "num_tasks": 100},
    )
    assert outcome.written["max_nodes"] == "1"
    assert str(outcome.geometry) == "vms=100,cpus=1,memory=1024,ntasks=100,cpus_per_task=1,image=default"


def test_no_requeue_stays_the_users_choice(lua: Any) -> None:
    assert "requeue" not in lua.submit(requeue=0).written


def test_a_script_that_is_wrapped_already_is_wrapped_again(lua: Any) -> None:
    """What the user writes there is theirs, and runs inside the VM; the geometry is read from the first line."""
    forged = f"#!{SITE['wrapper']} vms=1,cpus=99,memory=99999,ntasks=1,cpus_per_task=1,image=default\n#!/bin/sh\n"
    written = lua.submit(script=forged).written
    assert written["script"].split("\\n")[0].endswith("vms=1,cpus=1,memory=256,ntasks=1,cpus_per_task=1,image=default")
    assert written["script"].split("\\n", 1)[1] == forged.replace("\n", "\\n")


def test_a_job_with_dependencies_is_gated_and_not_held(lua: Any) -> None:
    """Slurm does not look at the dependencies of a held job."""
    written = lua.submit(dependency="afterok:1").written
    assert "priority" not in written
    assert abs(int(written["begin_time"]) - time.time() - GATE_S) < 60


def test_the_gate_keeps_the_users_begin_time(lua: Any) -> None:
    begin = int(time.time()) + 5000
    assert int(lua.submit(dependency="afterok:1", begin_time=begin).written["begin_time"]) == begin + GATE_S


def test_begin_time_without_dependency_is_left_alone(lua: Any) -> None:
    written = lua.submit(begin_time=int(time.time()) + 5000).written
    assert "begin_time" not in written
    assert written["priority"] == "0"


def test_image(lua: Any) -> None:
    site = {"images": ["default", "debian-12"]}
    assert lua.submit(site=site, environment={"RMSPLUGIN_IMAGE": "debian-12"}).geometry.image == "debian-12"
    assert lua.submit(site=site, environment={"RMSPLUGIN_IMAGE": ""}).geometry.image == "default"
    assert lua.submit(site=site, environment=None).geometry.image == "default"
    refusal = lua.submit(site=site, environment={"RMSPLUGIN_IMAGE": "x y%s"}).refusal
    assert refusal == "RMSPLUGIN_IMAGE=x y%s: there is no such image here; there are: default, debian-12"


# --- refusals ---

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"script": None}, "salloc and srun cannot start VMs: submit a script with sbatch"),
    ({"script": ""}, "salloc and srun cannot start VMs"),
    ({"het_job_offset": 0}, "heterogeneous jobs cannot run in VMs: submit one job for each part"),
    ({"het_job_offset": 1, "script": None}, "heterogeneous jobs cannot run in VMs"),
    ({"gres": "gres:gpu:1"}, "VMs have no GPUs"),
    *(
        ({f"tres_per_{what}": "gres:gpu:1"}, "VMs have no GPUs or other generic resources: leave out --gres")
        for what in ("job", "node", "socket", "task")
    ),
    ({"tres_per_task": "cpu=2,gres/gpu:1"}, "VMs have no GPUs"),
    ({"cpus_per_tres": "gres:gpu:2"}, "VMs have no GPUs"),
    ({"mem_per_tres": "gres:gpu:2"}, "VMs have no GPUs"),
    ({"req_nodes": "n1"}, "VMs move between nodes: leave out --nodelist and --exclude"),
    ({"exc_nodes": "n1"}, "VMs move between nodes"),
    ({"priority": 0}, "--hold has no effect: leave it out"),
    ({"begin_time": int(time.time()) + GATE_S + 99999}, "--begin is more than ten years ahead"),
    ({"partition": "vjob,plain"}, "one partition only, not to vjob,plain"),
    ({"partition": "plain,vjob"}, "one partition only, not to plain,vjob"),
    ({"partition": "vjob,vjob2"}, "one partition only, not to vjob,vjob2"),
    ({"min_mem_per_node": 0}, "--mem=0 asks for all memory of a node"),
    ({"min_nodes": 3, "num_tasks": 2}, "2 tasks cannot use 3 VMs"),
    ({"num_tasks": 9}, "9 VMs are more than the 8 that a job can have here"),
    ({"cpus_per_task": 5}, "no node can host a VM of 5 CPUs (the most is 4)"),
    ({"min_mem_per_node": 95}, "a VM of 95 MiB is too small to boot (the least is 96)"),
    ({"min_mem_per_node": 4097}, "no node can host a VM of 4097 MiB (the most is 4096)"),
    ({"num_tasks": 7, "cpus_per_task": 2}, "7 VMs of 2 CPUs are more than the 12 CPUs that there are"),
    ({"min_nodes": 3, "min_mem_per_node": 3000}, "3 VMs of 3000 MiB are more than the 8192 MiB that there are"),
]


@pytest.mark.parametrize(("job", "message"), REFUSALS)
def test_refusals(lua: Any, job: dict[str, Any], message: str) -> None:
    assert message in lua.submit(**job).refusal


@pytest.mark.parametrize(
    "job",
    [
        {"num_tasks": 8},
        {"cpus_per_task": 4},
        {"min_mem_per_node": 4096},
        {"num_tasks": 6, "cpus_per_task": 2},
        {"min_nodes": 2, "min_mem_per_node": 4096},
        {"licenses": "matlab:1"},
        {"features": "big"},
        {"reservation": "x"},
        {"array_inx": "1-3%1"},
    ],
)
def test_allowed(lua: Any, job: dict[str, Any]) -> None:
    assert lua.submit(**job).geometry


# --- faults of ours reject vjobs, and only them ---


@pytest.mark.parametrize(
    ("site", "job", "reason"),
    [
        ({"broken": "site.lua:3: syntax"}, {}, "site.lua:3: syntax"),
        ({"wrapper": "rmsplugin-job"}, {}, "absolute path"),
        ({"wrapper": "/opt/a b/rmsplugin-job"}, {}, "absolute path"),
        ({"wrapper": "/" + "x" * 250}, {}, "too long"),
        ({"images": ["a b"]}, {}, "letters"),
        ({"max_vms": "many"}, {}, "compare"),
        ({}, {"num_tasks": "RAISE"}, "cannot be read"),
        ({}, {"environment": "RAISE"}, "cannot be read"),
    ],
)
def test_a_fault_rejects(lua: Any, site: dict[str, Any], job: dict[str, Any], reason: str) -> None:
    outcome = lua.submit(site=site, **job)
    assert outcome.code == -1
    assert "script" not in outcome.written
    error, user = outcome.said
    assert error.startswith("error: rmsplugin: job_submit: ")
    assert reason in error
    assert user.startswith("user: this job was refused because of a fault in the site's VM plugin")


def test_a_fault_rejects_a_change(lua: Any) -> None:
    outcome = lua.modify(nice="RAISE")
    assert outcome.code == 2002
    assert "cannot be read" in outcome.said[0]


# --- changes of a submitted job ---

FIXED: list[dict[str, Any]] = [
    {"priority": 4294967295},  # scontrol release
    {"priority": 0},  # scontrol hold
    {"priority": 7},
    {"nice": 2147483653},
    {"num_tasks": 3},
    {"min_cpus": 3},
    {"max_cpus": 3},
    {"min_nodes": 1},
    {"max_nodes": 2},
    {"cpus_per_task": 2},
    {"pn_min_cpus": 1},
    {"pn_min_memory": 70},
    {"ntasks_per_node": 2},
    {"shared": 0},
    {"req_nodes": "n2"},
    {"req_nodes": ""},
    {"exc_nodes": "n2"},
    {"gres": "gres:gpu:1"},
    {"tres_per_node": "gres:gpu:1"},
]


@pytest.mark.parametrize("change", FIXED)
def test_what_users_may_not_change(lua: Any, change: dict[str, Any]) -> None:
    refused = lua.modify(**change)
    assert refused.code == 2002
    assert refused.said[0].startswith("user: ")
    for uid in (0, 64030):
        assert lua.modify(uid=uid, **change) == Outcome(0, {}, [])
    assert lua.modify(was_in="plain", **change) == Outcome(0, {}, [])


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"time_limit": 5},
        {"name": "x"},
        {"dependency": "afterany:1"},
        {"comment": "x"},
        {"begin_time": 1900000000},
        {"partition": "vjob"},
    ],
)
def test_what_users_may_change(lua: Any, change: dict[str, Any]) -> None:
    assert lua.modify(**change) == Outcome(0, {}, [])


def test_begin_time_of_a_gated_job_is_not_the_users_to_change(lua: Any) -> None:
    assert lua.modify(had=4294901757, begin_time=1900000000).code == 2002
    assert lua.modify(had=4294901757, begin_time=1900000000, uid=64030).code == 0


@pytest.mark.parametrize("uid", [0, 2001, 64030])
@pytest.mark.parametrize(
    ("source", "target"), [("vjob", "plain"), ("plain", "vjob"), ("vjob", "vjob2"), ("plain", "plain,vjob")]
)
def test_nobody_moves_a_job_in_or_out(lua: Any, source: str, target: str, uid: int) -> None:
    refused = lua.run(what="modify", job={"partition": target}, record={"partition": source, "priority": 0}, uid=uid)
    assert refused.code == 2002
    assert "cannot be moved into, out of or between" in refused.said[0]


def test_moves_between_other_partitions(lua: Any) -> None:
    moved = lua.run(what="modify", job={"partition": "other"}, record={"partition": "plain", "priority": 1})
    assert moved == Outcome(0, {}, [])


def test_slurm_uid_is_found_out(lua: Any) -> None:
    """Without the setting it is who slurmctld, here the interpreter, runs as."""
    site = {key: value for key, value in SITE.items() if key != "slurm_uid"}
    record = {"partition": "vjob", "priority": 0}
    assert lua.run(what="modify", job={"nice": 5}, record=record, uid=os.getuid(), site=site).code == 0
    assert lua.run(what="modify", job={"nice": 5}, record=record, uid=os.getuid() + 1, site=site).code == 2002


# --- job_submit.lua ---


def through_job_submit(lua: Any, site: str | None, partition: str, *, module: bool = True) -> Outcome:
    directory = lua.directory / "slurm"
    directory.mkdir()
    site_file = lua.directory / "site.lua"
    text = (LUA / "job_submit.lua").read_text()
    assert text.count('"/etc/rmsplugin/site.lua"') == 1
    (directory / "job_submit.lua").write_text(text.replace("/etc/rmsplugin/site.lua", str(site_file)))
    if module:
        shutil.copy(LUA / "rmsplugin.lua", directory)
    if site is not None:
        site_file.write_text(site)
    outcome: Outcome = lua.run(
        what="submit", through="job_submit", job={**UNSET, "partition": partition}, lua=str(directory)
    )
    return outcome


def test_example_without_settings(lua: Any) -> None:
    outcome = through_job_submit(lua, None, "vjob")
    assert outcome.written["script"].startswith("#!/usr/bin/rmsplugin-job vms=1,")


def test_example_with_settings(lua: Any) -> None:
    outcome = through_job_submit(lua, 'return { partitions = {"big"}, wrapper = "/w" }', "big")
    assert outcome.written["script"].startswith("#!/w vms=1,")


@pytest.mark.parametrize("site", ["return {", "return 7", "error('x')", "return { wrapper = '/w' }", ""])
def test_example_with_broken_settings(lua: Any, site: str) -> None:
    outcome = through_job_submit(lua, site, "vjob")
    assert outcome.code == -1
    assert "site.lua" in outcome.said[0]


def test_example_with_broken_settings_leaves_other_partitions_alone(lua: Any) -> None:
    assert through_job_submit(lua, "return {", "plain") == Outcome(0, {}, [])


def test_example_without_the_module(lua: Any) -> None:
    outcome = through_job_submit(lua, None, "vjob", module=False)
    assert outcome.code == -1
    assert (
        outcome.said[-1]
        == "user: jobs that run in VMs are refused: rmsplugin.lua is not installed; tell the administrators"
    )


def test_example_without_the_module_leaves_other_partitions_alone(lua: Any) -> None:
    outcome = through_job_submit(lua, None, "plain", module=False)
    assert (outcome.code, outcome.written) == (0, {})
