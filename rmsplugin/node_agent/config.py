"""Agent configuration: the few keys of the settings file that a node needs.

Read with tomllib alone: an agent starts for every call, and the engine's settings module would triple its start time.
The engine has checked the file; here a wrong value is just an error.
"""

from __future__ import annotations

import os
import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from rmsplugin import defaults
from rmsplugin.node_agent.errors import AgentError

if TYPE_CHECKING:
    from pathlib import Path

#: The server in the source of a mount: an address in brackets, or a name or address without a colon.
_SERVER = re.compile(r"(?:\[([^\]]+)\]|([^:/\[\]]+)):.")
_NFS_PORT, _PORT_MOST = "2049", 65535
#: 0 is the usual one, too.
_PORT = re.compile(r"port=0*([1-9][0-9]*)")


class AgentConfig(NamedTuple):
    """Directories, keys and images of this node.

    The directories are texts, since pathlib is slow to load and a platform's hook has no other use for it.
    """

    store_path: str
    vm_path: str
    shared_path: str | None  # the whole of it: each group has a directory of its own there
    node_key: str
    known_hosts: str
    agent_user: str
    bridge: str
    bases: frozenset[str]  # qcow2 images on which overlays may be made
    images: tuple[str, ...]  # every file that an image of the settings needs
    image_files: dict[str, tuple[str, ...]]  # the same by image
    templates_path: str
    templates_mib: int
    templates_number: int
    filters_path: str
    platform: str = defaults.PLATFORM
    engine_user: str = defaults.USER  # owner of the rooms' jobs
    lets_through: bool = False  # engines reach the platform through the agent
    references: frozenset[str] = frozenset()  # the names of the images of containers
    mount_targets: tuple[str, ...] = ()  # the directories that guests have of the site, with {user} and {home}
    file_servers: tuple[tuple[str, int], ...] = ()  # host and port of each server from which guests mount
    several_engines: bool = False  # one of them leads, and has to show it where the node has come up anew
    group: str = ""  # the group whose engine asks about the shared store; empty: an engine of all groups

    @property
    def store(self) -> Path:
        """The directory of the saved states on this node."""
        return _path(self.store_path)

    @property
    def vm_dir(self) -> Path:
        """The directory of the VMs' files."""
        return _path(self.vm_path)

    @property
    def shared_store(self) -> Path | None:
        """The directory of the saved states that all nodes mount, if there is one: that of the asking engine."""
        return self.part_of(self.group) if self.group else self.whole_store

    def part_of(self, group: str) -> Path | None:
        """The part of the shared store that is a group's own."""
        whole = self.whole_store
        return None if whole is None else whole / defaults.GROUPS_DIR / group

    @property
    def whole_store(self) -> Path | None:
        """The same for an engine of all groups."""
        return None if self.shared_path is None else _path(self.shared_path)

    @property
    def templates(self) -> Path:
        """The directory of the templates."""
        return _path(self.templates_path)

    @property
    def filters(self) -> Path:
        """The directory of the rules of the node's own filter."""
        return _path(self.filters_path)

    def store_of(self, shared: bool) -> Path:
        """The directory of the saved states."""
        if not shared:
            return self.store
        found = self.shared_store
        if found is None:
            raise AgentError("failed", "nodes.shared_store is not set on this node")
        return found


def load(argument: str | None) -> AgentConfig:
    """Read the file named by the argument, else by $RMSPLUGIN_CONFIG, else the default one."""
    path = argument or os.environ.get("RMSPLUGIN_CONFIG") or defaults.CONFIG
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise AgentError.of(error) from None
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8; tables in tables without end
        raise AgentError("failed", f"{path}: {error}") from None
    try:
        return _from_document(document)
    except (TypeError, AttributeError, ValueError) as error:
        raise AgentError("failed", f"{path}: {error}") from None


def _from_document(document: dict[str, Any]) -> AgentConfig:
    nodes = document.get("nodes", {})
    network = document.get("network", {})
    images, start = list(document.get("image", {}).values()), document.get("start", {})
    files_of = {name: _files_of(image) for name, image in document.get("image", {}).items()}
    shared, mounts = nodes.get("shared_store"), document.get("guest", {}).get("mounts", [])
    return AgentConfig(
        store_path=_absolute(nodes.get("store", defaults.STORE)),
        vm_path=_absolute(nodes.get("vm_dir", "/var/lib/rmsplugin/vm")),
        shared_path=_absolute(shared) if shared else None,
        node_key=str(nodes.get("node_key", "/etc/rmsplugin/node_key")),
        known_hosts=str(nodes.get("known_hosts", "/etc/rmsplugin/known_hosts")),
        agent_user=str(nodes.get("agent_user", "root")),
        bridge=str(network.get("bridge", "br0")),
        bases=frozenset(image["base"] for image in images if "base" in image),
        images=tuple(sorted({path for paths in files_of.values() for path in paths})),
        image_files=files_of,
        templates_path=_absolute(start.get("template_dir", "/var/lib/rmsplugin/templates")),
        templates_mib=int(start.get("template_mib", 2048)),
        templates_number=int(start.get("template_number", 16)),
        filters_path=_absolute(network.get("filter_dir", "/run/rmsplugin-filters")),
        platform=str(document.get("hypervisor", {}).get("platform", defaults.PLATFORM)),
        engine_user=str(document.get("engine", {}).get("user", defaults.USER)),
        lets_through=_lets_through(document),
        several_engines=document.get("cluster", {}).get("coordination", "local") != "local",
        references=frozenset(str(image["reference"]) for image in images if "reference" in image),
        mount_targets=tuple(str(each["target"]) for each in mounts),
        file_servers=tuple(server for each in mounts if (server := _file_server(each)) is not None),
    )


def _file_server(mount: dict[str, str]) -> tuple[str, int] | None:
    """Host and port of the server of a mount by NFS over TCP; None: it is another one, or its port is none."""
    found = _SERVER.match(str(mount.get("source", "")))
    options = str(mount.get("options", "")).split(",")
    if found is None or mount.get("type", "nfs") not in ("nfs", "nfs4") or "udp" in options or "proto=udp" in options:
        return None
    ports = [given[1] for option in options if (given := _PORT.fullmatch(option))] or [_NFS_PORT]
    if len(ports[-1]) > len(str(_PORT_MOST)) or int(ports[-1]) > _PORT_MOST:
        return None
    return found[1] or found[2], int(ports[-1])


def _lets_through(document: dict[str, Any]) -> bool:
    """As ``Settings.through_agents``."""
    connect = document.get("hypervisor", {}).get("connect", "auto")
    return connect == "agent" or (connect == "auto" and "shared_dir" in document.get("cluster", {}))


def _files_of(image: dict[str, str]) -> tuple[str, ...]:
    return tuple(image[key] for key in ("kernel", "initrd", "base") if key in image)


def _absolute(text: str) -> str:
    """The path as it is compared and shown: without empty parts, and single dots."""
    if not text.startswith("/"):
        raise ValueError(f"{text} is not an absolute path")
    return text if {"", "."}.isdisjoint(text.split("/")[1:]) else str(_path(text))


def _path(text: str) -> Path:
    from pathlib import Path

    return Path(text)
