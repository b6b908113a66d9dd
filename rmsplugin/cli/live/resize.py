"""Resize: `rmsplugin resize` has the VMs of a running vjob do with less than is booked for them, or takes it back."""

from __future__ import annotations

import argparse

from rmsplugin.cli.live.keeping import keep_for_each
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.model.wording import counted


def add_command(commands: options.Commands) -> None:
    """Add resize to the command line."""
    parser = options.add_command(
        commands,
        "resize",
        "have the VMs of a running vjob do with fewer CPUs or less memory, or take it back",
        _resize,
        """
        For the vjob's user and for operators; for a job that needs less from now on. The engine keeps it until the
        vjob ends, and carries it out from its next cycle on:
          --cpus    the guest's kernel takes the other CPUs off line; programs that run there go on with the rest.
                    A container goes on seeing all CPUs of its node, and uses no more than so many.
          --memory  the guest is asked to do with so much of the memory that was requested: caches are given up first.
                    It takes back what its programs need before one of them is killed. Only where memory is booked as
                    it is observed. A container is held to it: less than it uses is refused; if it needs more later, one
                    of its programs is killed, as at the end of the memory that was requested.
        The Slurm job keeps what it has: it is charged as before, and can have all of it back (`all`), but no more.
        What a VM gives up is there for others when it is not seen in use any more. `rmsplugin vjobs
        --format=jobid,cpus,memory,resized` shows what was asked for, and `rmsplugin events --vjob` what was done.

        examples:
          rmsplugin resize 12 --cpus 2
          rmsplugin resize 12 15 '20_[1-3]' --memory 2G
          rmsplugin resize 12 --cpus all --memory all
        """,
    )
    parser.add_argument("jobs", metavar="JOBID", nargs="+", type=options.job_ids, help=options.JOB_HELP)
    parser.add_argument("--cpus", metavar="N|all", type=options.amount, help="the CPUs of each VM")
    parser.add_argument(
        "--memory",
        metavar="SIZE|all",
        type=options.memory_mib,
        help="the memory of each VM, as `sbatch --mem` takes it",
    )
    parser.add_argument("--json", action="store_true", help="the vjobs for which it is kept, as JSON")
    parser.set_defaults(misused=parser.error)


def _resize(arguments: argparse.Namespace) -> int:
    cpus, memory_mib = arguments.cpus, arguments.memory
    if cpus is None and memory_mib is None:
        arguments.misused("give --cpus, --memory or both")
    engine = find_engine(arguments)
    words = [
        _words(cpus, counted(cpus or 0, "CPU"), "CPUs"),
        _words(memory_mib, f"{memory_mib} MiB", "MiB"),
    ]
    return keep_for_each(
        arguments,
        lambda name: engine.resize(name, cpus=cpus, memory_mib=memory_mib),
        {"cpus": cpus, "memory_mib": memory_mib},
        f"each VM is to have {' and '.join(filter(None, words))}, from the next cycle on",
    )


def _words(wanted: int | None, so_many: str, unit: str) -> str:
    if wanted is None:
        return ""
    return so_many if wanted else f"all {unit} that are booked"
