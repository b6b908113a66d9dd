"""Handing over: of several engines, another one leads."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import printable
from rmsplugin.errors import UnavailableError

if TYPE_CHECKING:
    from rmsplugin.api.answers import Status
    from rmsplugin.api.binding import Engine

#: An engine that ends waits for engine.stop_wait_s, the next one for a session and a command of Slurm's.
_PATIENCE_S = 300.0
_PAUSE_S = 0.05


def add_command(commands: options.Commands) -> None:
    """Add handover to the command line."""
    parser = options.add_command(
        commands,
        "handover",
        "have an engine that stands by lead",
        _handover,
        """
        For operators, where several engines run ([cluster]). The engine that leads begins nothing more, waits until
        what is under way has ended (engine.stop_wait_s at most; what has not ended goes on, and the next one takes it
        up), and gives up its lease. The next one leads within a second or so. The former leader then stands by. VMs and
        scripts run on. The command ends when the next one leads. It is refused where no other engine stands by.

        examples:
          rmsplugin handover
          rmsplugin handover --to controller2
          rmsplugin handover --json
        """,
    )
    parser.add_argument("--to", metavar="HOST", type=options.node_name, help="to the engine on this host, not to any")
    parser.add_argument("--json", action="store_true", help="which engine leads now, as JSON")


def _handover(arguments: argparse.Namespace) -> int:
    engine = find_engine(arguments.config)
    before = engine.status()
    answer = engine.handover(to=arguments.to or "")
    began = time.monotonic()
    after = _next(engine, before)
    if after is None:
        raise UnavailableError(
            f"{answer['to']} is to lead, and no other engine has answered for {_PATIENCE_S:g} s: see its log"
        )
    seconds = time.monotonic() - began
    if arguments.json:
        told = {"from": before["host"], "to": after["host"], "epoch": after["epoch"], "seconds": round(seconds, 2)}
        print(json.dumps(told))
    else:
        print(printable(f"{after['host']} leads with epoch {after['epoch']}, after {seconds:.1f} s"))
    return 0


def _next(engine: Engine, before: Status) -> Status | None:
    """What the next leader tells of itself; None if there is none in time."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if (status := engine.status())["epoch"] != before["epoch"]:
                return status
        except UnavailableError:
            pass
        time.sleep(_PAUSE_S)
    return None
