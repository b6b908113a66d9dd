"""Credentials: user and password of BMCs, in a file that only the engine's user can read."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from rmsplugin.errors import RefusedError

_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user of BMCs; the password is shown nowhere."""

    user: str
    password: str = field(repr=False)


def read_credentials(path: Path) -> Credentials:
    """Read the file: TOML with ``user`` and ``password``.

    Raises:
        RefusedError: it cannot be read, others than its owner may read or write it, its owner is neither root nor the
            user of this process, or it does not have both.
    """
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise RefusedError(f"{path} is no file")
            if found.st_mode & 0o077:
                raise RefusedError(f"{path} has a password, and others may read or write it: chmod 600 {path}")
            if found.st_uid not in (0, os.geteuid()):
                raise RefusedError(f"{path} has a password, and belongs to user {found.st_uid}: chown it")
            values = tomllib.loads(file.read(_MOST_BYTES).decode())
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:  # what is wrong in it may be the password
        raise RefusedError(f"{path} is no TOML") from None
    user, password = values.get("user"), values.get("password")
    if not (isinstance(user, str) and isinstance(password, str) and user and password):
        raise RefusedError(f'{path} needs `user = "..."` and `password = "..."`')
    return Credentials(user, password)
