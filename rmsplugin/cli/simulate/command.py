"""Simulating: the commands that replay a trace of jobs on a cluster, in virtual time, under one policy or several."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.bar import bar
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.policies import ANY, policy_name, refuse_unloadable
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.simulate.misuse import refuse_misuse, refuse_outputs
from rmsplugin.cli.simulate.options import add_options
from rmsplugin.cli.simulate.page_option import page_of
from rmsplugin.input_file import shown_name

if TYPE_CHECKING:
    from rmsplugin.cli.simulate.simulated import Input


def add_command(commands: options.Commands) -> None:
    """Add simulate to the command line."""
    parser = options.add_command(
        commands,
        "simulate",
        "replay a trace of jobs, or a ledger's, on a cluster under a policy, in virtual time",
        _simulate,
        """
        Needs no engine, no cluster and no settings. A job of P processors is P VMs of one CPU. The trace is in the
        Standard Workload Format 2.2 (SWF), as those of the Parallel Workloads Archive. Standard error counts the lines
        that cannot be simulated by their reasons, and names the first ones; --json names up to 1,000 a reason. Exit
        status 2: nothing of the trace can be simulated, and nothing is written. --ledger simulates the jobs of a live
        cluster that ran and have ended, with the VMs, run times and CPU demands that they really had.

        fcfs is First Come First Serve. easy is fcfs with EASY backfilling by the requested times. Both suspend nothing.
        The other policies are the engine's, and its own code decides, plans and checks. easy-preempt: EASY without time
        limits; a vjob that fills a hole is suspended when the head's turn comes. rjsp and rjsp-exact: all vjobs run
        that fit together in queue order. mixed: the same where it is worth a switch. slowdown, the engine's default:
        the vjob that has waited longest for what it still needs goes first. load-sharing and v-reconfiguration: running
        vjobs run on, and vjobs start that have room beside them. Actions take the times of [durations], and slow down
        the VMs that compute beside them. The same input gives the same output on any machine. docs/simulation has
        the rules, and the forms of --json, --events and --activity.

        --jobs-out has a line for each job, in the order of the queue: job_id,submit,start,end (seconds, as in the
        trace), processors, estimate; under policies that switch also asleep,suspends,migrations. --events has a line of
        JSON for each event of a job, in the order of time. --html writes a page like that of `rmsplugin report`, of at
        most 50,000 jobs: the nodes over time with suspends, resumes and migrations, utilisation, context switches, all
        jobs; under policies that switch also completions beside those of fcfs and easy. Files are replaced as a whole,
        when all is computed.

        --rules FILE has VMs obey placement rules, as the engine has them: sections [rule.NAME] of the settings. The
        nodes are n1 to n8 of a simulated cluster of eight, n01 to n25 of one of 25, n001 to n120 of one of 120. Jobs
        that no node may run are left out. Such a replay looks at nodes under each policy, and takes longer.
        docs/simulation/replays.md says what is refused. --wishes FILE has VMs of single jobs beside each other as their
        users asked by --switches, --spread-job and --exclusive; with a ledger it needs no FILE. --topology FILE, a
        topology.conf, has the switches of the nodes.

        --energy FILE has idle nodes switched off where that saves energy, and tells kilowatt-hours, and what jobs wait
        for nodes that come on. docs/simulation/energy.md describes the file.

        examples:
          rmsplugin simulate --workload hpc2n.swf.gz --nodes 120 --cpus-per-node 2 --policy easy
          rmsplugin simulate --workload kth.swf --nodes 100 --cpus-per-node 1 --policy fcfs --jobs-out fcfs.csv --json
          rmsplugin simulate --workload kth.swf --nodes 100 --cpus-per-node 1 --memory-per-node 4096 --policy rjsp
          rmsplugin simulate --workload kth.swf --nodes 50 --cpus-per-node 2 --memory-per-node 8192 --policy mixed \\
            --durations durations.toml --failure-rate 0.01 --seed 7 --events events.jsonl
          rmsplugin simulate --workload kth.swf --nodes 100 --cpus-per-node 1 --memory-per-node 4096 --policy rjsp \\
            --html rjsp.html
          rmsplugin simulate --workload kth.swf --nodes 100 --cpus-per-node 1 --memory-per-node 4096 \\
            --policy slowdown --energy energy.toml

          rmsplugin simulate --ledger /var/lib/rmsplugin/ledger.sqlite --nodes 8 --cpus-per-node 16 \\
            --memory-per-node 60000 --policy mixed --durations durations.toml --cycle 15

          zcat kth.swf.gz |
          rmsplugin simulate --workload - --nodes 100 --cpus-per-node 1 --policy easy --jobs-out -
        """,
    )
    add_options(parser)
    parser.add_argument("--policy", metavar="POLICY", type=policy_name, required=True, help=f"who runs: {ANY}")
    parser.add_argument(
        "--jobs-out",
        metavar="FILE",
        help="write the start and end of each job, as CSV; - prints them, and nothing else, on standard output",
    )
    parser.add_argument(
        "--events", metavar="FILE", help="write the events of each job, with their times, as lines of JSON"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write a page for a browser; the page needs no network (rmsplugin[html])"
    )
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    parser.set_defaults(refuse=parser.error)


def _refuse_misuse(arguments: argparse.Namespace) -> None:
    """End with status 2 where options do not go together."""
    refuse_misuse(arguments, (arguments.policy,))
    refuse_outputs(arguments, "events", "jobs_out", "html")
    if arguments.jobs_out == "-" and arguments.json:
        arguments.refuse("--jobs-out - and --json both print on standard output; name a file for the jobs")


def _simulate(arguments: argparse.Namespace) -> int:
    from rmsplugin.cli.shared.output_file import OutputFile
    from rmsplugin.cli.simulate import told
    from rmsplugin.cli.simulate.simulated import counted_beside, read_input, simulate

    _refuse_misuse(arguments)
    # Before anything is computed: nobody waits for an answer that cannot be written.
    output = OutputFile("--jobs-out", arguments.jobs_out) if arguments.jobs_out not in (None, "-") else None
    events = OutputFile("--events", arguments.events) if arguments.events is not None else None
    page = page_of(arguments)
    refuse_unloadable((arguments.policy,))
    with bar() as show:
        given = read_input(arguments, show)
        if page is not None:
            page.require_room(given)
        simulated = simulate(arguments, given, arguments.policy, show)
        if page is not None:
            page.write_simulation(simulated, counted_beside(arguments, given, simulated, show))
    warn(arguments, simulated.input)
    if output is not None:
        output.write(told.csv_text(simulated))
    if events is not None:
        events.write(told.events_text(simulated))
    if arguments.json:
        print_document(arguments, told.document(simulated))
    elif arguments.jobs_out == "-":
        print(told.csv_text(simulated), end="")
    else:
        for line in told.text_lines(simulated):
            print(printable(line))
    return 0


def warn(arguments: argparse.Namespace, given: Input) -> None:
    """Name the lines of the trace, or the jobs of the ledger, that are not simulated, or not believed."""
    from rmsplugin.cli.simulate.simulated import idle_rules, warnings
    from rmsplugin.cli.simulate.wishes import idle_wishes

    unlinked = [f"{given.name}: {given.unlinked}"] if given.unlinked else []
    idle = [f"{shown_name(arguments.rules)}: {words}" for words in idle_rules(given)]
    wishes = [f"{given.name}: {words}" for words in idle_wishes(arguments, given.workload.jobs, given.jobs)]
    for line in [*warnings(given.name, given.workload), *unlinked, *idle, *wishes]:
        print(printable(f"rmsplugin {arguments.command}: warning: {line}"), file=sys.stderr)
