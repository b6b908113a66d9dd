"""Plan: `rmsplugin plan`, for a configuration in a file without engine or cluster; and for the live cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.plan.display import display, warn_of_unknown_nodes
from rmsplugin.cli.plan.search_options import ENERGY, INSTANCE, add_search_options, decision_search_of, search_of
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.policies import ANY, deciding, policy_name
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import OperationFailedError

if TYPE_CHECKING:
    from rmsplugin.api.answers import Preview
    from rmsplugin.cli.shared.output_file import OutputFile


#: What the engine's settings say where it decides itself.
_OFFLINE_OPTIONS = (
    *("policy", "objective", "heuristic", "memory_threshold", "pause_limit", "energy", "cpu_in_plan"),
    *("user_share", "user_share_s"),
    *("time_limit", "workers", "seed", "deterministic_limit"),
)


def add_command(commands: options.Commands) -> None:
    """Add plan to the command line."""
    plan = options.add_command(
        commands,
        "plan",
        "decide, place and plan one context switch: offline for a configuration in a file, or for the live cluster",
        _plan,
        """
        Says which vjobs shall run, where, and which actions in which order lead there at the least cost. It changes
        nothing. --live shows what the next cycle of the engine would do with the policy of the settings, and why: the
        steps, and the vjobs that nothing is decided about (docs/operator/daily-work.md). --instance needs no engine;
        docs/simulation/plan-and-pack.md describes the file and the output of --json. Actions take the times of
        [durations] in the settings; without settings those of the papers, but a file that --config or
        $RMSPLUGIN_CONFIG names has to be there. With --deterministic-limit the same file, seed and number of workers
        give the same answer.

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
    plan.add_argument("--instance", metavar="FILE", help=INSTANCE)
    plan.add_argument("--live", action="store_true", help="show what the next cycle of the engine would do, and why")
    _add_decision_options(plan)
    add_search_options(plan)
    plan.add_argument("--json", action="store_true", help="the answer as JSON")
    plan.add_argument(
        "--dot",
        metavar="FILE",
        help="write the reconfiguration graph for Graphviz; - prints it, and nothing else, on standard output",
    )
    plan.set_defaults(refuse=plan.error)


