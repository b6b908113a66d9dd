"""MUNGE credential: a short-lived token that proves which user of this cluster made it, and for which payload.

Standard library only: the hooks import this module on every vjob's way through Slurm.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from rmsplugin.errors import ForbiddenError, OperationFailedError, UnavailableError

_TIMEOUT_S = 10.0

# Exit statuses of munge and unmunge are libmunge's error codes (munge.h).
_SOCKET = 6  # munged is not running, or not reachable
_TIMEOUT = 7
_REJECTED = {
    2: "it is empty",  # EMUNGE_BAD_ARG
    8: "it is not a MUNGE credential",  # EMUNGE_BAD_CRED
    9: "it is of another MUNGE version",  # EMUNGE_BAD_VERSION
    10: "it is of another cluster (unknown cipher)",
    11: "it is of another cluster (unknown MAC)",
    12: "it is of another cluster (unknown compression)",
    13: "it is of another realm",
    14: "it was not made with this cluster's MUNGE key",  # EMUNGE_CRED_INVALID
    15: "it has expired (do the hosts' clocks agree?)",
    16: "it was made in the future (do the hosts' clocks agree?)",
    17: "it was used before",
    18: "it was made for another user",
}


@dataclass(frozen=True, slots=True)
class Credential:
    """What a decoded credential proves: who made it, and what it says."""

    uid: int
    gid: int
    payload: bytes


def encode(payload: bytes, *, restrict_uid: int | None = None, socket: str = "") -> str:
    """Make a credential of the calling process's user.

    Args:
        payload: what it says.
        restrict_uid: the only user who will be able to decode it.
        socket: munged's socket, when it is not the default one.

    Raises:
        UnavailableError: munged does not answer, or MUNGE is not installed.
        OperationFailedError: munged will not make it, for example because the payload is larger than 1 MiB.
    """
    argv = ["munge", *_socket_option(socket)]
    if restrict_uid is not None:
        argv.append(f"--restrict-uid={restrict_uid}")
    status, output, message = _run(argv, payload)
    if status != 0:
        raise OperationFailedError(f"munge could not make a credential: {message}")
    return output.decode("ascii").strip()


def decode(credential: str, *, socket: str = "") -> Credential:
    """Verify a credential. Each one can be decoded once on a host: a second time is a replay.

    Args:
        credential: the text that ``encode`` returned.
        socket: munged's socket, when it is not the default one.

    Raises:
        ForbiddenError: it proves nothing: forged, expired, replayed, or made for another user.
        UnavailableError: munged does not answer, or MUNGE is not installed.
    """
    argv = ["unmunge", *_socket_option(socket), "--numeric", "--keys=UID,GID"]
    status, output, message = _run(argv, credential.encode("utf-8", "replace"))
    if status in _REJECTED:
        raise ForbiddenError(f"MUNGE credential refused: {_REJECTED[status]}")
    if status != 0:
        raise OperationFailedError(f"unmunge failed: {message}")
    # The metadata end at the first empty line; the payload is what follows, to the last byte.
    metadata, _, payload = output.partition(b"\n\n")
    fields = dict(line.split(":", 1) for line in metadata.decode("ascii").splitlines())
    return Credential(uid=int(fields["UID"]), gid=int(fields["GID"]), payload=payload)


def _socket_option(socket: str) -> list[str]:
    return [f"--socket={socket}"] if socket else []


def _run(argv: list[str], data: bytes) -> tuple[int, bytes, str]:
    try:
        done = subprocess.run(argv, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise UnavailableError(f"{argv[0]} is not installed on this host") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"munged did not answer within {_TIMEOUT_S:.0f} s") from None
    message = " ".join(done.stderr.decode("utf-8", "replace").split())
    if done.returncode in (_SOCKET, _TIMEOUT):
        raise UnavailableError(f"munged does not answer: {message}")
    return done.returncode, done.stdout, message
