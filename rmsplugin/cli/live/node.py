"""Nodes: an operator's word on what has become of a node, and the order to cut its power."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import tell

if TYPE_CHECKING:
    from rmsplugin.api.answers import NodeOrder


def add_command(commands: options.Commands) -> None:
    """Add node to the command line."""
    parser = options.add_command(
        commands,
        "node",
        "say that a node is gone or back, or have its power cut",
        _node,
        """
        For operators. While a node is silent the engine concludes nothing: its VMs may run. Vjobs with VMs there wait
        until the node answers, or until somebody who can know says what became of it.

        gone: the node is dead (powered off, or burnt); no VM runs there any more. Vjobs with VMs there go on from their
        checkpoints, or begin again from the start. Vjobs whose saved states are only there are not lost: they wait,
        since the disk may come back. The engine starts nothing there and asks the node nothing until it is back. The
        command is refused while the node's libvirt or node agent answers: drain the node, or power it off first.

        back: the node is there again. VMs and files that were left behind there are removed. Then the node takes VMs
        again, and saved states that lie there can be used.

        fence: run nodes.fence for the node, and nodes.fence_status if it is set. Once that says that the node is off,
        it counts as gone. Without nodes.fence_status it does so when nodes.fence has ended well. Everything that runs
        there ends.

        gone and fence need --yes: without it they only say what would become of which vjobs, or why they are refused.

        examples:
          rmsplugin node gone n3
          rmsplugin node gone n3 --yes
          rmsplugin node back n3
          rmsplugin node fence n3 --yes
        """,
    )
    parser.add_argument(
        "what", metavar="gone|back|fence", choices=("gone", "back", "fence"), help="what to say of the node, or to do"
    )
    parser.add_argument("node", metavar="NODE", type=options.node_name, help="the node")
    parser.add_argument("--yes", action="store_true", help="confirm: vjobs with VMs there are lost")
    parser.add_argument("--json", action="store_true", help="the engine's answer, as JSON")
    parser.set_defaults(misused=parser.error)


def _node(arguments: argparse.Namespace) -> int:
    engine = find_engine(arguments)
    node, what = arguments.node, arguments.what
    if what == "back":
        back = engine.node_back(node)
        tell(arguments, back, f"{node} is back")
        return 0
    order = engine.node_gone if what == "gone" else engine.node_fence
    if not arguments.yes:
        # What would be refused is refused before anybody is asked to confirm it.
        arguments.misused(_question(node, what, order(node, preview=True)))
    answer = order(node)
    tell(arguments, answer, f"{node} is gone: {_fate(answer)}")
    return 0


def _question(node: str, what: str, answer: NodeOrder) -> str:
    if what == "fence":
        so = f"the power of {node} will be cut, and it will count as gone"
    else:
        so = f"no VM runs on {node} any more, it is powered off"
    return f"{so}: {_fate(answer)}; add --yes if that is so"


def _fate(answer: NodeOrder) -> str:
    begin_again, wait, said = answer.get("begin_again", []), answer.get("wait", []), []
    if begin_again:
        said.append(f"vjobs that go on from a checkpoint, or begin again from the start: {', '.join(begin_again)}")
    if wait:
        said.append(f"vjobs that wait for their saved states there: {', '.join(wait)}")
    return "; ".join(said) or "no vjob is concerned"