def _add_decision_options(plan: argparse.ArgumentParser) -> None:
    """Add what the settings say where the engine decides."""
    plan.add_argument(
        "--policy",
        metavar="POLICY",
        type=policy_name,
        help=f"how to decide which vjobs run: {ANY} (default: rjsp)",
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
        choices=("ffd", "better-fit"),
        help="do not search; ffd: the target is the placement by which the policy proved its decision: "
        "First Fit Decreasing, as in the papers' baseline; with rjsp-exact, mixed, load-sharing "
        "and v-reconfiguration one near where the VMs are; better-fit: VMs arrive one after the other "
        "beside those that run, and nodes that lose VMs, or are used by 20 %% at most, are emptied (RR-7398)",
    )
    plan.add_argument(
        "--cpu-in-plan",
        action="store_true",
        default=None,
        help="a VM comes to a node only when it has its CPUs there, as in the papers (default: CPUs count in the end)",
    )
    plan.add_argument("--energy", metavar="FILE", help=ENERGY)
    plan.add_argument(
        "--memory-threshold",
        metavar="SHARE",
        type=options.share,
        help="plan VMs up to this share of each node's memory, above 0 and at most 1, where demands are "
        "observed; with mixed and v-reconfiguration nodes may be reserved for VMs that outgrow "
        "theirs: notes tell of them (default: 1)",
    )
    plan.add_argument(
        "--pause-limit",
        metavar="S",
        type=options.positive_seconds,
        help="longest pause of a vjob that makes way, in the memory of its nodes, if nobody needs that "
        "memory (default: it is saved at once)",
    )
    plan.add_argument(
        "--user-share",
        metavar="SHARE",
        type=options.share,
        help="slowdown: a user's vjobs beyond this part of the cluster make way for those of other users (default: 1)",
    )
    plan.add_argument(
        "--user-share-s",
        metavar="S",
        type=options.positive_seconds,
        help="slowdown: --user-share makes way only for vjobs that have waited for this time (default: 3600)",
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
    if arguments.dot is not None and (words := _replaced(arguments)):
        arguments.refuse(words)


def _replaced(arguments: argparse.Namespace) -> str:
    """What --dot would replace, in a sentence; empty if nothing."""
    from rmsplugin.cli.shared.replacing import replaced
    from rmsplugin.settings import settings_path

    inputs = {
        "the file of --instance": arguments.instance,
        "the file of --energy": arguments.energy,
        "the settings": settings_path(arguments.config),
    }
    return replaced({"--dot": arguments.dot}, inputs)


def _plan(arguments: argparse.Namespace) -> int:
    from rmsplugin.cli.shared.output_file import OutputFile

    _refuse_misuse(arguments)
    # Before anything is computed: nobody waits for an answer that cannot be written.
    graph = OutputFile("--dot", arguments.dot) if arguments.dot not in (None, "-") else None
    return _plan_live(arguments, graph) if arguments.live else _plan_offline(arguments, graph)


def _plan_live(arguments: argparse.Namespace, graph: OutputFile | None) -> int:
    with display() as show:
        from rmsplugin.cli.plan import live

        show("asking the engine")
        answer = find_engine(arguments).plan(dot=arguments.dot is not None)
    dot = answer.pop("dot", "")
    if graph is not None and dot:
        graph.write(dot)
    if arguments.json:
        print_document(arguments, answer, errors=_faults(answer))
    elif arguments.dot == "-":
        print(dot, end="")
    else:
        for line in live.lines(answer):
            print(printable(line))
    if faults := _faults(answer):
        raise OperationFailedError("\n".join(map(printable, faults)))
    return 0


def _faults(answer: Preview) -> list[str]:
    """Why there is no plan, or none of some groups."""
    if answer["plan"] is None:
        return [answer["fault"] or "nothing could be decided"]
    return [f"group {group} has no plan: {why}" for group, why in answer.get("undecided", {}).items()]


def _plan_offline(arguments: argparse.Namespace, graph: OutputFile | None) -> int:
    policy = arguments.policy or "rjsp"
    with display() as show, deciding(policy) as decides:
        from dataclasses import replace

        from rmsplugin.cli.plan import energy, solve, text, threshold
        from rmsplugin.decision.parameters import Parameters, SlowdownParameters, SwitchDurations
        from rmsplugin.instance import read
        from rmsplugin.planning.order.transfers import Durations
        from rmsplugin.proposing.document import document, notes_of, states_before
        from rmsplugin.proposing.parameters import ProposalParameters

        show(f"reading {arguments.instance}")
        configuration = read(arguments.instance)
        warn_of_unknown_nodes(arguments.command, configuration)
        search, durations = search_of(arguments), solve.durations(arguments.config)
        parameters = ProposalParameters(
            policy=policy,
            decision=Parameters(
                search=decision_search_of(arguments),
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
            cpu_in_plan=bool(arguments.cpu_in_plan),
        )
        share = arguments.memory_threshold or 1.0
        shortage = threshold.shortage(configuration, share, parameters.policy, durations)
        watts = energy.read(arguments.energy, configuration)
        source, parameters = threshold.up_to(configuration, share), replace(parameters, shortage=shortage)
        answer = solve.plan(source, parameters, show, watts, decides)
    if graph is not None:
        graph.write(solve.graph(answer))
    told = document(answer.source, answer.proposal, answer.seconds)
    if arguments.memory_threshold is not None:
        remedy = answer.proposal.remedy
        told["notes"] = notes_of(() if remedy is None else remedy.notes)
    if watts is not None:
        told["energy"] = energy.of_plan(answer.source, answer.proposal, watts)
    if arguments.json:
        print_document(arguments, told)
    elif arguments.dot == "-":
        print(solve.graph(answer), end="")
    else:
        for line in text.lines(told, answer.proposal.sentence, states_before(answer.source)):
            print(printable(line))
    return 0
