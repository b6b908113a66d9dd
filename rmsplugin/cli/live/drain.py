"""Drain: `rmsplugin drain NODE` by Slurm's own drain, until the VMs have left; and `rmsplugin undrain NODE`."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.bar import bar
from rmsplugin.cli.shared.connection import find_engine, read_settings
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from rmsplugin.api.answers import Node
    from rmsplugin.api.binding import Engine

#: Pause between two looks, in seconds.
_LOOK_S = 1.0
#: With this Slurm refuses users who are none of its operators.
_NO_RIGHT = "invalid user id"


def add_command(commands: options.Commands) -> None:
    """Add drain to the command line."""
    drain = options.add_command(
        commands,
        "drain",
        "drain nodes in Slurm, and wait until no VM is left there",
        drain_or_undrain,
        """
        As `scontrol update NodeName=NODE State=DRAIN`, which whoever may do may do here. The engine moves the VMs away,
        or saves them, and gives the node back. VMs that may not be suspended stay while there is no room elsewhere:
        `rmsplugin vjobs -w NODE --reason` says why. Ctrl-C ends the wait, not the drain.

        examples:
          rmsplugin drain n3
          rmsplugin drain n3 'n[5-7]' --reason 'new memory'
          rmsplugin drain n3 --no-wait
        """,
    )
    drain.add_argument("--reason", metavar="TEXT", default="rmsplugin drain", help="the reason that Slurm shows")
    add_wait_options(drain)


def add_wait_options(parser: argparse.ArgumentParser) -> None:
    """The nodes, and whether the end is waited for."""
    parser.add_argument("nodes", metavar="NODE", nargs="+", type=options.node_names, help="nodes: n1, or n[1-4]")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=options.positive_seconds,
        help="wait for so long at most; the exit code is 1 if it is not done by then",
    )


def drain_or_undrain(arguments: argparse.Namespace) -> int:
    """Tell Slurm, as the command is called, and wait until the engine has done it.

    Raises:
        NotFoundError: a node is none that may host VMs; nothing was changed.
        RefusedError: Slurm refuses.
        UnavailableError: Slurm or the engine does not answer.
        OperationFailedError: it is not done after --timeout.
    """
    engine, drains = find_engine(arguments), arguments.command == "drain"
    names = list(dict.fromkeys(name for named in arguments.nodes for name in named))
    unknown = set(names) - {node["name"] for node in engine.nodes()}
    if unknown:
        raise NotFoundError("\n".join(f"{name} is no node that may host VMs" for name in names if name in unknown))
    words = ["State=DRAIN", f"Reason={arguments.reason}"] if drains else ["State=RESUME"]
    _tell_slurm(arguments.config, ["update", f"NodeName={','.join(names)}", *words])
    if arguments.no_wait:
        return 0
    try:
        _wait(engine, names, _is_empty if drains else _takes_vms, arguments.timeout)
    except KeyboardInterrupt:
        print("the engine goes on with it; `rmsplugin nodes` shows how far it is", file=sys.stderr)
        raise
    print(f"{','.join(names)}: {'no VM is left' if drains else 'takes VMs again'}")
    return 0


def _is_empty(node: Node) -> str:
    """What is left on a node that is drained; empty: nothing."""
    if node["power"] == "on" and not {"drain", "gone", "unreachable"} & set(re.split(r"[^a-z]+", node["state"])):
        return "the engine has not seen it yet"
    if node["vms"]:
        return f"{node['vms']} VM{'s' if node['vms'] > 1 else ''} left"
    return "" if node["room"] == "none" else "the node is given back"


def _takes_vms(node: Node) -> str:
    """What a node still waits for; empty: it is drained no more."""
    return "still drained" if "drain" in node["state"] else ""


def _wait(engine: Engine, names: Sequence[str], left_of: Callable[[Node], str], timeout_s: float | None) -> None:
    """Wait until nothing is left of any of the nodes; on a terminal it is shown what is."""
    began = time.monotonic()
    with bar() as show:
        while True:
            time.sleep(_LOOK_S)
            left = {node["name"]: left_of(node) for node in engine.nodes() if node["name"] in names}
            waits = {name: what for name, what in left.items() if what}
            if not waits:
                return
            said = "; ".join(f"{name}: {what}" for name, what in waits.items())
            show(said, 1 - len(waits) / len(names))
            if timeout_s is not None and time.monotonic() - began > timeout_s:
                raise OperationFailedError(f"not done after {timeout_s:g} s: {said}")


def _tell_slurm(config: str | None, words: Sequence[str]) -> None:
    """Run scontrol as the user who runs this command: Slurm says who may."""
    slurm = read_settings(config).slurm
    program = f"{slurm.bin_dir}/scontrol" if slurm.bin_dir else "scontrol"
    try:
        done = subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            timeout=slurm.command_timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"scontrol did not answer within {slurm.command_timeout_s:g} s") from None
    except OSError as error:
        raise UnavailableError(f"scontrol cannot be run: {error}") from None
    if done.returncode:
        raise RefusedError(_refusal(printable(done.stderr.strip().partition("\n")[0])))


def _refusal(said: str) -> str:
    """Slurm's word, with what to do about it."""
    if _NO_RIGHT in said.lower():
        return f"{said}: only operators and administrators of Slurm may drain nodes; try sudo"
    return said or "scontrol refused, without a word"
