"""Runs lua/rmsplugin.lua as slurmctld does: on real Lua interpreters, with a fake ``slurm`` table."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

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
    "image_memory_mib": {"default": 96},
    "slurm_uid": 64030,
}

# What Slurm 22.05 hands over for `sbatch script`: measured.
UNSET: dict[str, Any] = {
    "argc": 1,
    "begin_time": 0,
    "bitflags": 436207616,
    "boards_per_node": 0,
    "contiguous": 0,
    "cores_per_socket": NO_VAL16,
    "cpu_freq_gov": NO_VAL,
    "cpu_freq_max": NO_VAL,
    "cpu_freq_min": NO_VAL,
    "cpus_per_task": NO_VAL16,
    "cron_job": False,
    "default_account": "users",
    "delay_boot": NO_VAL,
    "end_time": 0,
    "environment": {"HOME": "/home/alice"},
    "group_id": 2001,
    "het_job_offset": NO_VAL,
    "immediate": 0,
    "mail_type": 0,
    "max_cpus": NO_VAL,
    "max_nodes": NO_VAL,
    "min_cpus": 1,
    "min_nodes": NO_VAL,
    "name": "s.sh",
    "nice": NO_VAL,
    "ntasks_per_board": 0,
    "ntasks_per_core": NO_VAL16,
    "ntasks_per_gpu": NO_VAL16,
    "ntasks_per_node": NO_VAL16,
    "ntasks_per_socket": NO_VAL16,
    "ntasks_per_tres": NO_VAL16,
    "num_tasks": NO_VAL,
    "pack_job_offset": NO_VAL,
    "pn_min_cpus": NO_VAL16,
    "pn_min_memory": NO_VAL64,
    "pn_min_tmp_disk": NO_VAL,
    "power_flags": 0,
    "priority": NO_VAL,
    "reboot": NO_VAL16,
    "req_switch": NO_VAL,
    "requeue": NO_VAL16,
    "script": "#!/bin/sh\nsleep 30\n",
    "shared": NO_VAL16,
    "site_factor": NO_VAL,
    "sockets_per_board": 0,
    "sockets_per_node": NO_VAL16,
    "spank_job_env_size": 0,
    "std_in": "/dev/null",
    "threads_per_core": NO_VAL16,
    "time_limit": NO_VAL,
    "time_min": NO_VAL,
    "user_id": 2001,
    "user_name": "alice",
    "wait4switch": NO_VAL,
    "work_dir": "/home/alice",
}

# What it hands over for `scontrol update` of nothing that is here: measured.
UNCHANGED: dict[str, Any] = {
    **{key: value for key, value in UNSET.items() if not isinstance(value, (str, dict))},
    "argc": 0,
    "bitflags": 503316480,
    "contiguous": NO_VAL16,
    "default_account": "users",
    "group_id": NO_VAL,
    "het_job_offset": 0,
    "mail_type": NO_VAL16,
    "min_cpus": NO_VAL,
}

# What it knows of a job that waits behind the gate.
RECORD: dict[str, Any] = {"partition": "vjob", "licenses": "vjobgate", "priority": 25000, "user_id": 2001}

HARNESS = r"""
local said = {}
slurm = {
  SUCCESS = 0, ERROR = -1, ESLURM_ACCESS_DENIED = 2002, NO_VAL = 4294967294, NO_VAL16 = 65534, SPREAD_JOB = 256,
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
    if isinstance(value, bool):
        return str(value).lower()
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
    def denial(self) -> str:
        """What the user is told of a change that is not made; the code is that for which scontrol has fitting words."""
        assert self.code == 2002
        assert self.written == {}
        (line,) = self.said
        assert line.startswith("user: ")
        return line.removeprefix("user: ")

    @property
    def geometry(self) -> Geometry:
        assert self.code == 0, self.said
        assert self.said == []
        line, _, rest = self.written["script"].partition("\\n")
        assert rest == UNSET["script"].replace("\n", "\\n")
        assert len(line) <= 250
        interpreter, _, text = line.partition(" ")
        assert interpreter == "#!" + SITE["wrapper"]
        return Geometry.parse(text)


@dataclass
class Runner:
    """One interpreter; ``directory`` takes the files that it reads."""

    interpreter: str
    directory: Path

    def run(self, **given: Any) -> Outcome:
        harness, data = self.directory / "harness.lua", self.directory / "input.lua"
        harness.write_text(HARNESS)
        data.write_text("return " + literal({"default": "plain", "uid": 2001, "site": SITE, "lua": str(LUA), **given}))
        done = subprocess.run(
            [self.interpreter, str(harness), str(data)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd=self.directory,
        )
        assert done.returncode == 0, done.stderr
        rows = [line.split("\t", 2) for line in done.stdout.splitlines()]
        return Outcome(
            code=int(float(rows[0][1])),
            written={row[1]: row[2] for row in rows if row[0] == "written"},
            said=[row[1] for row in rows if row[0] == "said"],
        )

    def submit(self, site: dict[str, Any] | None = None, default: str = "plain", **job: Any) -> Outcome:
        """Submit a job of these fields to the partition vjob; None is a field that is not there."""
        values = {**UNSET, "partition": "vjob", **job}
        if isinstance(job.get("num_tasks"), int) and "min_cpus" not in job:  # as sbatch does
            values["min_cpus"] = job["num_tasks"] * job.get("cpus_per_task", 1)
        values = {key: value for key, value in values.items() if value is not None}
        return self.run(what="submit", job=values, site={**SITE, **(site or {})}, default=default)

    def modify(self, uid: int = 2001, record: dict[str, Any] | None = None, **job: Any) -> Outcome:
        known = {**RECORD, **(record or {})}
        known = {key: value for key, value in known.items() if value is not None}
        return self.run(what="modify", job={**UNCHANGED, **job}, record=known, uid=uid)
