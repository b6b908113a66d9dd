"""What a user sees of a case: what the submission printed, the accounting, the files; two of them compared. Pure."""

from __future__ import annotations

import difflib
import hashlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from e2e.native.case import Allowed, Case

Outcome = Mapping[str, tuple[str, ...]]
"""Parts and their lines: "submission", "sacct FIELD" (a line a job), "file NAME" (how it is, and its content)."""

_MOST_BYTES = 20_000


@dataclass(frozen=True)
class Difference:
    """A part that is not the same in the two partitions."""

    part: str
    native: tuple[str, ...]
    vjob: tuple[str, ...]
    allowed: Allowed | None  # None: nobody said that it may be so

    @property
    def lines(self) -> list[str]:
        """The differing lines, those of the native job with "-", those of the vjob with "+"."""
        compared = difflib.unified_diff(self.native, self.vjob, n=0, lineterm="")
        return [line for line in list(compared)[2:] if not line.startswith("@@")]


@dataclass(frozen=True)
class Verdict:
    """What comparing a case's two outcomes gave."""

    case: Case
    differences: tuple[Difference, ...]

    @property
    def unexplained(self) -> list[Difference]:
        """Differences that the case's file does not admit."""
        return [each for each in self.differences if each.allowed is None]

    @property
    def stale(self) -> list[Allowed]:
        """What the case's file admits, and is not so."""
        seen = {each.allowed for each in self.differences}
        return [each for each in self.case.allowed if each not in seen]

    @property
    def mendable(self) -> list[Difference]:
        """Differences that a VM can help: they wait to be mended."""
        return [each for each in self.differences if each.allowed and each.allowed.mendable]

    @property
    def good(self) -> bool:
        """Whether the case's file says what is so."""
        return not self.unexplained and not self.stale


def compare(case: Case, native: Outcome, vjob: Outcome) -> Verdict:
    """Compare what became of a case in the two partitions, part by part."""
    parts = sorted({part for part in (*native, *vjob) if native.get(part) != vjob.get(part)})
    return Verdict(
        case, tuple(Difference(part, native.get(part, ()), vjob.get(part, ()), _allowed(case, part)) for part in parts)
    )


def _allowed(case: Case, part: str) -> Allowed | None:
    return next((each for each in case.allowed if fnmatchcase(part, each.part)), None)


def file_lines(mode: int, owner: str, group: str, content: bytes | None) -> list[str]:
    """How a file is, and the lines of its content; a digest of one that is binary or large.

    ``content`` is None for what is no regular file.
    """
    lines = [f"{stat.filemode(mode)} {owner} {group}"]
    if content is None:
        return lines
    if b"\0" in content or len(content) > _MOST_BYTES:
        return [*lines, f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"]
    text = content.decode("utf-8", "backslashreplace")
    return [*lines, *text.splitlines(), *([] if text.endswith("\n") or not text else ["(no end of line)"])]
