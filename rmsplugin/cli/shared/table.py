"""Table: rows of the engine's answers on standard output, in the style of Slurm's commands.

Columns are as wide as what they hold; ``FIELD%WIDTH`` fixes a width, and what is longer is cut and ends in ``+``, as
sacct does it. A cell that holds nothing is ``-``: programs such as awk count words. On a terminal, lines have its
width, and on a narrow one a row has several of them; a program gets whole cells.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from rmsplugin.cli.shared.cells import cut, width_of, wrapped
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable

Row = Mapping[str, Any]

#: Stands in a cell that holds nothing.
_NOTHING = "-"
#: How narrow columns are made to fit a terminal. The words of the last one go on below: it stays wider than others, so
#: that a sentence can be read, and then, while others give what they can, so that most codes are whole.
_NARROW, _NARROW_LAST, _NARROW_CODE = 4, 24, 18
#: Before the further lines of a row.
_INDENT = 2
_SPEC = re.compile(r"([A-Za-z_]+)(?:%(-?\d{1,4}))?")


class Field(NamedTuple):
    """One column that a listing can show."""

    name: str  # as in --format, lower case
    description: str
    text: Callable[[Row], str]
    right: bool = False  # numbers are aligned to the right
    whole: bool = False  # it says little when it is cut: on a narrow terminal others are cut before

    @property
    def title(self) -> str:
        """What stands above the column."""
        return self.name.upper()


class Column:
    """A field as it was asked for; without a fixed width it grows with what it holds."""

    __slots__ = ("field", "fixed", "right", "width")

    def __init__(self, field: Field, right: bool, width: int = 0, fixed: bool = False) -> None:
        self.field = field
        self.right = right
        self.width = width
        self.fixed = fixed

    def cell(self, text: str) -> str:
        """Return the text in the width of the column."""
        text = cut(text, self.width)
        rest = " " * (self.width - width_of(text))
        return f"{rest}{text}" if self.right else f"{text}{rest}"


class FormatError(ValueError):
    """The argument of --format is wrong; the message says where."""


def parse_format(text: str, fields: Sequence[Field]) -> list[Column]:
    """Read ``FIELD[%WIDTH],...``; a negative width aligns to the left, as in sacct.

    Raises:
        FormatError: an unknown field, or a width that is none.
    """
    known = {field.name: field for field in fields}
    columns = []
    for part in text.split(","):
        match = _SPEC.fullmatch(part.strip())
        if match is None:
            raise FormatError(f"--format: {part!r} is not FIELD or FIELD%WIDTH")
        field = known.get(match[1].lower())
        if field is None:
            raise FormatError(f"--format: no field {match[1]!r}; there are {', '.join(known)}")
        if match[2] is None:
            columns.append(Column(field, field.right))
            continue
        width = int(match[2])
        if width == 0:
            raise FormatError(f"--format: {part!r}: the width must not be 0")
        columns.append(Column(field, width > 0, abs(width), fixed=True))
    return columns


class Table:
    """Renders rows; when it is given rows again (events that follow) the columns keep their places."""

    def __init__(
        self, columns: Sequence[Column], *, header: bool = True, parsable: bool = False, width: int | None = None
    ) -> None:
        """Render these columns.

        Args:
            columns: from left to right.
            header: whether their titles come first.
            parsable: separated by |, whole and not aligned.
            width: of a line, in cells of a terminal: the words of the last column go on in further lines, and the
                widest of the others are cut; where that leaves too little of them, all columns of a row are in
                several lines. Columns with a fixed width are left as they are. None: any.
        """
        self._columns = columns
        self._header = header
        self._parsable = parsable
        self._width = width
        self._parts: list[list[Column]] = []  # the columns of each line of a row

    def lines(self, rows: Iterable[Row]) -> Iterator[str]:
        """The lines of these rows; the first call begins with the header."""
        cells = [[printable(column.field.text(row)) for column in self._columns] for row in rows]
        if self._header:
            cells.insert(0, [column.field.title for column in self._columns])
            self._header = False
        if self._parsable:
            yield from ("|".join(line) for line in cells)
            return
        cells = [[text if text.strip() else _NOTHING for text in line] for line in cells]
        for index, column in enumerate(self._columns):
            if not column.fixed:
                column.width = max([column.width, *(width_of(line[index]) for line in cells)])
        self._parts = self._parts or [*_divided(self._columns, self._width)]
        if self._width is not None:
            for number, part in enumerate(self._parts):
                self._narrow(part, self._width - _INDENT * (number > 0))
        for line in cells:
            yield from self._rendered(line)

    def _narrow(self, part: Sequence[Column], width: int) -> None:
        """Make columns of a line narrower until it has this width, or no column may be narrower."""
        over = sum(column.width + 1 for column in part) - 1 - width
        flexible = [column for column in part if not column.fixed]
        ends = [[column for column in flexible if column is end] for end in (self._columns[0], self._columns[-1])]
        inner = [column for column in flexible if column not in (*ends[0], *ends[1])]
        words = [column for column in inner if not (column.right or column.field.whole)]
        rest = [column for column in inner if column not in words]
        for columns, least in (
            *((ends[1], _NARROW_LAST), (words, _NARROW), (ends[1], _NARROW_CODE), (rest, _NARROW)),
            *((ends[0], _NARROW), (ends[1], _NARROW)),
        ):
            over -= _shrink(columns, over, least)

    def _rendered(self, cells: Sequence[str]) -> Iterator[str]:
        """The lines of a row: of each part of its columns one, or several where what its last cell holds is longer."""
        left = iter(cells)
        for number, part in enumerate(self._parts):
            *others, last = part
            begin = " " * (_INDENT * (number > 0))
            for column, text in zip(others, left, strict=False):
                begin += f"{column.cell(text)} "
            text = next(left)
            goes_on = last is self._columns[-1] and not last.fixed and width_of(text) > last.width
            pieces = (wrapped(text, last.width) or [_NOTHING]) if goes_on else [text]
            yield f"{begin}{last.cell(pieces[0])}".rstrip()
            for piece in pieces[1:]:
                yield f"{' ' * width_of(begin)}{last.cell(piece)}".rstrip()


def _divided(columns: Sequence[Column], width: int | None) -> Iterator[list[Column]]:
    """The columns of each line of a row: of one, unless they would be too narrow there, or all have fixed widths."""
    last = columns[-1]

    def wanted(column: Column, least: int, least_last: int) -> int:
        return column.width if column.fixed else min(column.width, least_last if column is last else least)

    least = sum(wanted(column, _NARROW, _NARROW_CODE) + 1 for column in columns) - 1
    if width is None or least <= width or all(column.fixed for column in columns):
        yield [*columns]
        return
    part, left = list[Column](), width
    for column in columns:
        takes = wanted(column, width, _NARROW_LAST)
        if part and takes > left:
            yield part
            part, left = [], width - _INDENT
        part.append(column)
        left -= takes + 1
    yield part


def _shrink(columns: Sequence[Column], over: int, least: int) -> int:
    """Take characters from columns that are wider than ``least``, the widest first. Returns how many of ``over``."""
    for taken in range(over):
        wide = [column for column in columns if column.width > least]
        if not wide:
            return taken
        max(wide, key=lambda column: column.width).width -= 1
    return max(0, over)


def plain_table(fields: Sequence[Field], *, width: int | None = None) -> Table:
    """A table of all these fields, in their order; ``width`` as of a table."""
    return Table([Column(field, field.right) for field in fields], width=width)


def table_of(arguments: argparse.Namespace, columns: Sequence[Column]) -> Table:
    """A table as the options of ``add_table_options`` have it."""
    width = None if arguments.parsable2 else terminal_width()
    return Table(columns, header=not arguments.noheader, parsable=arguments.parsable2, width=width)


def terminal_width(*, indent: int = 0) -> int | None:
    """The width of the terminal that shows the output, in cells, behind an indent; None: a program reads it."""
    if not sys.stdout.isatty():
        return None
    import shutil  # here: it takes long to load, and programs call more often than people

    return shutil.get_terminal_size().columns - indent


def add_table_options(
    parser: argparse.ArgumentParser,
    fields: Sequence[Field],
    default: str,
    json_help: str = "the engine's answer, as JSON",
) -> None:
    """Give a listing command the options that all of them share, and describe its fields in its help."""
    group = parser.add_argument_group("output")
    group.add_argument("--noheader", action="store_true", help="leave the line of titles out")
    group.add_argument("--parsable2", action="store_true", help="fields separated by |, none cut, none padded")
    group.add_argument(
        "--format",
        metavar="FIELD[%WIDTH],...",
        default=default,
        help=f"fields to show, and their widths; a negative width aligns to the left (default: {default})",
    )
    group.add_argument("--json", action="store_true", help=json_help)
    parser.epilog = f"fields:\n{described(fields)}\n\n{textwrap.dedent(parser.epilog or '').strip()}\n"


def described(fields: Sequence[Field]) -> str:
    """The fields, each in a line of a help text."""
    return "\n".join(f"  {field.name:<12} {field.description}" for field in fields)


def columns_of(arguments: argparse.Namespace, fields: Sequence[Field]) -> list[Column]:
    """The columns that the user asked for. Raises FormatError."""
    return parse_format(arguments.format, fields)


def print_rows(
    arguments: argparse.Namespace,
    columns: Sequence[Column],
    key: str,
    rows: Sequence[Row],
    *,
    errors: Iterable[str] = (),
    warnings: Iterable[str] = (),
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Print rows as the user asked for them; of errors, warnings and ``more`` keys only a document tells here."""
    if arguments.json:
        print_document(arguments, {key: list(rows), **more}, errors=errors, warnings=warnings)
        return
    width = None if arguments.parsable2 else terminal_width()
    shown = columns if width is None else _with_something(columns, rows, width)
    for line in table_of(arguments, shown).lines(rows):
        print(line)


