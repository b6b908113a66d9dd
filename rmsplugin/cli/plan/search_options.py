"""Search options: what plan and pack are told of the file and of their searches."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options

if TYPE_CHECKING:
    from rmsplugin.packing.search import Search


_TIME_LIMIT_S = 5.0

_MOST_WORKERS = 4

#: With a deterministic limit the clock must not be what ends a search; this is as good as never.
_NEVER_S = 7 * 86400.0

#: How --instance is explained.
ENERGY = (
    "the watts of nodes, as for `rmsplugin simulate`: nodes that have nothing are switched off, and the kilowatt-hours "
    "of an hour are told"
)
INSTANCE = "the configuration: a JSON file, compressed (gzip, bzip2, xz) or not; - is standard input"


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument(
        "--time-limit",
        metavar="S",
        type=options.positive_seconds,
        help="longest time of a search; the answer is the best found until then. The search of a decision ends by its "
        f"work instead, about as many seconds of one CPU (default: {_TIME_LIMIT_S:g})",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=options.workers,
        help=f"threads of a search (default: one for each CPU, {_MOST_WORKERS} at most; 1 with --deterministic-limit)",
    )
    parser.add_argument("--seed", metavar="N", type=options.seed, help="seed of the searches (default: 0)")
    parser.add_argument(
        "--deterministic-limit",
        metavar="D",
        type=options.positive_amount,
        help="end each search by its work, not by the clock, whatever --time-limit says; the unit "
        "is about a second of one CPU",
    )


def decision_search_of(arguments: argparse.Namespace) -> Search:
    """The limits of the decision: it ends by its work in any case, and depends on no clock and no number of CPUs."""
    from rmsplugin.packing.search import Search

    limit = arguments.deterministic_limit or arguments.time_limit or _TIME_LIMIT_S
    return Search(
        time_limit_s=_NEVER_S,
        workers=arguments.workers or 1,
        seed=arguments.seed or 0,
        deterministic_limit=limit,
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
