"""Slurm by pyslurm: jobs are read in one call, without a process; the commands do all the rest.

A release of pyslurm fits only one release of Slurm, and the names of its attributes change between them; this module
uses few, which 22.5 and its successors share. Nodes, partitions, reservations and configuration are spelled differently
in each, and actions need the care of ``SlurmCli`` in any case, so these stay with the commands. The bound of pyslurm's
calls is Slurm's own (MessageTimeout), not ``slurm.command_timeout_s``.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rmsplugin.adapters.rms import slurm_text
from rmsplugin.adapters.rms.base import RmsJob, RmsSnapshot
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_commands import meaning
from rmsplugin.model.hostlist import expand

log = logging.getLogger(__name__)

_IMPORT_S = 20


class SlurmPyslurm:
    """The Rms over pyslurm, on a host of the cluster."""

    def __init__(self, commands: SlurmCli) -> None:
        """Import pyslurm.

        Args:
            commands: does the work that pyslurm does not do.

        Raises:
            ImportError: pyslurm or its libslurm is not installed.
        """
        # libslurm shortens the list of an array's elements to 64 characters unless told otherwise.
        os.environ["SLURM_BITSTR_LEN"] = "0"
        import pyslurm

        self._pyslurm = pyslurm
        self._commands = commands
        self.batch_script = commands.batch_script
        self.geometry = commands.geometry
        self.job = commands.job
        self.pulse = commands.pulse
        self.leaf_switches = commands.leaf_switches
        self.jobs = commands.jobs
        self.unheard = commands.unheard
        self.ended = commands.ended
        self.mail_wish = commands.mail_wish
        self.overseers = commands.overseers
        self.reserve_gate = commands.reserve_gate
        self.split = commands.split
        self.open_gate = commands.open_gate
        self.close_gate = commands.close_gate
        self.hold = commands.hold
        self.suspend = commands.suspend
        self.resume = commands.resume
        self.requeue = commands.requeue
        self.cancel = commands.cancel
        self.tell_end = commands.tell_end
        self.comment = commands.comment
        self.request_room = commands.request_room
        self.extend_room = commands.extend_room
        self.power_down = commands.power_down
        self.power_up = commands.power_up
        self.repair_node = commands.repair_node

    @staticmethod
    def is_installed() -> bool:
        """Whether there is a pyslurm at all; it need not fit."""
        try:
            return importlib.util.find_spec("pyslurm") is not None
        except ValueError:  # imported already, from no file
            return True

    @staticmethod
    def fits(version: str) -> bool:
        """Whether pyslurm imports here and was made for this release of Slurm, such as "22.05.8"."""
        return _release(_importable_version()) == _release(version) != ()

    def snapshot(self) -> RmsSnapshot:
        """See ``Rms.snapshot``."""
        try:
            return self._commands.snapshot_with(self._jobs)
        except self._pyslurm.RPCError as error:
            raise meaning(" ".join(str(error).split())) from None

    def _jobs(self) -> tuple[RmsJob, ...]:
        now = int(time.time())
        rows: list[slurm_text.JobRow] = []
        limits: dict[int, int] = {}
        for job in self._pyslurm.Jobs.load().values():
            rows += (slurm_text.job_row(fields, self._commands.gate, now) for fields in _fields(job))
            if job.array_tasks_parallel:
                limits[job.array_id] = job.array_tasks_parallel
        return tuple(row.job for row in slurm_text.within_array_limits(slurm_text.with_split(rows), limits))


def _importable_version() -> str:
    """The version of pyslurm; empty if it cannot be imported.

    libslurm, which pyslurm loads, ends the process if it finds no slurm.conf. So another process imports it first.
    """
    if importlib.util.find_spec("pyslurm") is None:
        return ""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-P", "-c", "import pyslurm; print(); print(pyslurm.__version__)"]
    try:
        tried = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=_IMPORT_S
        )
    except subprocess.TimeoutExpired:
        log.warning("pyslurm is not used: its import took more than %d s", _IMPORT_S)
        return ""
    version = tried.stdout.strip().splitlines()[-1:]
    if tried.returncode == 0 and version:
        return version[0]
    said = tried.stderr.strip().splitlines()[-1:] or [f"printed nothing, exit status {tried.returncode}"]
    log.warning("pyslurm is not used: it cannot be imported: %s", said[0])
    return ""


def _release(version: str) -> tuple[int, ...]:
    """The common part of a version of pyslurm and Slurm: pyslurm 22.5.3 is for Slurm 22.05.x."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _fields(job: Any) -> Iterator[Mapping[str, str]]:
    """The fields of the job as squeue would print them; for elements of an array without own records, of each."""
    fields = {
        "display_id": str(job.id),
        "job_id": str(job.id),
        "array_id": str(job.array_id or job.id),
        "task": "N/A",
        "partition": job.partition,
        "user": job.user_name or str(job.user_id),
        "uid": str(job.user_id),
        "gid": str(job.group_id),
        "word": job.state,
        "reason": job.state_reason,
        "priority": str(job.priority or 0),
        "nice": str(job.nice or 0),
        "account": job.account or "",
        "cpus": str(job.cpus),
        "memory": str(job.memory_per_node or job.memory_per_cpu or 0),
        "submit": str(job.submit_time or 0),
        "start": str(job.start_time or 0),
        "end": str(job.end_time or 0),
        "limit": _limit(job.time_limit),
        # Only its presence counts, and 22.5 gives its parts without Slurm's word on whether they are fulfilled.
        "dependency": "unfulfilled" if job.dependencies else "",
        "nodes": job.allocated_nodes or "",
        "required_nodes": job.required_nodes or "",
        "batch_host": job.batch_host or "",
        "licenses": ",".join(job.licenses or ()),
        "restarts": str(job.requeue_count or 0),
        "eligible_time": str(job.eligible_time or 0),
        "preempt_time": str(job.preempt_time or 0),
        "accrue_time": str(job.accrue_time or 0),
        "mcs_label": job.mcs_label or "",
        "name": job.name or "",
    }
    if not job.array_id:
        yield fields
    elif job.array_task_id is not None:
        yield _element(fields, job.array_id, str(job.array_task_id))
    elif job.array_tasks_waiting:
        for task in expand(f"[{job.array_tasks_waiting}]"):
            yield _element(fields, job.array_id, task)
    else:
        yield fields


def _element(fields: Mapping[str, str], array_id: int, task: str) -> Mapping[str, str]:
    return {**fields, "display_id": f"{array_id}_{task}", "task": task}


def _limit(minutes: Any) -> str:
    """A time limit as squeue prints it: pyslurm has minutes, or a word."""
    return f"{minutes}:00" if isinstance(minutes, int) else "UNLIMITED"
