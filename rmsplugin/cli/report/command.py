"""Reporting: the command that tells what became of jobs, and what had become of them without context switches."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rmsplugin.cli.report.fields import CLASS_COLUMNS, JOB_COLUMNS, JOB_FIELDS, TOTAL_COLUMNS, TOTAL_FIELDS
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.bar import Show, bar
from rmsplugin.cli.shared.connection import connect, read_settings
from rmsplugin.cli.shared.document import end_of_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import Row, Table, add_table_options, described, parse_format, table_of
from rmsplugin.errors import ReportError, SettingsError
from rmsplugin.latency import uncollected

if TYPE_CHECKING:
    from rmsplugin.cli.report.own import OwnReport
    from rmsplugin.cli.shared.output_file import OutputFile
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger
    from rmsplugin.report.build import Report
    from rmsplugin.settings import Settings

GROUPS = ("job", "user", "account", "partition", "week", "class", "all")
#: A table is as wide as what it holds; of a million jobs it takes so many at a time.
_BATCH = 2000


def add_command(commands: options.Commands) -> None:
    """Add report to the command line."""
    parser = options.add_command(
        commands,
        "report",
        "tell what became of jobs, and what would have become of them without context switches",
        _report,
        """
        fields of totals (--by user, account, ...), by default {columns}, and with --by class
        {classes}:
        {fields}

        The engine tells users of their own jobs, and operators (engine.operators) of all. Root and engine.user need no
        engine on the host with the ledger; a copy of the ledger (--ledger) needs none for anybody. The report only
        reads. It has the jobs that were there in the time asked for. Besides the ledger it reads `sacct -D` (accounts,
        time limits) and the nodes of Slurm. Without these it goes on, and says so.

        FCFS and EASY: the same jobs replayed on the same nodes without context switches, each for as long as it really
        ran. docs/operator/reports.md has the rules. Standard error, and `notes` in the JSON, say what the
        report cannot know.

        examples:
          rmsplugin report --since 7d
          rmsplugin report --since 2025-11-01 --until 2025-12-01 --by user
          rmsplugin report --job 12 --json
          rmsplugin report --by week --csv
          rmsplugin report --by class
          rmsplugin report --since 30d --html november.html
          rmsplugin report --since yesterday --until today --email-format
          rmsplugin report --ledger copy.sqlite --without-slurm --nodes 8 --cpus-per-node 16 --chart
        """.replace("{columns}", TOTAL_COLUMNS)
        .replace("{classes}", CLASS_COLUMNS)
        .replace("{fields}", described(TOTAL_FIELDS).replace("\n", "\n        ")),
    )
    add_times(parser)
    _add_choice(parser)
    _add_site(parser)
    add_table_options(
        parser, JOB_FIELDS, JOB_COLUMNS, "the whole report as JSON, with the intervals of each job's life"
    )
    parser.add_argument("--csv", action="store_true", help="the jobs, or the totals of --by, as CSV; times in seconds")
    parser.add_argument("--chart", action="store_true", help="utilisation and completions, drawn in the terminal")
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write all of it as one page for a browser; the page needs no network (rmsplugin[html])",
    )
    parser.add_argument("--email-format", action="store_true", help="a summary for an operator, as the text of a mail")
    parser.set_defaults(misused=parser.error)


def add_times(parser: argparse.ArgumentParser) -> None:
    """Add --since and --until."""
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=options.past_time,
        help="begin of the time: YYYY-MM-DD[THH:MM[:SS]], today, yesterday, or that long ago: 7d, 12h, "
        "30m (default: with the ledger)",
    )
    parser.add_argument("--until", metavar="TIME", type=options.past_time, help="end of the time (default: now)")


def _add_choice(parser: argparse.ArgumentParser) -> None:
    for option, what in (("partition", "partitions"), ("user", "users"), ("account", "accounts")):
        parser.add_argument(
            f"--{option}", metavar=f"{option.upper()},...", type=options.names, default=(), help=f"only of these {what}"
        )
    parser.add_argument(
        "--job", metavar="JOBID,...", type=options.job_ids, default=(), help="only these jobs, or all of a job array"
    )
    parser.add_argument(
        "--by",
        choices=GROUPS,
        default="job",
        help="what a line stands for: a job (default), or a total: of a user, ..., of a class (long, wide), of all",
    )


def _add_site(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledger", metavar="FILE", type=Path, help="a copy of the ledger (default: the engine's own)")
    parser.add_argument(
        "--without-slurm", action="store_true", help="do not ask Slurm: for a ledger of another cluster"
    )
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=options.positive_number,
        help="replay on N equal nodes, not on those of Slurm",
    )
    parser.add_argument("--cpus-per-node", metavar="C", type=options.positive_number, help="CPUs of each of --nodes")
    parser.add_argument(
        "--memory-per-node",
        metavar="MIB",
        type=options.positive_number,
        help="memory of each of --nodes (default: memory is not looked at)",
    )


def _refuse_misuse(arguments: argparse.Namespace) -> None:
    """End with status 2 where options do not go together."""
    if arguments.since is not None and arguments.since >= arguments.until:
        arguments.misused("--since has to be before --until")
    if bool(arguments.nodes) != bool(arguments.cpus_per_node) or (arguments.memory_per_node and not arguments.nodes):
        arguments.misused("--nodes and --cpus-per-node belong together, and --memory-per-node to them")
    if arguments.html == "":
        arguments.misused("argument --html: the name of a file is empty")
    forms = [form for form in ("json", "csv", "chart", "html", "email_format", "parsable2") if getattr(arguments, form)]
    if len(forms) > 1:
        arguments.misused(" and ".join(f"--{form.replace('_', '-')}" for form in forms) + " do not go together")


def _report(arguments: argparse.Namespace) -> int:
    now = time.time()
    arguments.until = now if arguments.until is None else arguments.until
    _refuse_misuse(arguments)
    # Before anything is computed: nobody waits for a page that cannot be written.
    page = _page_file(arguments.html) if arguments.html else None
    fields, default = (JOB_FIELDS, JOB_COLUMNS) if arguments.by == "job" else (TOTAL_FIELDS, TOTAL_COLUMNS)
    default = CLASS_COLUMNS if arguments.by == "class" else default
    columns = parse_format(default if arguments.format == JOB_COLUMNS else arguments.format, fields)
    settings = settings_of(arguments)
    ledgers = ledgers_of(arguments, settings)
    if page is not None and (words := _replaced(arguments, ledgers)):
        arguments.misused(words)
    lives = arguments.json or page is not None
    table = table_of(arguments, columns)
    # Rows are in no cycles, and there may be millions.
    with ExitStack() as stack, uncollected():
        report: Report | OwnReport
        with bar() as show:
            if ledgers:
                report = _read(arguments, settings, ledgers, now, show, lives=lives)
            else:
                report = stack.enter_context(_asked(arguments, settings, show, lives=lives))
        if page is not None:
            _write_page(page, report)
        _print(arguments, report, table)
    return 0


def ledgers_of(arguments: argparse.Namespace, settings: Settings | None) -> list[SiteLedger]:
    """The ledgers to read; none for those who may not, whom the engine tells of their own jobs."""
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger, site_ledgers

    if arguments.ledger is not None or settings is None:
        return [SiteLedger(arguments.ledger)]
    found = site_ledgers(settings)
    return found if all(os.access(each.path, os.R_OK, effective_ids=True) for each in found) else []


def _read(
    arguments: argparse.Namespace,
    settings: Settings | None,
    ledgers: list[SiteLedger],
    now: float,
    show: Show,
    *,
    lives: bool,
) -> Report:
    """The report of these ledgers. Raises RmspluginError."""
    # No other command waits for what these import.
    from rmsplugin.cli.report.sources import site
    from rmsplugin.engine.ledger.gathering import reading_all
    from rmsplugin.report.build import Question, build
    from rmsplugin.report.ledger import LedgerReader

    with reading_all(ledgers) as connection:
        reader = LedgerReader(connection, arguments.until)
        since = arguments.since
        question = Question(
            since=reader.begins() if since is None else since,
            until=arguments.until,
            made=round(now, 1),
            users=arguments.user,
            accounts=arguments.account,
            partitions=arguments.partition,
            jobs=arguments.job,
            with_lives=lives,
        )
        return build(reader, question, site(arguments, settings, show), show, _check_of(arguments))


def _check_of(arguments: argparse.Namespace) -> Callable[[int], None]:
    """Refuses more jobs than a page shows, where one is asked for."""
    if not arguments.html:
        return lambda _jobs: None
    from rmsplugin.report.page.html import check_size

    return check_size


def _asked(
    arguments: argparse.Namespace, settings: Settings | None, show: Show, *, lives: bool
) -> AbstractContextManager[OwnReport]:
    """The report that the engine makes. Raises RmspluginError."""
    from rmsplugin.cli.report.own import own_report

    assert settings is not None
    for option in ("without_slurm", "nodes"):
        if getattr(arguments, option):
            where = f"in {settings.engine.state_dir}"
            raise ReportError(
                f"--{option.replace('_', '-')} is for those who may read the ledger ({where}), or a copy of it"
            )
    return own_report(connect(settings), arguments, lives=lives, show=show)


def _page_file(name: str) -> OutputFile:
    """Raises ReportError, RefusedError."""
    from rmsplugin.cli.shared.output_file import OutputFile
    from rmsplugin.report.page.html import library

    library()
    return OutputFile("--html", name)


def _replaced(arguments: argparse.Namespace, ledgers: list[SiteLedger]) -> str:
    """What --html would replace, in a sentence; empty if nothing."""
    from rmsplugin.cli.shared.replacing import replaced
    from rmsplugin.settings import settings_path

    inputs = {f"the ledger {each.path}": each.path for each in ledgers}
    return replaced({"--html": arguments.html}, {**inputs, "the settings": settings_path(arguments.config)})


def _write_page(output: OutputFile, report: Report | OwnReport) -> None:
    """Raises ReportError, RefusedError."""
    from rmsplugin.report.page.html import check_size, page_text
    from rmsplugin.report.writing import whole

    check_size(sum(total.jobs for total in report.head.totals["all"]))
    output.write(page_text(whole(report.head, report.rows())))


def settings_of(arguments: argparse.Namespace) -> Settings | None:
    """The settings; a copy of a ledger is read without them, too. Raises SettingsError."""
    try:
        return read_settings(arguments.config)
    except SettingsError:
        if arguments.ledger is None or arguments.config is not None:
            raise
        return None


def _print(arguments: argparse.Namespace, report: Report | OwnReport, table: Table) -> None:
    from rmsplugin.cli.report import chart_form, csv_form, mail_form
    from rmsplugin.report import writing

    rows: Iterable[Row] = (
        report.rows() if arguments.by == "job" else [asdict(total) for total in report.head.totals[arguments.by]]
    )
    if arguments.json:
        sys.stdout.writelines(
            writing.json_text(
                report.head,
                report.rows(),
                end_of_document(arguments, warnings=[note.sentence for note in report.head.notes]),
            )
        )
        return
    if arguments.email_format:
        print("\n".join(mail_form.mail_lines(report.head)))
        return
    if arguments.chart:
        print("\n".join(chart_form.chart_lines(report.head, colours=sys.stdout.isatty())))
    elif arguments.csv:
        write = csv_form.write_jobs if arguments.by == "job" else csv_form.write_totals
        write(sys.stdout, rows, report.head.others)
    elif not arguments.html:
        remaining = iter(rows)
        while batch := list(itertools.islice(remaining, _BATCH)):
            sys.stdout.writelines(f"{line}\n" for line in table.lines(batch))
    for note in report.head.notes:
        print(printable(f"rmsplugin {arguments.command}: note: {note.sentence}"), file=sys.stderr)
