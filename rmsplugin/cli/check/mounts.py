"""Rules for what guests mount: whether locks of files reach the server, and what a VM's root could make of a mount."""

from __future__ import annotations

from collections.abc import Iterator

from rmsplugin.finding import Finding, ok, warning
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import ContainerImage, Mount

_LOCAL = frozenset({"nolock", "local_lock=all", "local_lock=flock", "local_lock=posix"})
_VERSION_3 = frozenset({"vers=2", "nfsvers=2", "vers=3", "nfsvers=3", "v3"})


def judge_mounts(settings: Settings) -> Iterator[Finding]:
    """Judge each mount of the guests; what containers have, their nodes mount."""
    containers = any(isinstance(image, ContainerImage) for image in settings.image.values())
    for mount in settings.guest.mounts:
        if containers:
            yield ok(_subject(mount), "is bound from each node, which has to have it mounted there")
            continue
        faults = [*_locks(mount), *_rights(mount)]
        yield from faults
        if not faults:
            yield ok(_subject(mount), f"mounted with {mount.safe_options()}")


def _subject(mount: Mount) -> str:
    return f"mount {mount.target}"


def _locks(mount: Mount) -> Iterator[Finding]:
    given = mount.options.split(",")
    if mount.type not in ("nfs", "nfs4"):
        return
    for option in _LOCAL.intersection(given):
        yield warning(
            _subject(mount),
            f"with {option} a lock holds within one VM only: files that two VMs write under a lock are damaged",
            "give it vers=4.2 and leave that option out, if the server has version 4 of NFS; else warn users",
        )
        return
    if _VERSION_3.intersection(given):
        yield warning(
            _subject(mount),
            "with version 3 of NFS locks need rpcbind and rpc.statd in the guests, which our images do not run",
            "give it vers=4.2, which carries locks itself",
        )


def _rights(mount: Mount) -> Iterator[Finding]:
    for option in {"suid", "dev"}.intersection(mount.options.split(",")):
        yield warning(
            _subject(mount),
            f"{option} lets files there make a user root of a VM",
            f"take {option} out of its options, unless programs there need it",
        )
