"""Planning: plan and pack, for a configuration in a file, without engine or cluster; and plan for the live cluster."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmsplugin.cli import arguments as options
from rmsplugin.cli.connection import connect, read_settings
from rmsplugin.cli.table import printable
from rmsplugin.errors import OperationFailedError

if TYPE_CHECKING:
    from rmsplugin.cli.output_file import OutputFile
    from rmsplugin.model.configuration import Configuration
    from rmsplugin.packing.search import Search

#: As rmsplugin.decision.policies has them; a test compares. To import that takes longer than `--help` may take.
POLICIES = (
    "rjsp",
    "rjsp-exact",
    "fcfs",
    "easy",
    "easy-preempt",
    "mixed",
    "slowdown",
    "load-sharing",
    "v-reconfiguration",
)

_TIME_LIMIT_S = 5.0
_MOST_WORKERS = 4

#: With a deterministic limit the clock must not be what ends a search; this is as good as never.
_NEVER_S = 7 * 86400.0

#: What the engine's settings say where it decides itself.
_OFFLINE_OPTIONS = (
    *("policy", "objective", "heuristic", "memory_threshold", "pause_limit"),
    *("user_share", "user_share_s"),
    *("time_limit", "workers", "seed", "deterministic_limit"),
)

_INSTANCE = "the configuration: a JSON file, compressed (gzip, bzip2, xz) or not; - is standard input"


def add_commands(commands: options.Commands) -> None:
    """Add plan and pack to the command line."""
    _add_plan(commands)
    _add_pack(commands)


def _add_plan(commands: options.Commands) -> None:
    plan = options.add_command(
        commands,
        "plan",
        "decide, place and plan one context switch: offline for a configuration in a file, or for the live cluster",
        _plan,
        """
        Says which vjobs shall run, where, and which actions in which order lead there at the least cost. It changes
        nothing. With --live it says what the next cycle of the engine would do, with the policy of the settings, and
        why; with the steps, and the vjobs that nothing is decided about (operator guide, section 'What the engine
        decides'). With --instance it needs no engine; the operator guide, section 'Planning offline', describes the
        file and what --json prints. With --deterministic-limit the same file, seed and number of workers give the same
        answer.

        examples:
          rmsplugin plan --live
          rmsplugin plan --live --dot graph.dot
          rmsplugin plan --instance cluster.json.gz --policy rjsp-exact --json

          echo '{"nodes": [{"name": "n1", "cpu": 2, "memory_mib": 4096},
                           {"name": "n2", "cpu": 2, "memory_mib": 4096}],
                 "vjobs": [{"name": "vjob1", "state": "sleeping",
                            "vms": [{"name": "vjob1-0", "cpu": 1, "memory_mib": 1024, "image": "n2"}]},
                           {"name": "vjob2", "state": "waiting",
                            "vms": [{"name": "vjob2-0", "cpu": 2, "memory_mib": 2048}]}]}' |
          rmsplugin plan --instance -
        """,
    )
    plan.add_argument("--instance", metavar="FILE", help=_INSTANCE)
    plan.add_argument("--live", action="store_true", help="what the next cycle of the engine would do, and why")
    plan.add_argument(
        "--policy",
        metavar="POLICY",
        choices=POLICIES,
        help=f"how to decide which vjobs run: {', '.join(POLICIES)} (default: rjsp)",
    )
    plan.add_argument(
        "--objective",
        metavar="WHAT",
        choices=("cost", "nodes"),
        help="cost: the cheapest plan; nodes: the fewest nodes first, then the cheapest plan there (default: cost)",
    )
    plan.add_argument(
        "--heuristic",
        metavar="NAME",
        choices=("ffd",),
        help="ffd: do not search, take the placement with which the policy proved its decision as the target: First Fit"
        " Decreasing, as the papers' baseline does; with rjsp-exact, mixed, load-sharing and v-reconfiguration one"
        " near where the VMs are",
    )
    plan.add_argument(
        "--memory-threshold",
        metavar="SHARE",
        type=options.share,
        help="plan VMs up to this share of each node's memory, above 0 to 1, where demands are observed; with mixed and"
        " v-reconfiguration nodes may be reserved for VMs that outgrow theirs, which notes tell (default: 1)",
    )
    plan.add_argument(
        "--pause-limit",
        metavar="S",
        type=options.positive_seconds,
        help="a vjob that makes way is paused for so long, in the memory of its nodes, unless somebody needs that "
        "(default: it is saved at once)",
    )
    plan.add_argument(
        "--user-share",
        metavar="SHARE",
        type=options.share,
        help="slowdown: what a user has beyond this part of the cluster makes way for others (default: 1)",
    )
    plan.add_argument(
        "--user-share-s",
        metavar="S",
        type=options.positive_seconds,
        help="slowdown: for those that have waited for so long (default: 3600)",
    )
    _add_search_options(plan)
    plan.add_argument("--json", action="store_true", help="the answer as JSON")
    plan.add_argument(
        "--dot",
        metavar="FILE",
        help="write the reconfiguration graph for Graphviz; - prints it, and nothing else, on standard output",
    )
    plan.set_defaults(refuse=plan.error)


def _add_pack(commands: options.Commands) -> None:
    pack = options.add_command(
        commands,
        "pack",
        "pack the VMs that run onto the fewest nodes, for a configuration in a file",
        _pack,
        """
        The VM Packing Problem alone: only VMs of vjobs that run are packed, from scratch, on nodes that are up; vjobs'
        nodes and exclude are respected. The lower bound is proven. The file is that of `rmsplugin plan`.

        examples:
          rmsplugin pack --instance cluster.json.gz --json

          echo '{"nodes": [{"name": "n1", "cpu": 2, "memory_mib": 4096},
                           {"name": "n2", "cpu": 2, "memory_mib": 4096}],
                 "vjobs": [{"name": "vjob1", "state": "running",
                            "vms": [{"name": "vjob1-0", "cpu": 1, "memory_mib": 512, "host": "n1"},
                                    {"name": "vjob1-1", "cpu": 1, "memory_mib": 512, "host": "n2"}]}]}' |
          rmsplugin pack --instance -
        """,
    )
    pack.add_argument("--instance", metavar="FILE", required=True, help=_INSTANCE)
    _add_search_options(pack)
    pack.add_argument("--json", action="store_true", help="the answer as JSON")


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=options.positive_seconds,
        help=f"so long a search may take; the best found until then is the answer (default: {_TIME_LIMIT_S:g})",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=options.workers,
        help=f"threads of a search (default: one for each CPU, {_MOST_WORKERS} at most; 1 with --deterministic-limit)",
    )
    parser.add_argument("--seed", metavar="N", type=options.seed, help="of the searches (default: 0)")
    parser.add_argument(
        "--deterministic-limit",
        metavar="D",
        type=options.positive_amount,
        help="end a search after so much work, about a second of one CPU each; and not by the clock, unless "
        "--time-limit is given too",
    )


def search_of(arguments: argparse.Namespace) -> Search:
    """The limits that were asked for."""
    from rmsplugin.packing.search import Search

    limit = arguments.deterministic_limit
    return Search(
        time_limit_s=arguments.time_limit or (_TIME_LIMIT_S if limit is None else _NEVER_S),
        workers=arguments.workers or (min(_MOST_WORKERS, len(os.sched_getaffinity(0))) if limit is None else 1),
        seed=arguments.seed or 0,
        deterministic_limit=limit,
    )


def _refuse_misuse(arguments: argparse.Namespace) -> None:
    """End with status 2 where options do not go together."""
    if arguments.live and arguments.instance is not None:
        arguments.refuse("--live plans for the cluster as it is, --instance for the one in a file: give one of them")
    if not arguments.live and arguments.instance is None:
        arguments.refuse("give --instance FILE, or --live")
    for name in _OFFLINE_OPTIONS if arguments.live else ():
        if getattr(arguments, name) is not None:
            option = name.replace("_", "-")
            arguments.refuse(f"--{option} is for --instance: the engine decides as its settings say")
    if arguments.dot == "-" and arguments.json:
        arguments.refuse("--dot - and --json both print on standard output; name a file for one of them")
    if arguments.heuristic and arguments.objective == "nodes":
        arguments.refuse(f"--heuristic {arguments.heuristic} does not search, and has no --objective nodes")
    if arguments.dot == "":
        arguments.refuse("argument --dot: the name of a file is empty")


def _plan(arguments: argparse.Namespace) -> int:
    from rmsplugin.cli.output_file import OutputFile

    _refuse_misuse(arguments)
    # Before anything is computed: nobody waits for an answer that cannot be written.
    graph = OutputFile("--dot", arguments.dot) if arguments.dot not in (None, "-") else None
    return _plan_live(arguments, graph) if arguments.live else _plan_offline(arguments, graph)


def _plan_live(arguments: argparse.Namespace, graph: OutputFile | None) -> int:
    with _display() as show:
        from rmsplugin.cli.plan import live

        show("asking the engine")
        answer = live.ask(connect(read_settings(arguments.config)), dot=arguments.dot is not None)
    dot = answer.pop("dot", "")
    if graph is not None and dot:
        graph.write(dot)
    if arguments.json:
        print(json.dumps(answer, indent=1, allow_nan=False))
    elif arguments.dot == "-":
        print(dot, end="")
    else:
        for line in live.lines(answer):
            print(printable(line))
    if answer["plan"] is None:
        raise OperationFailedError(printable(answer["fault"] or "nothing could be decided"))
    return 0


def _plan_offline(arguments: argparse.Namespace, graph: OutputFile | None) -> int:
    with _display() as show:
        from dataclasses import replace

        from rmsplugin.cli.plan import solve, text, threshold
        from rmsplugin.decision.parameters import Parameters, SlowdownParameters, SwitchDurations
        from rmsplugin.instance import read
        from rmsplugin.planning.order.transfers import Durations
        from rmsplugin.proposing.document import document, notes_of, states_before
        from rmsplugin.proposing.parameters import ProposalParameters

        show(f"reading {arguments.instance}")
        configuration = read(arguments.instance)
        _warn_of_unknown_nodes(arguments.command, configuration)
        search, durations = search_of(arguments), solve.durations(arguments.config)
        parameters = ProposalParameters(
            policy=arguments.policy or "rjsp",
            decision=Parameters(
                search=search,
                durations=SwitchDurations.from_values(durations),
                pause_limit_s=arguments.pause_limit or 0.0,
                slowdown=SlowdownParameters(
                    user_share=arguments.user_share or 1.0,
                    user_share_s=3600.0 if arguments.user_share_s is None else arguments.user_share_s,
                ),
            ),
            objective=arguments.objective or "cost",
            heuristic=arguments.heuristic,
            search=search,
            durations=Durations.from_values(durations),
        )
        share = arguments.memory_threshold or 1.0
        shortage = threshold.shortage(configuration, share, parameters.policy, durations)
        answer = solve.plan(threshold.up_to(configuration, share), replace(parameters, shortage=shortage), show)
    if graph is not None:
        graph.write(solve.graph(answer))
    told = document(answer.source, answer.proposal, answer.seconds)
    if arguments.memory_threshold is not None:
        remedy = answer.proposal.remedy
        told["notes"] = notes_of(() if remedy is None else remedy.notes)
    if arguments.json:
        print(json.dumps(told, indent=1, allow_nan=False))
    elif arguments.dot == "-":
        print(solve.graph(answer), end="")
    else:
        for line in text.lines(told, answer.proposal.sentence, states_before(answer.source)):
            print(printable(line))
    return 0


def _pack(arguments: argparse.Namespace) -> int:
    with _display() as show:
        from rmsplugin.cli.plan import packing
        from rmsplugin.instance import read

        show(f"reading {arguments.instance}")
        configuration = read(arguments.instance)
        _warn_of_unknown_nodes(arguments.command, configuration)
        show("packing")
        packed = packing.pack_running(configuration, search_of(arguments))
    if arguments.json:
        print(json.dumps(packing.document(configuration, packed), indent=1))
    else:
        for line in packing.lines(configuration, packed):
            print(printable(line))
    return 0


def _warn_of_unknown_nodes(command: str, configuration: Configuration) -> None:
    """A node that a vjob may use need not be there; but it may be a slip."""
    for vjob in configuration.vjobs:
        for name in sorted((vjob.nodes or frozenset()) - configuration.node_by_name.keys()):
            words = f"rmsplugin {command}: warning: vjob {vjob.name} may use node {name}, but there is no such node"
            print(printable(words), file=sys.stderr)


@contextmanager
def _display() -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is being done, and how long it has taken; and let an interrupt end it.

    Whatever starts threads (NumPy already when it is imported) has to come after this, see ``ends_at_once``.
    """
    from rmsplugin.cli.plan.interrupt import ends_at_once
    from rmsplugin.cli.plan.quiet import solvers_keep_quiet

    if not sys.stderr.isatty():
        with ends_at_once(lambda: None), solvers_keep_quiet():
            yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    with ends_at_once(progress.stop), solvers_keep_quiet(), progress:
        task = progress.add_task("")
        yield lambda doing: progress.update(task, description=printable(doing), refresh=True)