def _with_something(columns: Sequence[Column], rows: Sequence[Row], width: int) -> Sequence[Column]:
    """The columns, without those that hold nothing in any row, where the lines of all would be wider than this."""
    if not rows or max(map(width_of, Table(columns).lines(rows))) <= width:
        return columns
    return [
        column for column in columns if column.fixed or any(column.field.text(row).strip() for row in rows)
    ] or columns


def text_of(key: str) -> Callable[[Row], str]:
    """Show a value as it is; what is missing or null as nothing."""

    def text(row: Row) -> str:
        value = row.get(key)
        if isinstance(value, list):
            return ",".join(str(part) for part in value)
        return "" if value is None else str(value)

    return text


def time_of(key: str) -> Callable[[Row], str]:
    """Show seconds since the epoch as Slurm shows a time."""

    def text(row: Row) -> str:
        value = row.get(key)
        return local_time(value) if isinstance(value, int | float) and value > 0 else ""

    return text


def mebibytes_of(key: str) -> Callable[[Row], str]:
    """Show a number of MiB as Slurm shows memory."""

    def text(row: Row) -> str:
        value = row.get(key)
        return "" if value is None else f"{value}M"

    return text


def hosts_of(row: Row) -> str:
    """Where the VMs of a step run afterwards: the nodes, each once."""
    return ",".join(sorted(set((row.get("hosts") or {}).values())))


