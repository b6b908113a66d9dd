"""Comparing: the command that replays one workload under several policies, and shows them side by side."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.bar import Show, bar
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.policies import ANY, policy_name, refuse_unloadable
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import Field, Row, duration, plain_table, text_of
from rmsplugin.cli.simulate.command import warn
from rmsplugin.cli.simulate.misuse import refuse_misuse, refuse_outputs
from rmsplugin.cli.simulate.options import add_options
from rmsplugin.cli.simulate.page_option import page_of
from rmsplugin.model.policy_names import COUNTING

if TYPE_CHECKING:
    from rmsplugin.cli.simulate.simulated import Input, Simulated

#: rjsp-exact differs from rjsp only where packing is tight, and takes long.
_DEFAULT = ("fcfs", "easy", "easy-preempt", "rjsp", "mixed", "slowdown")


def _value(*keys: str, shown: Callable[[Any], str] = str) -> Callable[[Row], str]:
    """The text of a value deep in a row."""

    def text(row: Row) -> str:
        found: Any = row
        for key in keys:
            found = found[key]
        return shown(found)

    return text


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


_FIELDS = (
    Field("policy", "who runs", text_of("policy")),
    Field("makespan", "from the first submission to the last end", _value("makespan_s", shown=duration), right=True),
    Field("util", "utilisation of all CPUs over the makespan", _value("utilisation", shown=_percent), right=True),
    *(
        Field(title, words, _value(key, column, shown=shown), right=True)
        for key, shown, columns in (
            ("wait_s", duration, (("wait", "mean wait"), ("wait-p95", "95 of 100 jobs waited no longer"))),
            ("completion_s", duration, (("completion", "mean completion"), ("compl-p95", "its 95th percentile"))),
            ("bounded_slowdown", "{:.2f}".format, (("slowdown", "mean bounded slowdown"),)),
        )
        for (title, words), column in zip(columns, ("mean", "p95"), strict=False)
    ),
    *(
        Field(f"{kind}s", f"{kind}s of VMs", _value("context_switches", kind), right=True)
        for kind in ("suspend", "resume", "migrate")
    ),
)

#: What is told with --energy, besides.
_ENERGY_FIELDS = (
    Field(
        "compl-on",
        "mean completion with all nodes on",
        _value("energy", "completion_s_mean_all_on", shown=duration),
        right=True,
    ),
    *(
        Field(title, words, _value("energy", key, shown="{:.1f}".format), right=True)
        for title, key, words in (
            ("kwh", "kwh", "kilowatt-hours with nodes switched"),
            ("kwh-on", "kwh_all_on", "kilowatt-hours with all nodes on"),
            ("kwh-oracle", "kwh_oracle", "kilowatt-hours with nodes switched by an oracle"),
        )
    ),
    Field("off", "how often nodes were switched off", _value("energy", "switched_off"), right=True),
    Field("emptied", "how often nodes were emptied for that", _value("energy", "emptied"), right=True),
)

_ENERGY_CSV = (
    *("kwh", "kwh_all_on", "kwh_oracle", "switched_off", "emptied", "delayed_s_mean", "completion_s_mean_all_on"),
)

_CSV = (
    *("policy", "jobs", "makespan_s", "utilisation"),
    *(
        f"{name}_{part}"
        for name in ("wait_s", "completion_s", "bounded_slowdown")
        for part in ("mean", "p50", "p95", "p99")
    ),
    *("suspend", "resume", "migrate"),
)


def add_command(commands: options.Commands) -> None:
    """Add compare to the command line."""
    parser = options.add_command(
        commands,
        "compare",
        "replay a trace of jobs under several policies, and show them side by side",
        _compare,
        """
        The same as simulate, for each policy; simulate --help has the workload, the policies and the rules. A table
        has a line for each policy: makespan, utilisation, mean and 95th percentile of wait and completion, mean
        bounded slowdown, and how often VMs were suspended, resumed and migrated. --csv and --json have all
        percentiles. Each policy is replayed in a process of its own, as many at a time as there are CPUs. --html
        writes a page like that of `rmsplugin report`, of at most 50,000 jobs: completions under all policies, job by
        job and as distributions; nodes, context switches and the jobs' own times are those of the last policy in the
        list. With --rules all policies obey the same placement rules. With --energy the table and --csv also have
        kilowatt-hours, and the mean completion with all nodes on.

        examples:
          rmsplugin compare --workload kth.swf --nodes 100 --cpus-per-node 1 --memory-per-node 4096
          rmsplugin compare --ledger ledger.sqlite --nodes 8 --cpus-per-node 16 --memory-per-node 60000
          rmsplugin compare --workload hpc2n.swf.gz --nodes 120 --cpus-per-node 2 --policies fcfs,easy --csv
          rmsplugin compare --workload kth.swf --nodes 100 --cpus-per-node 1 --memory-per-node 4096 \\
            --policies fcfs,easy,rjsp --html compared.html
        """,
    )
    add_options(parser)
    parser.add_argument(
        "--policies",
        metavar="LIST",
        type=_policies,
        default=_DEFAULT,
        help=f"of {ANY}; with commas between them (default: {','.join(_DEFAULT)})",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=options.workers,
        help="number of policies replayed at a time (default: one a CPU)",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="all of it as JSON")
    kind.add_argument("--csv", action="store_true", help="a line of comma-separated values for each policy")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write a page for a browser; the page needs no network (rmsplugin[html]): the last policy "
        "beside the others",
    )
    parser.set_defaults(refuse=parser.error)


def _policies(text: str) -> tuple[str, ...]:
    found = tuple(policy_name(name) for name in text.split(","))
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError("a policy is there twice")
    return found


def _compare(arguments: argparse.Namespace) -> int:
    from rmsplugin.cli.simulate import told
    from rmsplugin.cli.simulate.simulated import read_input

    refuse_misuse(arguments, arguments.policies)
    refuse_outputs(arguments, "html")
    # Before anything is computed: nobody waits for a page that cannot be written.
    page = page_of(arguments)
    refuse_unloadable(arguments.policies)
    with bar() as show:
        given = read_input(arguments, show)
        if page is not None:
            page.require_room(given)
        found = _side_by_side(arguments, given, show)
        if page is not None:
            page.write_comparison(found)
    warn(arguments, given)
    rows = [told.measured(simulated) for simulated in found]
    if arguments.json:
        print_document(arguments, {"policies": rows, "trace": told.trace(given)})
    elif arguments.csv:
        titles = _CSV if arguments.energy is None else (*_CSV, *_ENERGY_CSV)
        print("\n".join([",".join(titles), *(",".join(map(str, _flat(row, titles))) for row in rows)]))
    else:
        fields = _FIELDS if arguments.energy is None else (*_FIELDS, *_ENERGY_FIELDS)
        for line in plain_table(fields).lines(rows):
            print(printable(line))
        if rules := told.obeyed(given):
            print(f"VMs obey {rules}.")
    return 0


def _flat(row: Row, titles: Sequence[str]) -> list[object]:
    values = {**row, **row["context_switches"], **row.get("energy", {})}
    for name in ("wait_s", "completion_s", "bounded_slowdown"):
        values |= {f"{name}_{part}": value for part, value in row[name].items()}
    return [values[name] for name in titles]


def _side_by_side(arguments: argparse.Namespace, given: Input, show: Show) -> Sequence[Simulated]:
    """Each policy; those that take long in processes of their own. The first fault ends them all."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    from rmsplugin.cli.simulate.simulated import simulate

    slow = [policy for policy in arguments.policies if policy not in COUNTING or not given.on_processors]
    processes = min(arguments.processes or len(os.sched_getaffinity(0)), len(slow))
    found: dict[str, Simulated] = {}
    if processes > 1:
        plain = argparse.Namespace(**{key: value for key, value in vars(arguments).items() if not callable(value)})
        # The trace goes there at the start: a task is a name, and no thread waits to write one when all are killed.
        with ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(plain, given)
        ) as pool:
            try:
                futures = {pool.submit(_replayed, policy): policy for policy in slow}
                show(f"simulating {', '.join(slow)}", 0.0)
                for number, future in enumerate(as_completed(futures), 1):
                    found[futures[future]] = future.result()
                    show(f"simulating {', '.join(slow)}", number / len(slow))
            except BaseException:  # leaving the pool waits until its processes have ended
                for process in multiprocessing.active_children():
                    process.kill()
                raise
    for policy in arguments.policies:
        if policy not in found:
            found[policy] = simulate(arguments, given, policy, show)
    return [found[policy] for policy in arguments.policies]


#: In a process of the pool: the arguments, and the input.
_GIVEN: list[tuple[argparse.Namespace, Input]] = []


def _begin(arguments: argparse.Namespace, given: Input) -> None:
    """Keep what all replays of this process are about."""
    _GIVEN.append((arguments, given))


def _replayed(policy: str) -> Simulated:
    """Replay under one policy, in a process of the pool."""
    from rmsplugin.cli.simulate.simulated import simulate

    [(arguments, given)] = _GIVEN
    return simulate(arguments, given, policy, _quiet)


def _quiet(doing: str, part: float) -> None:
    """Another process shows how far all of it is."""
