"""Parcel: what a VM host is given by the controller, one file that is carried there by a way that keeps secrets."""

from __future__ import annotations

import io
import tarfile
from dataclasses import MISSING, dataclass, fields
from pathlib import Path

from rmsplugin.errors import RefusedError

#: Longer files are none of ours.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Parcel:
    """Its files, by their names in it. Those with a value here are left out where they are empty."""

    node: bytes  # the node's name
    node_key: bytes
    authorized_keys: bytes  # lines for root's authorized_keys
    cacert: bytes = b""  # the three parts of the node's TLS, where the platform has one
    servercert: bytes = b""
    serverkey: bytes = b""

    def packed(self) -> bytes:
        """Return it as a tar file, the same for the same content."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for each in fields(self):
                content = getattr(self, each.name)
                if not content and each.default is not MISSING:
                    continue
                member = tarfile.TarInfo(each.name)
                member.size, member.mode = len(content), 0o600
                archive.addfile(member, io.BytesIO(content))
        return out.getvalue()


def read_parcel(path: Path) -> Parcel:
    """Read one. Nothing in it says where a file is to lie.

    Raises:
        RefusedError: it cannot be read, or is not what `rmsplugin setup controller` makes.
    """
    found: dict[str, bytes] = {}
    names = {each.name for each in fields(Parcel)}
    needed = {each.name for each in fields(Parcel) if each.default is MISSING}
    try:
        with tarfile.open(path, mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() and member.size <= _MOST else None
                if member.name in names and content is not None:
                    found[member.name] = content.read()
    except OSError as error:
        raise RefusedError(f"{path}: {error.strerror or error}") from None
    except tarfile.TarError:
        raise RefusedError(f"{path} is not a file of `rmsplugin setup controller`") from None
    if missing := needed - found.keys():
        raise RefusedError(
            f"{path} is not a file of `rmsplugin setup controller`: it lacks {', '.join(sorted(missing))}"
        )
    return Parcel(**found)
