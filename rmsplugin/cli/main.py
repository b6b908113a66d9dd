"""Command line program ``rmsplugin``: finds the command, runs it, and turns every error into one line and a status.

Exit status: 0 done; 1 could not be done; 2 wrong usage or wrong input; 130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib import import_module
from typing import TextIO, cast

from rmsplugin import __version__
from rmsplugin.cli.shared.arguments import split_command
from rmsplugin.cli.shared.complaints import Complaints, give_up
from rmsplugin.cli.shared.document import print_failure
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import FormatError
from rmsplugin.errors import (
    InstanceError,
    LedgerError,
    OwnPolicyError,
    QueryError,
    ReportError,
    RmspluginError,
    SettingsError,
    WorkloadError,
    WrongOrderError,
)

_WRONG_INPUT = (
    *(SettingsError, InstanceError, WorkloadError, LedgerError, QueryError, ReportError, FormatError),
    *(WrongOrderError, OwnPolicyError),
)

#: What a write to a full disk, a closed descriptor, a dead terminal or a pipe that nobody reads ends with.
_OF_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENXIO, errno.ESTALE, errno.EBADF, errno.EPIPE}

#: Command -> the module of this package that adds it, in the order in which `--help` lists them.
_MODULES = {
    **{name: f"live.{name}" for name in ("vjobs", "vms", "nodes", "groups", "events", "status", "cycles", "decisions")},
    **{name: f"live.{name}" for name in ("schedule", "suspend", "resume", "migrate", "prefer", "resize", "states")},
    **{name: f"live.{name}" for name in ("usage", "confirm", "show", "config", "drain", "undrain", "node", "ssh")},
    **{name: f"live.{name}" for name in ("pause", "unpause", "handover", "top")},
    "plan": "plan.command",
    "pack": "plan.pack_command",
    "simulate": "simulate.command",
    "report": "report.command",
    "energy": "report.energy",
    "compare": "compare",
    "check": "check.command",
    "setup": "setup.command",
    "engine": "engine",
    "manager": "manager",
    "ledger": "ledger.command",
    "calibrate": "calibrate",
}

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


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """The whole command line, or as much of it as the command ``only`` needs: so a command loads no other."""
    parser = argparse.ArgumentParser(
        prog="rmsplugin",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rmsplugin {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="rmsplugin")
    for name in (only,) if only in _MODULES else _MODULES:
        import_module(f"rmsplugin.cli.{_MODULES[name]}").add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    complaints = Complaints(sys.stderr)
    with redirect_stderr(cast(TextIO, complaints)):
        try:
            return _main(sys.argv[1:] if argv is None else argv)
        finally:
            complaints.flush()


def _main(argv: Sequence[str]) -> int:
    own_words, command_words = split_command(argv)
    if sys.stdout is None:
        return _closed_output()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name that its encoding lacks must not cost the listing
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        arguments = _parsed(own_words, command_words)
    except OSError as error:  # of a help
        return _end_by_system(argparse.Namespace(command=""), error)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except _WRONG_INPUT as error:
        return _complain(arguments, error, 2)
    except RmspluginError as error:
        return _complain(arguments, error, 1)
    except OSError as error:
        return _end_by_system(arguments, error)
    except Exception as error:
        if os.environ.get("RMSPLUGIN_DEBUG"):
            raise
        text = f"{type(error).__name__}: {error}"
        return _complain(arguments, f"unexpected {text} (with RMSPLUGIN_DEBUG=1 it says where; please report it)", 1)
    return status


def _parsed(own_words: Sequence[str], command_words: Sequence[str]) -> argparse.Namespace:
    """What is asked for. Raises SystemExit, as argparse does, when it has helped or complained."""
    first = own_words[0] if own_words else ""
    parser = build_parser(first)
    if first and not first.startswith("-") and first not in _MODULES:
        parser.error(_no_command(first))
    try:
        arguments, unknown = parser.parse_known_args(own_words, argparse.Namespace(words=command_words))
    except SystemExit:
        sys.stdout.flush()
        raise
    if unknown:
        arguments.refuse(f"unrecognized arguments: {' '.join(unknown)}")  # with the usage of the command
    return arguments


def _no_command(word: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, _MODULES)
    like = f"; did you mean {' or '.join(close)}?" if close else "; `rmsplugin --help` lists them"
    return f"there is no command {word!r}{like}"


def _closed_output() -> int:
    if sys.stderr is not None:
        print("rmsplugin: standard output is closed", file=sys.stderr)
    return 1


def _end_by_system(arguments: argparse.Namespace, error: OSError) -> int:
    """Say what the operating system refused; return the exit status."""
    what = error.strerror or str(error) or type(error).__name__
    if not _is_of_output(error):
        where = f"{error.filename}: " if error.filename is not None else ""
        return _complain(arguments, f"{where}{what}", 1)
    give_up(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0  # the reader of a pipe (`| head`) has seen enough
    return _complain(arguments, f"standard output: {what}", 1)


def _is_of_output(error: OSError) -> bool:
    """Whether the output could not be written. Errors of files name them, and those of connections are others."""
    return error.filename is None and error.errno in _OF_OUTPUT


def _complain(arguments: argparse.Namespace, error: object, status: int) -> int:
    sentences = [printable(line) or "failed" for line in str(error).rstrip("\n").split("\n")]
    program = f"rmsplugin {arguments.command}".rstrip()
    for sentence in sentences:
        print(f"{program}: {sentence}", file=sys.stderr)
    if status == 1:
        print_failure(arguments, sentences)
    return status


if __name__ == "__main__":
    sys.exit(main())
