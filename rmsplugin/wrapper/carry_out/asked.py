"""Asked: a request from the VM for one of Slurm's clients, and the words and variables for the site's own client. Pure.

The guest is not trusted: a request may be anything, and is refused unless it is of the form below.
"""

from __future__ import annotations

import os
import posixpath
import tarfile
from collections.abc import Sequence

from rmsplugin.errors import RefusedError
from rmsplugin.wrapper import TOOLS

TYPE_CHECKING = False  # see rmsplugin/client.py
if TYPE_CHECKING:
    from typing import BinaryIO

#: The clients that may be asked for; no other program is ever started.
CLIENTS = frozenset(
    (
        "sacct",
        "sacctmgr",
        "sbatch",
        "scancel",
        "scontrol",
        "sdiag",
        "sinfo",
        "sprio",
        "squeue",
        "sreport",
        "sshare",
        "sstat",
        "strigger",
    )
)
_BYTES = {
    "words": 1 << 20,
    "cwd": 4096,
    "umask": 16,
    "environment": 2 << 20,
    "operand": 16,
    "script": 4 << 20,
}  # fmt: skip
_NEEDED = ("words", "cwd", "umask", "environment")
_OF_THIS_HOST = ("listpids", "pidinfo")
_SHORTER = (("pidinfo", "p"), ("pidinfo", "pi"))  # are `ping`
# Variables that would have the client on this host run or read a file of the guest's choice: the loader's variables,
# those that glibc ignores in set-uid programs, and Lua's, in which sites write client plugins.
_UNSAFE = frozenset(
    (
        *("GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "MALLOC_TRACE"),
        *("NIS_PATH", "NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS", "TZDIR"),
    )
)
_UNSAFE_PREFIXES = ("LD_", "LUA_")
# Variables of this VM only, or of the front.
_NOT_THERE = frozenset(("RMSPLUGIN_HOSTFILE", "SLURM_CONF", "SLURM_CONF_SERVER"))


class Asked:
    """A request of the right form."""

    __slots__ = ("cwd", "environment", "operand", "script", "umask", "words")

    def __init__(self, parts: dict[str, bytes]) -> None:
        """Read the parts of a request.

        Args:
            parts: by name: ``words``, ``cwd``, ``umask``, ``environment``; of sbatch also ``operand`` and ``script``.

        Raises:
            RefusedError: they are not of the form, or not for a client that may be asked for.
        """
        if lacking := [name for name in _NEEDED if name not in parts]:
            raise RefusedError(f"the request has no {lacking[0]}")
        #: The client, and its arguments.
        self.words = [_text(word) for word in _terminated(parts["words"])]
        if not self.words or self.words[0] not in CLIENTS:
            raise RefusedError("this is no client of Slurm's that runs for a VM")
        self.cwd = _text(parts["cwd"])
        if not self.cwd.startswith("/") or "\0" in self.cwd:
            raise RefusedError("the request has no proper directory")
        self.umask = _number(parts["umask"], 8) & 0o777
        self.environment = _variables(parts["environment"])
        #: Content of sbatch's script, and the index of the word that names it; 0: it came through standard input.
        self.script = parts.get("script")
        self.operand = _number(parts["operand"], 10) if "operand" in parts else 0
        if self.operand >= len(self.words):
            raise RefusedError("the request has no such word")

    @property
    def client(self) -> str:
        """Name of the program."""
        return self.words[0]

    def of_this_host(self) -> str:
        """The command of scontrol's that would tell of this host's processes, also other users'; "": there is none."""
        if self.client != "scontrol":
            return ""
        # The first operand; a word after an option may be that option's value, and then the next word is the operand.
        for before, word in zip(self.words, self.words[1:], strict=False):
            if word.startswith("-"):
                continue
            for name in _OF_THIS_HOST:
                if word and name.startswith(word.lower()) and (name, word.lower()) not in _SHORTER:
                    return name
            if not before.startswith("-"):
                break
        return ""

    def safe_environment(self) -> dict[str, str]:
        """The variables that the client gets."""
        return {
            name: value
            for name, value in self.environment.items()
            if name not in _UNSAFE and not name.startswith(_UNSAFE_PREFIXES)
        }


def read(source: BinaryIO) -> Asked:
    """Read a request: a tar of its parts.

    Raises:
        RefusedError: the request is of another form, or too large.
    """
    parts: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                if not member.isreg() or member.name in parts or member.size > _BYTES.get(member.name, -1):
                    raise RefusedError("the request is not of the form, or too large")
                file = archive.extractfile(member)
                parts[member.name] = file.read() if file else b""
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise RefusedError(f"the request cannot be read: {error}") from None
    return Asked(parts)


def sbatch_words(asked: Asked, *, script: str, directory: str) -> list[str]:
    """Arguments for sbatch.

    Args:
        asked: the request.
        script: the script's path on this host, in place of the word that named it; empty: leave the word.
        directory: directory of the job, if it cannot be entered on this host; empty: sbatch runs in it.
    """
    words = list(asked.words[1:])
    if script and asked.operand:
        words[asked.operand - 1] = script
    return [*([f"--chdir={directory}"] if directory else []), *words]


def _variables(data: bytes) -> dict[str, str]:
    pairs = (_text(line).partition("=") for line in _terminated(data))
    result = {name: value for name, equals, value in pairs if name and equals and name not in _NOT_THERE}
    if "PATH" in result:
        result["PATH"] = ":".join(
            each for each in result["PATH"].split(":") if posixpath.normpath(each or ".") != TOOLS
        )
    return result


def _terminated(data: bytes) -> Sequence[bytes]:
    if data and not data.endswith(b"\0"):
        raise RefusedError("the request is cut off")
    return data.split(b"\0")[:-1]


def _text(data: bytes) -> str:
    return os.fsdecode(data)


def _number(data: bytes, base: int) -> int:
    try:
        return max(int(data, base), 0)
    except ValueError:
        raise RefusedError("the request has no proper number") from None
