"""Writing: files and directories that are made where there are none, and never changed where there are.

So a setup can be run again at any time, and what an administrator has changed stays. A file that is there with other
content is told of. Files are made whole and with their final mode and owner, under no other name that could be seen.
"""

from __future__ import annotations

import grp
import os
import pwd
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rmsplugin.cli.shared.file_errors import file_errors
from rmsplugin.errors import RefusedError
from rmsplugin.model.wording import counted
from rmsplugin.open_directories import make_above


@dataclass(frozen=True, slots=True)
class Owner:
    """Who a file belongs to."""

    user: str = "root"
    group: str = "root"

    def ids(self) -> tuple[int, int]:
        """Return the numbers.

        Raises:
            RefusedError: there is no such account or group on this host.
        """
        try:
            return pwd.getpwnam(self.user).pw_uid, grp.getgrnam(self.group).gr_gid
        except KeyError:
            raise RefusedError(f"there is no account {self.user} or no group {self.group} on this host") from None


ROOT = Owner()


@dataclass(slots=True)
class Writer:
    """Writes below a root, and keeps what was done as lines for the user."""

    dry_run: bool
    root: Path = Path("/")
    told: list[str] = field(default_factory=list)
    made: list[Path] = field(default_factory=list)  # files that were not there
    to_do: list[str] = field(default_factory=list)

    def at(self, path: Path) -> Path:
        """Where that path of a host is."""
        return self.root / path.relative_to("/")

    def directory(self, path: Path, mode: int, owner: Owner = ROOT) -> None:
        """Have a directory; those above it are made for all to enter."""
        place = self.at(path)
        if place.is_dir():
            self._tell("in order", path)
            return
        self._tell_made(path, f"a directory, mode {mode:04o}")
        if not self.dry_run:
            make_above(place)
            place.mkdir(mode=0o700)
            os.chown(place, *owner.ids())
            place.chmod(mode)

    def file(
        self,
        path: Path,
        content: bytes | Callable[[], bytes],
        what: str,
        *,
        mode: int = 0o644,
        owner: Owner = ROOT,
    ) -> bytes:
        """Have a file; return its content.

        Args:
            path: on the host.
            content: of a new file. A function makes what is another each time (a key): any file that is there will do.
            what: it is, for the user.
            mode: of a new file. A file that others may read, where this lets nobody, is told of.
            owner: of a new file.
        """
        place = self.at(path)
        there = _content(place)
        if there is None:
            return self._make(path, content() if callable(content) else content, what, mode, owner)
        open_to_others = stat.S_IMODE(place.stat().st_mode) & 0o007 & ~mode
        if open_to_others:
            self._tell("left", path, f"others have access to it, and should not: chmod {mode:o} {path}")
        elif callable(content) or there == content:
            self._tell("in order", path)
        else:
            self._tell("left", path, f"it is {what}, but not as setup would write it; it is yours")
        return there

    def _make(self, path: Path, content: bytes, what: str, mode: int, owner: Owner) -> bytes:
        self._tell_made(path, what)
        if not self.dry_run:
            self._put(self.at(path), content, mode, owner)
            self.made.append(path)
        return content

    def remember(self, list_file: Path) -> None:
        """Add the files that were made to a list, by which the package removes them with its purge."""
        if self.made:
            place = self.at(list_file)
            there = (_content(place) or b"").decode()
            names = "".join(f"{path}\n" for path in self.made if not path.is_relative_to("/etc/rmsplugin"))
            self._put(place, (there + names).encode(), 0o644, ROOT, replace=True)

    def renewed(self, path: Path, content: bytes, what: str, *, mode: int = 0o644, owner: Owner = ROOT) -> None:
        """Have a file with this content, which is setup's alone: one with other content is replaced."""
        place = self.at(path)
        if _content(place) == content:
            self._tell("in order", path)
            return
        self._tell_made(path, what)
        if not self.dry_run:
            self._put(place, content, mode, owner, replace=True)

    def lines(self, path: Path, wanted: list[str], what: str, *, mode: int = 0o644) -> None:
        """Have these lines in a file; those that it lacks come behind its own."""
        place = self.at(path)
        there = (_content(place) or b"").decode()
        missing = [line for line in wanted if line not in there.splitlines()]
        if not missing:
            self._tell("in order", path)
            return
        before = there if not there or there.endswith("\n") else there + "\n"
        text = before + "".join(f"{line}\n" for line in missing)
        self._have(path, text, f"{what} ({counted(len(missing), 'line')})", mode)

    def marked(self, path: Path, wanted: list[str], marks: tuple[str, str], what: str) -> None:
        """Have these lines in a file, which lacks them, between two lines that are marks of setup's.

        Lines that are there between the marks stay, before the new ones.
        """
        if not wanted:
            self._tell("in order", path)
            return
        there = (_content(self.at(path)) or b"").decode()
        self._have(path, _marked(there, wanted, marks), f"{what} ({counted(len(wanted), 'line')})", 0o644)

    def _have(self, path: Path, text: str, what: str, mode: int) -> None:
        """Replace a file, which keeps its mode; ``mode`` is that of a new one."""
        self._tell_made(path, what)
        if not self.dry_run:
            place = self.at(path)
            kept = stat.S_IMODE(place.stat().st_mode) if place.is_file() else mode
            self._put(place, text.encode(), kept, ROOT, replace=True)

    def _put(self, place: Path, content: bytes, mode: int, owner: Owner, *, replace: bool = False) -> None:
        uid, gid = owner.ids()
        make_above(place)
        new = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with file_errors(place), open(descriptor, "wb") as file:
                file.write(content)
                os.fchown(descriptor, uid, gid)
                os.fchmod(descriptor, mode)
            if replace:
                new.replace(place)
            else:
                os.link(new, place)  # fails where there is one
        finally:
            new.unlink(missing_ok=True)

    def later(self, what: str) -> None:
        """Keep something that only an administrator can do."""
        self.to_do.append(what)

    def _tell_made(self, path: Path, what: str) -> None:
        self._tell("to make" if self.dry_run else "made", path, what)

    def _tell(self, how: str, path: Path, what: str = "") -> None:
        self.told.append(f"{how:<9}{path}" + (f": {what}" if what else ""))


def _content(place: Path) -> bytes | None:
    """The content of a file; None: there is none. Raises RefusedError if it cannot be read."""
    with file_errors(place):
        try:
            return place.read_bytes()
        except FileNotFoundError:
            return None


def _marked(text: str, wanted: list[str], marks: tuple[str, str]) -> str:
    """The text with these lines at the end of what is between the marks; the marks, too, where it has not both."""
    begin, end = marks
    lines = text.removesuffix("\n").split("\n") if text else []
    if begin in lines and end in lines[lines.index(begin) :]:
        at = lines.index(end, lines.index(begin))
        lines[at:at] = wanted
    else:
        lines += [begin, *wanted, end]
    return "".join(f"{line}\n" for line in lines)
