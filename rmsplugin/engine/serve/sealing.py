"""Sealing: proves the user who made a request over TCP, and seals the answer so that only that user can read it.

The caller's half of the protocol is ``rmsplugin/client.py``; docs/protocols.md, section 2, has both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmsplugin.adapters import munge
from rmsplugin.client import SCHEME
from rmsplugin.errors import ForbiddenError, OperationFailedError

_NONCE = re.compile(r"[0-9a-f]{32}")

#: munged decodes credentials of up to 1 MiB, in base64, with a little of its own; it also makes larger ones, in vain.
_ANSWER_MAX = (1 << 20) * 3 // 4 - 4096


class AnswerTooLargeError(OperationFailedError):
    """The answer does not fit into a MUNGE credential."""


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """The user who made a request over TCP, as munge proves, and the nonce that its answer has to repeat."""

    uid: int
    gid: int
    nonce: str


def verify_request(
    headers: Mapping[str, str], method: str, path: str, body: bytes, *, munge_socket: str = ""
) -> CallerIdentity:
    """Return the user who made a request that came over TCP.

    Args:
        headers: of the request; names in any case if the mapping takes them so.
        method: of the request.
        path: path and query exactly as they came over the wire (aiohttp: ``request.raw_path``).
        body: of the request, as it came.
        munge_socket: munged's socket, when it is not the default one.

    Raises:
        ForbiddenError: there is no credential, or one for another request. The caller gets a plain 401.
        UnavailableError: munged does not answer.
    """
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme != SCHEME or not token:
        raise ForbiddenError("the request carries no MUNGE credential")
    credential = munge.decode(token, socket=munge_socket)
    try:
        claim = json.loads(credential.payload)
        claimed = (claim["method"], claim["path"], claim["sha256"])
        nonce = claim["nonce"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ForbiddenError("the MUNGE credential was not made for the engine") from None
    if claimed != (method, path, hashlib.sha256(body).hexdigest()):
        raise ForbiddenError("the MUNGE credential was made for another request")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise ForbiddenError("the MUNGE credential has no proper nonce")
    return CallerIdentity(credential.uid, credential.gid, nonce)


def seal_response(identity: CallerIdentity, status: int, body: Mapping[str, Any], *, munge_socket: str = "") -> str:
    """Return the body of the answer to a request of ``identity``; only that user can read it, once.

    Raises:
        UnavailableError: munged does not answer.
        AnswerTooLargeError: the body is larger than a credential can carry (764 KiB).
    """
    payload = json.dumps({"nonce": identity.nonce, "status": status, "body": body}).encode()
    if len(payload) > _ANSWER_MAX:
        raise AnswerTooLargeError(
            f"the answer has {len(payload)} bytes, and over the network at most {_ANSWER_MAX} fit "
            "into a MUNGE credential; ask for less, or ask on the controller"
        )
    return munge.encode(payload, restrict_uid=identity.uid, socket=munge_socket)