def bytes_progress(row: Row) -> str:
    """How far the operation on a vjob is, in one word: "suspend:40%"; nothing where there is none."""
    operation = row.get("operation")
    if not operation:
        return ""
    total = operation.get("bytes_total") or 0
    return f"{operation['kind']}:{100 * operation.get('bytes_done', 0) // total}%" if total else str(operation["kind"])


def bytes_of(key: str) -> Callable[[Row], str]:
    """Show a number of bytes in the unit that fits it; nothing for none."""

    def text(row: Row) -> str:
        value = row.get(key)
        return short_bytes(value) if isinstance(value, int) and value > 0 else ""

    return text


def rate_of(key: str) -> Callable[[Row], str]:
    """Show bytes a second in the unit that fits them, 0 too; null, which is a rate that is not known, as nothing."""

    def text(row: Row) -> str:
        value = row.get(key)
        return "" if value is None else short_bytes(value)

    return text


def short_bytes(count: int) -> str:
    """A number of bytes in the largest unit that leaves at least 1, as Slurm's tools print it."""
    size = float(count)
    for unit in ("", "K", "M", "G"):
        if size < 1024:
            return f"{size:.0f}{unit}" if not unit or size >= 100 else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}T"


def local_time(seconds: float) -> str:
    """A time in this host's time zone, as squeue prints it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def duration(seconds: float) -> str:
    """A duration as squeue prints it: [D-]H:MM:SS, or M:SS."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
