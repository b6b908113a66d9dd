"""Using: `rmsplugin usage`, what the processes of vjobs have used inside their VMs, with seff's lines."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable

if TYPE_CHECKING:
    from rmsplugin.api.answers import Usage

_CLUSTER_S = 10.0


def add_command(commands: options.Commands) -> None:
    """Add usage to the command line."""
    parser = options.add_command(
        commands,
        "usage",
        "show what the processes of vjobs have used inside their VMs",
        _usage,
        """
        Slurm's accounting sees the wrapper of a vjob, and not the processes in its VMs. This command tells of vjobs
        what `seff` tells of other jobs; of a running vjob it tells the usage so far. Of a job array it shows all
        elements that have begun. Users may ask for their own vjobs, operators for all.

        CPU time is exact. Memory is the most that was seen of all processes together. It includes files that lie in
        memory, and not the kernel's cache of other files. It is measured twice a second at first, later every ten
        seconds. Disk counts bytes read and written by any call, network file systems and pipes included. All figures
        are of the present run of the script; sleeps do not count. Time is the time with running VMs.

        examples:
          rmsplugin usage 12
          rmsplugin usage 12_3 14
          rmsplugin usage 12 --json
        """,
    )
    parser.add_argument(
        "jobs",
        nargs="+",
        type=options.job_id,
        metavar="JOBID",
        help=options.JOB_HELP,
    )
    parser.add_argument("--json", action="store_true", help="print JSON: under `usage` an object for each vjob")


def _usage(arguments: argparse.Namespace) -> int:
    engine = find_engine(arguments)
    found: list[Usage] = []
    for name in arguments.jobs:
        found += engine.usage(name)
    if arguments.json:
        print_document(arguments, {"usage": found})
        return 0
    cluster = _cluster()
    print("\n\n".join("\n".join(lines_of(each, cluster)) for each in found))
    return 0


def _cluster() -> str:
    """ClusterName of Slurm's configuration; nothing where Slurm cannot be asked."""
    try:
        told = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, timeout=_CLUSTER_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = (line.partition("=") for line in told.stdout.splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == "ClusterName"), "")


def lines_of(usage: Mapping[str, Any], cluster: str) -> Sequence[str]:
    """The lines of one vjob, as seff has them, and of the disk.

    Args:
        usage: an object of ``GET /v1/jobs/ID/usage``.
        cluster: its name; empty: not known, the line is left out.
    """
    return [
        f"Job ID: {usage['display_id']}",
        *([f"Cluster: {printable(cluster)}"] if cluster else []),
        f"User/Group: {printable(usage['user'])}/{printable(usage['group'])}",
        f"State: {_state(usage)}",
        f"Nodes: {usage['vms']}",
        f"Cores per node: {usage['cpus']}",
        *_cpu(usage),
        f"Job Wall-clock time: {clock(usage['elapsed_s'])}",
        *_memory(usage),
        *_disk(usage),
    ]


def _state(usage: Mapping[str, Any]) -> str:
    if usage["signal"]:
        return f"{usage['state']} (signal {usage['signal']})"
    return usage["state"] if usage["exit_code"] is None else f"{usage['state']} (exit code {usage['exit_code']})"


def _cpu(usage: Mapping[str, Any]) -> list[str]:
    if usage["cpu_s"] is None:
        return ["CPU Utilized: not known"]
    of = clock(usage["cpus_total"] * usage["elapsed_s"])
    return [
        f"CPU Utilized: {clock(usage['cpu_s'])}",
        f"CPU Efficiency: {percent(usage['cpu_efficiency'])} of {of} core-walltime",
    ]


def _memory(usage: Mapping[str, Any]) -> list[str]:
    if usage["memory_used_mib"] is None:
        return ["Memory Utilized: not known"]
    of, each = size(usage["memory_total_mib"]), size(usage["memory_mib"])
    most = f" (the most in one VM: {size(usage['memory_most_mib'])})" if usage["vms"] > 1 else ""
    return [
        f"Memory Utilized: {size(usage['memory_used_mib'])}{most}",
        f"Memory Efficiency: {percent(usage['memory_efficiency'])} of {of} ({each}/node)",
    ]


def _disk(usage: Mapping[str, Any]) -> list[str]:
    if usage["read_mib"] is None:
        return []
    return [f"Disk Read: {size(usage['read_mib'])}", f"Disk Written: {size(usage['written_mib'])}"]


def clock(seconds: float) -> str:
    """Seconds as Slurm writes them: [D-]HH:MM:SS."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02d}:{minutes:02d}:{rest:02d}"


def percent(share: float | None) -> str:
    """A share with two digits, as seff has it."""
    return "0.00%" if share is None else f"{100 * share:.2f}%"


def size(mib: float) -> str:
    """MiB as seff writes them."""
    return f"{mib / 1024:.2f} GB" if mib >= 1024 else f"{mib:.2f} MB"
