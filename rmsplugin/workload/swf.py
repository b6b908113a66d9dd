"""SWF: reads the bytes of a trace in the Standard Workload Format 2.2 into its records, line by line.

A line is good, or a comment, or empty, or a fault. A fault is counted and named, and the next line is read. Text after
the 18th field is not of the format: it is left out, and such lines are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rmsplugin.errors import WorkloadError
from rmsplugin.model.wording import counted
from rmsplugin.workload.faults import FaultCode, Faults
from rmsplugin.workload.record import DECIMAL, FIELD_NAMES, Record, Status

#: Up to here whole numbers are exact as floats, too; as seconds this is 30 million years.
_MOST = 10**15
_LONGEST_LINE_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEADER = re.compile(r";+\s*([A-Za-z][A-Za-z0-9 ]{0,40}?)\s*:\s*(.*?)\s*")
_WHOLE = re.compile(rb"([+-]?[0-9]+)(\.0*)?")
_DECIMAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
#: The number of characters of a faulty text that are shown.
_SHOWN = 40


class FaultyLineError(ValueError):
    """A line is no record; ``code`` and the message say why."""

    def __init__(self, code: FaultCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class SwfReader:
    """Reads a trace once; its counts are complete when all records were taken.

    Attributes:
        header: the values of each ``; Key: value`` line above the first record, by key, in their order.
        faults: lines that are no records. The maker of jobs adds the records that are no jobs.
        lines: the number of lines, with empty ones and comments.
        records: the number of lines that are records.
        extended: the number of records that have more than 18 fields.
    """

    def __init__(self, blocks: Iterable[bytes]) -> None:
        """``blocks`` are the bytes of the trace in pieces of any size."""
        self._blocks = blocks
        self.header: dict[str, list[str]] = {}
        self.faults = Faults()
        self.lines = 0
        self.records = 0
        self.extended = 0

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        """The number of each line that is a record, and the record.

        Raises:
            WorkloadError: a line without end; such a file is no trace.
        """
        make = Record._make
        number = 0
        for lines in self._pieces():
            for line in lines:
                number += 1
                try:
                    record = make(map(int, line.split()))
                except (ValueError, TypeError):
                    plain = False
                else:
                    plain = min(record) >= -1 and max(record) <= _MOST and -1 <= record[10] <= 5 and b"_" not in line
                if not plain:
                    found = self._uncommon(number, line)
                    if found is None:
                        continue
                    record = found
                self.records += 1
                yield number, record
            self.lines = number

    def _pieces(self) -> Iterator[list[bytes]]:
        """Yield whole lines, many at a time."""
        rest = b""
        for block in self._blocks:
            lines = (rest + block).split(b"\n")
            rest = lines.pop()
            if len(rest) > _LONGEST_LINE_BYTES:
                raise WorkloadError(
                    f"line {self.lines + len(lines) + 1} is longer than {_LONGEST_LINE_BYTES >> 20} MiB: no SWF trace"
                )
            yield lines
        if rest:
            yield [rest]

    def _uncommon(self, number: int, line: bytes) -> Record | None:
        """Handle a line that is not simply 18 whole numbers: a comment, nothing, decimals, more fields, or a fault."""
        text = (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).strip()
        if not text:
            return None
        if text.startswith(b";"):
            self._comment(text)
            return None
        try:
            record = parse_line(text)
        except FaultyLineError as error:
            self.faults.add(number, error.code, str(error))
            return None
        self.extended += len(text.split(maxsplit=len(FIELD_NAMES))) > len(FIELD_NAMES)
        return record

    def _comment(self, text: bytes) -> None:
        match = _HEADER.fullmatch(text.decode("utf-8", "replace"))
        if match is not None and not self.records:
            self.header.setdefault(match[1], []).append(match[2])


def parse_line(line: bytes) -> Record:
    """The record on a line, which has to be neither empty nor a comment.

    Raises:
        FaultyLineError: the line is no record.
    """
    words = line.split(maxsplit=len(FIELD_NAMES))[: len(FIELD_NAMES)]
    if len(words) < len(FIELD_NAMES):
        raise FaultyLineError(FaultCode.FIELDS, f"has {counted(len(words), 'field')}, {len(FIELD_NAMES)} are needed")
    record = Record._make(_number(place, word) for place, word in enumerate(words))
    try:
        Status(record.status)
    except ValueError:
        raise FaultyLineError(FaultCode.STATUS, f"{_field(10)} is {record.status}; there are -1 to 5") from None
    return record


def _number(place: int, word: bytes) -> float:
    if whole := _WHOLE.fullmatch(word):
        # Python refuses to read thousands of digits as a whole number.
        value: float = int(whole[1]) if len(whole[1]) < 20 else float(whole[1])
    elif not _DECIMAL.fullmatch(word):
        raise FaultyLineError(FaultCode.NUMBER, f"{_field(place)} is {_shown(word)}, which is no number")
    elif place not in DECIMAL:
        raise FaultyLineError(FaultCode.NUMBER, f"{_field(place)} has to be a whole number, not {_shown(word)}")
    else:
        value = float(word)
    if value > _MOST:
        raise FaultyLineError(FaultCode.RANGE, f"{_field(place)} is {_shown(word)}, which is too large")
    if value < 0 and value != -1:
        raise FaultyLineError(FaultCode.RANGE, f"{_field(place)} is {_shown(word)}; below 0 there is only -1, unknown")
    return value


def _field(place: int) -> str:
    return f"field {place + 1} ({FIELD_NAMES[place]})"


def _shown(word: bytes) -> str:
    text = word.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
