"""Simulating: the command that replays a trace of jobs on a cluster that there need not be."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmsplugin.cli import arguments as options
from rmsplugin.cli.table import printable
from rmsplugin.errors import WorkloadError

if TYPE_CHECKING:
    from rmsplugin.cli.simulate.told import Simulated
    from rmsplugin.simulation.capacity import Cluster

#: Those that need no context switch.
POLICIES = ("fcfs", "easy")

#: Called with what is being done and the part of it that is, from 0 to 1.
Show = Callable[[str, float], None]


def add_command(commands: options.Commands) -> None:
    """Add simulate to the command line."""
    parser = options.add_command(
        commands,
        "simulate",
        "replay a trace of jobs on a cluster under a policy, in virtual time",
        _simulate,
        """
        Needs no engine, no cluster and no settings. A job of P processors is P VMs of one CPU. The trace is in the
        Standard Workload Format 2.2 (SWF), as those of the Parallel Workloads Archive. Lines that cannot be simulated
        are counted on standard error by their reasons, and the first ones named; --json names up to 1,000 a reason.
        Exit status 2: nothing of the trace can be simulated, and nothing is written.

        fcfs: First Come First Serve. easy: the same with EASY backfilling by the requested times. Both suspend nothing.
        The operator guide, section 'Simulating workloads', has the rules, and what --json prints.

        --jobs-out has a line for each job, in the order of the queue: job_id,submit,start,end (seconds, as in the
        trace), processors, estimate. The file is replaced as a whole, when all is computed.

        examples:
          rmsplugin simulate --workload hpc2n.swf.gz --nodes 120 --cpus-per-node 2 --policy easy
          rmsplugin simulate --workload kth.swf --nodes 100 --cpus-per-node 1 --policy fcfs --jobs-out fcfs.csv --json

          zcat kth.swf.gz |
          rmsplugin simulate --workload - --nodes 100 --cpus-per-node 1 --policy easy --jobs-out -
        """,
    )
    parser.add_argument(
        "--workload", metavar="FILE", required=True, help="the trace: an SWF file, gzipped or not; - is standard input"
    )
    parser.add_argument(
        "--nodes", metavar="N", type=options.positive_number, required=True, help="how many nodes there are, all equal"
    )
    parser.add_argument(
        "--cpus-per-node", metavar="C", type=options.positive_number, required=True, help="CPUs of a node"
    )
    parser.add_argument(
        "--memory-per-node",
        metavar="MIB",
        type=options.positive_number,
        help="memory of a node for VMs (default: memory is not looked at)",
    )
    parser.add_argument(
        "--memory-per-vm",
        metavar="MIB",
        type=options.positive_number,
        help="memory of a VM where the trace has none (default: a CPU's share of --memory-per-node)",
    )
    parser.add_argument(
        "--policy", metavar="POLICY", choices=POLICIES, required=True, help=f"who starts: {' or '.join(POLICIES)}"
    )
    parser.add_argument(
        "--jobs-out",
        metavar="FILE",
        help="write when each job starts and ends, as CSV; - prints it, and nothing else, on standard output",
    )
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    parser.set_defaults(refuse=parser.error)


def _refuse_misuse(arguments: argparse.Namespace) -> None:
    """End with status 2 where options do not go together."""
    if arguments.memory_per_vm is not None and arguments.memory_per_node is None:
        arguments.refuse("--memory-per-vm is looked at only with --memory-per-node")
    if arguments.jobs_out == "":
        arguments.refuse("argument --jobs-out: the name of a file is empty")
    if arguments.jobs_out == "-" and arguments.json:
        arguments.refuse("--jobs-out - and --json both print on standard output; name a file for the jobs")
    if arguments.jobs_out not in (None, "-") and _same_file(arguments.workload, arguments.jobs_out):
        arguments.refuse("--jobs-out would replace the trace of --workload")


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # one of them is not there, or no path at all
        return False


def _simulate(arguments: argparse.Namespace) -> int:
    from rmsplugin.cli.output_file import OutputFile
    from rmsplugin.cli.simulate import told, trace_file
    from rmsplugin.simulation.capacity import Cluster

    _refuse_misuse(arguments)
    # Before anything is computed: nobody waits for an answer that cannot be written.
    output = OutputFile("--jobs-out", arguments.jobs_out) if arguments.jobs_out not in (None, "-") else None
    cluster = Cluster(arguments.nodes, arguments.cpus_per_node, arguments.memory_per_node, arguments.memory_per_vm)
    with _display() as show:
        simulated = _simulated(arguments.workload, cluster, arguments.policy, show)
    workload = simulated.workload
    for line in told.faulty_lines(trace_file.shown_name(arguments.workload), workload.lines, workload.faults):
        print(printable(f"rmsplugin {arguments.command}: warning: {line}"), file=sys.stderr)
    if output is not None:
        output.write(told.csv_text(simulated))
    if arguments.json:
        print(json.dumps(told.document(simulated), indent=1, allow_nan=False))
    elif arguments.jobs_out == "-":
        print(told.csv_text(simulated), end="")
    else:
        for line in told.text_lines(simulated):
            print(printable(line))
    return 0


def _simulated(path: str, cluster: Cluster, policy: str, show: Show) -> Simulated:
    """Read, replay and measure."""
    from rmsplugin.cli.simulate import told, trace_file
    from rmsplugin.simulation.capacity import fitting
    from rmsplugin.simulation.metrics import measure
    from rmsplugin.simulation.short_way import start_times

    began = time.perf_counter()
    name = trace_file.shown_name(path)
    reading = f"reading {name}"
    show(reading, 0.0)
    workload = trace_file.read(path, lambda part: show(reading, part))
    read = time.perf_counter()
    try:
        jobs, vms = fitting(workload.jobs, cluster, workload.faults)
    except WorkloadError as error:
        raise WorkloadError(f"{name}: {error}") from None
    if not jobs:
        faults = "\n".join(told.faulty_lines(name, workload.lines, workload.faults))
        raise WorkloadError(f"{name}: has no job" + (f" that can be simulated\n{faults}" if faults else ""))
    doing = f"simulating {len(jobs)} jobs"
    started = start_times(
        jobs, vms, backfill=policy == "easy", tell=lambda submitted: show(doing, submitted / len(jobs))
    )
    metrics = measure(jobs, started, cluster.cpus)
    seconds = {"reading": read - began, "simulation": time.perf_counter() - read}
    return told.Simulated(workload, cluster, policy, jobs, started, metrics, seconds)


@contextmanager
def _display() -> Iterator[Show]:
    """A bar on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _doing, _part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        *(TextColumn("{task.description}", markup=False), BarColumn()),
        *(TaskProgressColumn(), TimeElapsedColumn()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda doing, part: progress.update(task, description=printable(doing), completed=part)
