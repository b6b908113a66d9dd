"""Directories: those of its node that a container may have: what the node's own settings name, and root alone made so.

Podman follows symbolic links. So a user who can rename what a path leads through, or put a link there, would have any
directory of the node in a container of his.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterable

from rmsplugin.errors import OperationFailedError

_LINKS_MOST = 40


def require_allowed(path: str, targets: Iterable[str]) -> None:
    """Refuse a directory that no target of [guest] mounts names, or that users could exchange for another one.

    Raises:
        OperationFailedError: it may not be had.
    """
    if not any(_allows(target, path) for target in targets):
        raise OperationFailedError(f"no mount of this node's settings is {path[:200]}")
    try:
        above = open_to_others(path)
    except OSError as error:
        raise OperationFailedError(f"this node cannot reach {path}: {error.strerror}") from None
    if above:
        raise OperationFailedError(
            f"a container cannot have {path}: {above} is not root's alone, so others could put another directory there"
        )


def _allows(target: str, path: str) -> bool:
    """Whether ``path`` is the target, for some user; {home} in it is the home of the account that owns that."""
    if not re.fullmatch(r"/[^\s,:\"]*", path) or ".." in path.split("/"):
        return False
    found = re.fullmatch(_pattern(target), path)
    return found is not None and ("{home}" not in target or _is_home(found["home"]))


def _pattern(target: str) -> str:
    user, homes = r"[A-Za-z0-9_][A-Za-z0-9_.-]*", iter((r"(?P<home>/.+)",))
    return re.sub(
        r"\\\{user\\\}|\\\{home\\\}",
        lambda word: user if "user" in word[0] else next(homes, "(?P=home)"),
        re.escape(target),
    )


def _is_home(path: str) -> bool:
    try:
        owner = os.stat(path).st_uid
        return owner != 0 and pwd.getpwuid(owner).pw_dir == path
    except (OSError, KeyError):
        return False


def open_to_others(path: str) -> str:
    """The directory on the way in which not only root says what is next; "" if there is none. Raises OSError."""
    place, left, links = "/", path.split("/"), 0
    while left:
        word, *left = left
        if word in ("", "."):
            continue
        next_one = os.path.join(place, word)
        entry = os.lstat(next_one)
        if not _is_roots(os.stat(place), entry):
            return place
        if not stat.S_ISLNK(entry.st_mode):
            place = os.path.dirname(place) if word == ".." else next_one
            continue
        links += 1
        if links > _LINKS_MOST:
            return next_one
        target = os.readlink(next_one)
        place, left = "/" if target.startswith("/") else place, [*target.split("/"), *left]
    return ""


def _is_roots(directory: os.stat_result, entry: os.stat_result) -> bool:
    """Whether root alone can exchange the entry of the directory."""
    if directory.st_uid != 0:
        return False
    of_group = directory.st_mode & stat.S_IWGRP and directory.st_gid != 0
    if not (of_group or directory.st_mode & stat.S_IWOTH):
        return True
    return bool(directory.st_mode & stat.S_ISVTX) and entry.st_uid == 0
