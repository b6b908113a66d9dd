"""What became of a test, and what the two partitions' endings mean together. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass


class Ending(enum.Enum):
    """How a test of the suite ended."""

    PASSED = "passes"
    FAILED = "fails"
    SKIPPED = "skips itself"
    LATE = "did not end in time"
    NOT_RUN = "not run"


class Kind(enum.Enum):
    """What the endings in both partitions mean together."""

    SAME = "passes in both"
    REFUSED = "refused as documented"
    DIFFERS = "differs"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True)
class Run:
    """One test in one partition."""

    ending: Ending
    log: str = ""


@dataclass(frozen=True)
class Comparison:
    """One test in both partitions."""

    test: str
    native: Run
    vjob: Run
    kind: Kind
    refusal: str = ""  # the sentence in which the vjob partition refused something


def ending_of(code: int | None) -> Ending:
    """How a test ended, from its exit code; None if it was ended because it took too long.

    The suite exits with -1, which is 255, where what a test needs is not here. A negative code is a signal.
    """
    if code is None:
        return Ending.LATE
    if code == 0:
        return Ending.PASSED
    return Ending.SKIPPED if code > 127 else Ending.FAILED


def refusals_in(lua: str) -> list[re.Pattern[str]]:
    """A pattern for each sentence that a Lua file of ours may tell a user."""
    code = "\n".join(line for line in lua.splitlines() if not line.lstrip().startswith("--"))
    joined = re.sub(r'"\s*\.\.\s*"', "", code)
    literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', joined)
    return [_pattern(each) for each in literals if len(each) > _SHORTEST and " " in each]


#: Shorter strings of a Lua file are parts of sentences, names and patterns.
_SHORTEST = 30

#: What the guest's programs say.
_INSIDE = re.compile(r"[^\n]*is not possible inside a vjob[^\n]*")
#: Before what a program said stand the log's own words, and the program's name.
_BEFORE = re.compile(r"^(?:\[[^\]]*\] *\w+\s+Output: *)?(?:[\w.-]+: error: )?")


def _pattern(sentence: str) -> re.Pattern[str]:
    parts = (re.escape(re.sub(r"\\(.)", r"\1", part)) for part in sentence.split("%s"))
    return re.compile(r"[^\r\n]*?".join(parts) + ("[^\r\n]*" if sentence.endswith("%s") else ""))


def refusal(log: str, patterns: Sequence[re.Pattern[str]]) -> str:
    """The first sentence of a log in which something was refused; nothing if there is none."""
    found = (pattern.search(log) for pattern in (*patterns, _INSIDE))
    firsts = sorted((match.start(), -len(match[0]), match[0]) for match in found if match)
    return _BEFORE.sub("", firsts[0][2].strip()) if firsts else ""


def compare(test: str, native: Run, vjob: Run, patterns: Sequence[re.Pattern[str]]) -> Comparison:
    """Put two runs beside each other.

    A test that does not pass natively says nothing of vjobs, nor does one that skips itself: it needs something that a
    partition does not have.
    """
    if native.ending is not Ending.PASSED or vjob.ending is Ending.SKIPPED:
        return Comparison(test, native, vjob, Kind.NOT_COMPARED)
    if vjob.ending is Ending.PASSED:
        return Comparison(test, native, vjob, Kind.SAME)
    told = "" if refusal(native.log, patterns) else refusal(vjob.log, patterns)
    return Comparison(test, native, vjob, Kind.REFUSED if told else Kind.DIFFERS, told)


_COMPLAINTS = (
    re.compile(r"^\[[^\]]*\] +\[? *fatal\b[ \]:]*(.*)$", re.IGNORECASE | re.MULTILINE),
    re.compile(r"^ *(Subtest +\d+ failed *:.*)$", re.MULTILINE),
    re.compile(r"^\[[^\]]*\] +\[? *(?:error|warning)\b[ \]:]*(.*)$", re.IGNORECASE | re.MULTILINE),
)


def complaint(run: Run) -> str:
    """The worst thing that a test complained of, for a person; of several the last one, after which it ended."""
    log = run.log.replace("\r", "")
    found = next((found for pattern in _COMPLAINTS if (found := pattern.findall(log))), [""])
    return re.sub(r" +", " ", found[-1]).strip()


def counted(comparisons: Sequence[Comparison]) -> str:
    """One line for all."""
    numbers = {kind: sum(each.kind is kind for each in comparisons) for kind in Kind}
    return f"{len(comparisons)} tests: " + ", ".join(f"{number} {kind.value}" for kind, number in numbers.items())
