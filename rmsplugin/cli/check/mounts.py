"""Rules for what guests mount: whether a VM can, whether locks of files reach the server, and what root makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import ContainerImage, Mount

_LOCAL = frozenset({"nolock", "local_lock=all", "local_lock=flock", "local_lock=posix"})
_NFS = ("nfs", "nfs4")
#: A server, by its name or address, and a directory there.
_OF_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:/\[\]]+):.+")
#: 0 is the usual one.
_PORT, _PORT_MOST = re.compile("port=0*([0-9]{1,5})"), 65535
#: These are a node's; a VM of ours has no device for them.
_OF_NODE = frozenset({"9p", "virtiofs", "bind", "none", "overlay"})
_BOUND = frozenset({"bind", "rbind"})
_VERSION_3 = frozenset({"vers=2", "nfsvers=2", "vers=3", "nfsvers=3", "v3"})


def judge_mounts(settings: Settings) -> Iterator[Finding]:
    """Judge each mount of the guests; what containers have, their nodes mount."""
    containers = any(isinstance(image, ContainerImage) for image in settings.image.values())
    for mount in settings.guest.mounts:
        if containers:
            yield ok(_subject(mount), "is bound from each node, which has to have it mounted there")
            continue
        faults = [*_kind(mount), *_locks(mount), *_rights(mount)]
        yield from faults
        if not faults:
            yield ok(_subject(mount), f"mounted with {mount.safe_options()}{_needs(mount)}")


def _subject(mount: Mount) -> str:
    return f"mount {mount.target}"


def _kind(mount: Mount) -> Iterator[Finding]:
    """Say where a VM cannot mount it: what the node has, and what is no server's."""
    of_node = mount.type in _OF_NODE or _BOUND.intersection(mount.options.split(","))
    if of_node or mount.source.startswith("/dev/"):
        yield error(
            _subject(mount),
            f"a VM cannot mount {mount.source} ({mount.type}): it has no directory or device of its node",
            'have an NFS server export it, and write source = "SERVER:/DIRECTORY" and type = "nfs"',
        )
    elif mount.type in _NFS and not _names_server(mount.source):
        yield error(
            _subject(mount),
            f"{mount.source} names no server and directory: no VM starts",
            'write source = "SERVER:/DIRECTORY" for a mount by NFS',
        )
    elif mount.type in _NFS and (wrong := _no_port(mount)):
        yield error(
            _subject(mount), f"{wrong} is no port: no VM starts", "write port=2049, or what the server has: 1 to 65535"
        )


def _names_server(source: str) -> bool:
    """Whether it has a directory, and a server with a name that can be resolved: no part empty, or above 63 letters."""
    found = _OF_SERVER.fullmatch(source)
    try:
        return found is not None and bool(found[1].encode("idna"))
    except UnicodeError:
        return False


def _no_port(mount: Mount) -> str:
    """The option that gives a port, and none of TCP's; "" if there is none."""
    for option in mount.options.split(","):
        port = _PORT.fullmatch(option)
        if option.startswith("port=") and (port is None or int(port[1]) > _PORT_MOST):
            return option
    return ""


def _needs(mount: Mount) -> str:
    """What an image has to have for it, other than ours."""
    return "" if mount.type in _NFS else f"; the image has to have what mounts {mount.type}: our small one has NFS only"


def _locks(mount: Mount) -> Iterator[Finding]:
    given = mount.options.split(",")
    if mount.type not in _NFS:
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
