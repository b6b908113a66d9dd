"""Rules for the directories of a node that containers have: what [[guest.mounts]] names has to be mounted there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.model.wording import counted
from rmsplugin.settings.guests import Mount

#: Kinds that are one and the same to the settings.
_SAME = {"nfs4": "nfs"}
#: What settings can say. The kernel has other names, too: fuse.ceph-fuse.
_NAME = re.compile(r"[a-z0-9]+")
#: The kernel tells this of a directory below which each user's own is mounted when it is wanted.
_LATER = "autofs"


def judge_mounted(mounts: Sequence[Mount], subject: str, found: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Judge one node.

    Args:
        mounts: of the settings here.
        subject: the node, for people.
        found: what the node tells of each target that its own settings have (``podman.on_node.mounted``).
    """
    faults = [fault for mount in mounts for fault in _faults(mount, subject, found.get(mount.target))]
    yield from faults
    looked_at = sum(bool(found.get(mount.target, {}).get("directory")) for mount in mounts)
    if looked_at and not faults:
        yield ok(subject, f"has the directories of {counted(looked_at, 'mount')}")


def _faults(mount: Mount, subject: str, seen: Mapping[str, str] | None) -> Iterator[Finding]:
    if seen is None:
        yield error(
            subject,
            f"its settings name no mount {mount.target}: no container that has it starts there",
            "copy rmsplugin.toml there",
        )
    elif seen["wrong"]:
        yield error(
            subject,
            f"mount {mount.target}: {seen['directory']}: {seen['wrong']}: no container starts there",
            f"mount {mount.source} there, below directories that root alone may change: docs/operator/containers.md",
        )
    elif _is_other(kind := seen["type"].removeprefix("fuse."), mount):
        yield warning(
            subject,
            f"mount {mount.target}: {seen['directory']} lies on {kind}, and the settings say {mount.type}: "
            "jobs there may have another directory than elsewhere",
            f"mount {mount.source} there; or set type of [[guest.mounts]] to what it is",
        )


def _is_other(kind: str, mount: Mount) -> bool:
    """Whether the directory is of another kind than the settings say, which could say this one.

    What is each user's own is mounted below the directory that was looked at, which may be of any kind.
    """
    own = "{" in mount.target
    return not own and kind != _LATER and _NAME.fullmatch(kind) is not None and _kind(kind) != _kind(mount.type)


def _kind(name: str) -> str:
    return _SAME.get(name, name)
