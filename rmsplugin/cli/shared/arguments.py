"""Arguments: how commands join the command line, and the types of what users write there."""

from __future__ import annotations

import argparse
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

from rmsplugin.model import job_names

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

Command = Callable[[argparse.Namespace], int]

#: The most rows of one answer of the engine.
MOST_ROWS = 10_000
#: How JOBID is explained.
JOB_HELP = "job id, or elements of a job array: ARRAYID, ARRAYID_INDEX or 'ARRAYID_[1-3,7]'"
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_AGE = re.compile(r"(\d{1,6})([dhm])")
#: The largest number of the API, and its digits: a manager numbers events by microseconds.
_LARGEST, _DIGITS = 2**53, 16
#: How many days ago these began.
_DAYS = {"today": 0, "yesterday": 1}
_VM = re.compile(r"\d{1,6}|vjob\d{1,10}-\d{1,6}")


def add_command(commands: Commands, name: str, summary: str, run: Command, epilog: str) -> argparse.ArgumentParser:
    """Add one command; ``epilog`` ends its help with examples."""
    parser = _add_parser(commands, name, summary, epilog)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings file (default: $RMSPLUGIN_CONFIG, else /etc/rmsplugin/rmsplugin.toml)",
    )
    parser.set_defaults(run=run, refuse=parser.error)
    return parser


def add_group(commands: Commands, name: str, summary: str, epilog: str) -> Commands:
    """Add a command that has commands of its own. Returns where they are added."""
    parser = _add_parser(commands, name, summary, epilog)
    return parser.add_subparsers(dest="what", metavar="COMMAND", required=True, help="what to do")


def _add_parser(commands: Commands, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=textwrap.dedent(epilog).strip() + "\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part what is ours from the words behind the first ``--`` of `rmsplugin ssh`, which are the command's.

    argparse would take the first of those for VM when there is none.
    """
    words = list(argv)
    if words[:1] != ["ssh"] or "--" not in words:
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]


def job_id(text: str) -> str:
    """A job id, or elements of an array: 12, 12_3, 12_[1-3,7]."""
    try:
        return job_names.parse(text).text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def job_ids(text: str) -> tuple[str, ...]:
    """Job ids between commas; those within brackets are of one array."""
    return tuple(map(job_id, re.split(r",(?![^\[]*\])", text)))


def names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    found = tuple(text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r}: a name is empty")
    return found


def node_names(text: str) -> tuple[str, ...]:
    """Names of nodes as Slurm's commands take them: n1,n3 or n[1-4]."""
    from rmsplugin.model.hostlist import expand

    try:
        return tuple(map(node_name, expand(text))) or (node_name(text),)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def node_name(text: str) -> str:
    """A node's name."""
    if not _NODE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a node; `rmsplugin nodes` lists them")
    return text


def vm(text: str) -> str:
    """A VM's name, or its number in the vjob."""
    if not _VM.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a VM: give its number (0, 1, ...) or its name (vjob12-0)")
    return text


def whole_number(text: str) -> int:
    """A number from 0 on."""
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    if len(text) > _DIGITS or int(text) > _LARGEST:
        raise argparse.ArgumentTypeError(f"{text[:15]}... is too large")
    return int(text)


def positive_number(text: str) -> int:
    """A number from 1 on."""
    number = whole_number(text)
    if number == 0:
        raise argparse.ArgumentTypeError("has to be at least 1")
    return number


def number_of_rows(text: str) -> int:
    """A number from 1 on, of rows that the engine tells at once."""
    number = positive_number(text)
    if number > MOST_ROWS:
        raise argparse.ArgumentTypeError(f"has to be at most {MOST_ROWS}")
    return number


def amount(text: str) -> int:
    """A number from 1 on; or `all`, which is 0."""
    return 0 if text == "all" else positive_number(text)


def memory_mib(text: str) -> int:
    """An amount of memory as `sbatch --mem` takes it, in MiB; or `all`, which is 0."""
    if text == "all":
        return 0
    match = re.fullmatch(r"([0-9]{1,9})([KMGT]?)B?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory, for example 512M or 2G; or all")
    kib = int(match[1]) << 10 * "KMGT".index(match[2].upper() or "M")
    if kib == 0 or kib // 1024 > 999_999_999:
        raise argparse.ArgumentTypeError(f"{text!r} is {'no memory' if kib == 0 else 'too much'}")
    return -(-kib // 1024)


def _float(text: str) -> float:
    """A number; NaN, which no comparison lets pass, if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def positive_seconds(text: str) -> float:
    """Seconds above 0, a week at most."""
    number = _float(text)
    if not 0 < number <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, and a week at most")
    return number


def past_time(text: str, now: datetime | None = None) -> float:
    """A time, or how long ago it was, as seconds since the epoch; ``now``: by the local clock, or else it is read."""
    now = now or datetime.now()
    try:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        if text in _DAYS:
            moment = midnight - timedelta(days=_DAYS[text])
        elif match := _AGE.fullmatch(text):
            moment = _before(now, int(match[1]), match[2])
        else:
            moment = datetime.fromisoformat(text)
            if _is_skipped(moment):
                raise argparse.ArgumentTypeError(f"{text!r} is no time here: clocks skipped it for summer time")
        seconds = moment.timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a time, YYYY-MM-DD[THH:MM[:SS]], nor how long ago it was, as 7d, 12h or 30m, nor "
            "today or yesterday"
        ) from None
    if seconds > now.timestamp():
        raise argparse.ArgumentTypeError(f"{text!r} is in the future")
    return max(0.0, seconds)


def _is_skipped(moment: datetime) -> bool:
    """Whether the host's clock never showed this time: it was set forward past it.

    Midnight is the begin of its day, whatever clocks show then.
    """
    if moment.tzinfo is not None or moment.time() == time.min:
        return False
    return datetime.fromtimestamp(moment.timestamp()) != moment


def _before(now: datetime, number: int, unit: str) -> datetime:
    """So many days, hours or minutes before now: a day ago clocks showed the same time, whenever they were set.

    Of a time that they showed twice it is the first; of one that they skipped it is that many times 24 hours ago.
    """
    if unit == "d":
        then = now - timedelta(days=number)
        return min(then, then.replace(fold=1), key=datetime.timestamp)
    return datetime.fromtimestamp(now.timestamp() - number * {"h": 3600, "m": 60}[unit])


def positive_amount(text: str) -> float:
    """A number above 0."""
    number = _float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def share(text: str) -> float:
    """A part of something, or all of it."""
    number = _float(text)
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, and 1 at most")
    return number


def workers(text: str) -> int:
    """A number of threads."""
    number = positive_number(text)
    if number > 256:
        raise argparse.ArgumentTypeError("has to be at most 256")
    return number


def seed(text: str) -> int:
    """What a solver takes as the seed of its choices."""
    number = whole_number(text)
    if number >= 2**31:
        raise argparse.ArgumentTypeError(f"has to be at most {2**31 - 1}")
    return number
