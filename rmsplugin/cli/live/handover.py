"""Handing over: of several engines another one leads, or of several managers another one has a group."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import (
    ForbiddenError,
    NoMungeError,
    NotFoundError,
    RefusedError,
    RmspluginError,
    UnavailableError,
    WrongOrderError,
)

if TYPE_CHECKING:
    from rmsplugin.api.answers import GroupLead, Handover, Status
    from rmsplugin.api.binding import Engine

#: An engine that ends waits for engine.stop_wait_s, the next one for a session and a command of Slurm's.
_PATIENCE_S = 300.0
_PAUSE_S = 0.05


def add_command(commands: options.Commands) -> None:
    """Add handover to the command line."""
    parser = options.add_command(
        commands,
        "handover",
        "have an engine that stands by lead, or another manager have a group",
        _handover,
        """
        For operators, where several engines run ([cluster]). The engine that leads begins nothing more, waits until
        what is under way has ended (engine.stop_wait_s at most; what has not ended goes on, and the next one takes it
        up), and gives up its lease. The next one leads within a second or so. The former leader then stands by. VMs and
        scripts run on. The command ends when the next one leads. It is refused where no other engine stands by.

        With managers, name a group: it goes to another manager in the same way, and the command ends when the group's
        engine answers there. The group stays until that manager is gone, whatever that does to the balance; other
        groups may move in exchange. `--to any` takes that back. To have a host without groups, stop its manager.

        examples:
          rmsplugin handover
          rmsplugin handover --to controller2
          rmsplugin handover --json
          rmsplugin handover vmhosts
          rmsplugin handover vmhosts --to controller2
          rmsplugin handover vmhosts --to any
          rmsplugin handover --all --to controller2
        """,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("group", metavar="GROUP", nargs="?", help="with managers: the group; `rmsplugin groups`")
    what.add_argument("--all", action="store_true", help="with managers: each group; needs --to")
    parser.add_argument(
        "--to",
        metavar="HOST",
        type=options.node_name,
        help="to the engine or manager on this host, not to any; `any`: a group need not stay where it is any more",
    )
    parser.add_argument("--json", action="store_true", help="which engine leads now, or where the group is, as JSON")


def _handover(arguments: argparse.Namespace) -> int:
    if arguments.all and not arguments.to:
        raise WrongOrderError("--all needs --to HOST, the host of the manager that is to have all groups, or --to any")
    engine = find_engine(arguments)
    if arguments.all:
        return _handover_all(engine, arguments)
    if arguments.group:
        told = _hand_group(engine, arguments.group, arguments.to or "")
        if arguments.json:
            print_document(arguments, told)
        else:
            print(_sentence(told))
        return 0
    before = engine.status()
    answer = engine.handover(to=arguments.to or "")
    began = time.monotonic()
    after = _next(engine, before, answer["to"])
    if after is None:
        raise UnavailableError(
            f"{answer['to']} is to lead, and no other engine has answered for {_PATIENCE_S:g} s: see its log"
        )
    seconds = time.monotonic() - began
    if arguments.json:
        told = {"from": before["host"], "to": after["host"], "epoch": after["epoch"], "seconds": round(seconds, 2)}
        print_document(arguments, told)
    else:
        print(printable(f"{after['host']} leads with epoch {after['epoch']}, after {seconds:.1f} s"))
    return 0


def _handover_all(engine: Engine, arguments: argparse.Namespace) -> int:
    """Hand over one group after the other; what one refuses keeps none of the others.

    Those that are there already come first: else they might move away in exchange for others that come.
    """
    there = sorted(engine.status().get("groups", ()), key=lambda each: _short(each["host"]) != _short(arguments.to))
    groups = [each["name"] for each in there]
    if not groups:
        raise WrongOrderError("no group is there: --all is for managers of groups. To hand the lead over, leave it out")
    done: list[dict[str, Any]] = []
    faults: dict[str, type[RmspluginError]] = {}
    for number, group in enumerate(groups):
        try:
            done.append(_hand_group(engine, group, arguments.to))
        except WrongOrderError as error:
            faults[str(error)] = WrongOrderError
            continue
        except UnavailableError as error:
            left = ", ".join(groups[number + 1 :])
            faults[f"{error}; not tried any more: {left}" if left else str(error)] = UnavailableError
            break
        if not arguments.json:
            print(_sentence(done[-1]), flush=True)
    if arguments.json:
        print_document(arguments, {"groups": done}, errors=faults)
    if faults:
        raise [*faults.values()][-1]("\n".join(faults))
    return 0


def _short(host: str) -> str:
    return host.partition(".")[0]


def _hand_group(engine: Engine, group: str, to: str) -> dict[str, Any]:
    """Hand one group over, and return when its engine answers there; what is told of it.

    Raises:
        ForbiddenError: this user may not.
        UnavailableError: it may be tried again.
        WrongOrderError: it cannot be, as it is ordered.
    """
    before = _group(engine.status(), group)
    try:
        answer = engine.handover(to=to, group=group)
    except ForbiddenError:
        raise
    except (NotFoundError, RefusedError) as error:
        raise WrongOrderError(str(error)) from error
    began = time.monotonic()
    host, epoch = before["host"] if before else "", before["epoch"] if before else None
    if answer["to"]:
        after = _group_at(engine, group, answer, before)
        if after is None:
            raise UnavailableError(
                f"group {group} is given to {answer['to']}, and its engine has not answered there for "
                f"{_PATIENCE_S:g} s: see the logs of the managers"
            )
        epoch = after["epoch"]
    seconds = round(time.monotonic() - began, 2)
    return {"group": group, "from": host, "to": answer["to"], "epoch": epoch, "seconds": seconds}


def _sentence(told: Mapping[str, Any]) -> str:
    """What has become of a group."""
    group = told["group"]
    if not told["to"]:
        return printable(f"group {group} need not stay where it is: it goes where loads are even")
    what = f"group {group} is on {told['to']} with epoch {told['epoch']}, after {told['seconds']:.1f} s"
    return printable(f"{what}; it stays there until that manager is gone, or `rmsplugin handover {group} --to any`")


def _group(status: Status, name: str) -> GroupLead | None:
    return next((each for each in status.get("groups", []) if each["name"] == name), None)


def _group_at(engine: Engine, name: str, answer: Handover, before: GroupLead | None) -> GroupLead | None:
    """The group, when its engine answers where it is to be; None if it does not in time."""
    place = (answer["to"], answer["url"])
    stays = before is not None and (before["host"], before["url"]) == place
    epoch = None if before is None or stays else before["epoch"]
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        status = _status(engine, answer["to"])
        found = _group(status, name) if status else None
        if found and found["answers"] and (found["host"], found["url"]) == place and found["epoch"] != epoch:
            return found
        time.sleep(_PAUSE_S)
    return None


def _next(engine: Engine, before: Status, to: str) -> Status | None:
    """What the next leader tells of itself; None if there is none in time."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        status = _status(engine, to)
        if status and status["epoch"] != before["epoch"]:
            return status
        time.sleep(_PAUSE_S)
    return None


def _status(engine: Engine, to: str) -> Status | None:
    """What those that lead by now tell; None if nobody answers yet.

    Raises:
        UnavailableError: nobody can be asked from here, since munge does not answer on this host.
    """
    try:
        return engine.status()
    except NoMungeError as error:
        raise UnavailableError(
            f"{to} was told to take over; whether it has cannot be asked from here: {error}. Ask `rmsplugin status` on "
            f"{to}"
        ) from error
    except UnavailableError:
        return None
