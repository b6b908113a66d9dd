"""Command line program ``rmsplugin``: finds the command, runs it, and turns every error into one line and a status.

Exit status: 0 done; 1 could not be done; 2 wrong usage or wrong input; 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rmsplugin import __version__
from rmsplugin.cli import (
    calibrating,
    checking,
    comparing,
    confirming,
    cycles,
    ledger,
    listings,
    nodes,
    operations,
    pausing,
    planning,
    reporting,
    service,
    session,
    simulating,
    states,
    using,
)
from rmsplugin.cli.table import FormatError, printable
from rmsplugin.errors import (
    InstanceError,
    LedgerError,
    QueryError,
    ReportError,
    RmspluginError,
    SettingsError,
    WorkloadError,
)

_WRONG_INPUT = (SettingsError, InstanceError, WorkloadError, LedgerError, QueryError, ReportError, FormatError)

_DESCRIPTION = """\
Cluster-wide context switches of virtualised jobs (vjobs) for Slurm.

Jobs are submitted with sbatch, as ever, to a partition that runs its jobs in virtual machines. These commands show
what becomes of them, and act on them.
"""

_EPILOG = """\
`rmsplugin COMMAND --help` describes a command, with examples.

exit status:
  0    done
  1    could not be done; one line on standard error says why
  2    wrong usage or wrong input; standard error says where, and what is wrong there
  130  interrupted from the keyboard
"""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="rmsplugin",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rmsplugin {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    listings.add_commands(commands)
    cycles.add_commands(commands)
    operations.add_commands(commands)
    states.add_command(commands)
    using.add_command(commands)
    confirming.add_command(commands)
    nodes.add_command(commands)
    session.add_command(commands)
    pausing.add_commands(commands)
    planning.add_commands(commands)
    simulating.add_command(commands)
    reporting.add_command(commands)
    comparing.add_command(commands)
    checking.add_command(commands)
    service.add_command(commands)
    ledger.add_command(commands)
    calibrating.add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    own_words, command_words = session.split_command(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:
        return _closed_output()
    arguments = build_parser().parse_args(own_words, argparse.Namespace(words=command_words))
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _give_up_output()  # the reader of a pipe (`| head`) has seen enough
        return 0
    except _WRONG_INPUT as error:
        return _complain(arguments, error, 2)
    except RmspluginError as error:
        return _complain(arguments, error, 1)
    except OSError as error:
        _give_up_output()  # most likely it was the output that could not be written
        return _complain(arguments, error.strerror or error, 1)
    except Exception as error:
        if os.environ.get("RMSPLUGIN_DEBUG"):
            raise
        text = f"{type(error).__name__}: {error}"
        return _complain(arguments, f"unexpected {text} (with RMSPLUGIN_DEBUG=1 it says where; please report it)", 1)
    return status


def _closed_output() -> int:
    if sys.stderr is not None:
        print("rmsplugin: standard output is closed", file=sys.stderr)
    return 1


def _give_up_output() -> None:
    """Keep Python from writing what is still buffered at exit: it would fail again, and say so in its own words."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(arguments: argparse.Namespace, error: object, status: int) -> int:
    for line in str(error).rstrip("\n").split("\n"):
        print(f"rmsplugin {arguments.command}: {printable(line) or 'failed'}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
