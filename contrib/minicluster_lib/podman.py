"""Podman: a minicluster whose vjobs are containers, without libvirt and NFS: each node has a store of images."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from minicluster_lib import control_groups, hosts
from minicluster_lib.files import write
from minicluster_lib.layout import REPOSITORY, Cluster, Host, MiniclusterError, RefusedError

#: Where nodes see the image.
IMAGE_DIRECTORY = "/var/lib/rmsplugin-images"

_BUILDER = REPOSITORY / "contrib" / "guest-image"
_LEAST_CRIU = (4, 2)
_PROGRAMS = ("podman", "runc", "criu")

HYPERVISOR = """\
[hypervisor]
platform = "podman"
"""

IMAGE = """\
[image.default]
kind = "container"
reference = "{reference}"
"""


def check() -> None:
    """Refuse a machine that cannot save and restore containers. Raises RefusedError."""
    if why := reason_against():
        raise RefusedError(why)


def reason_against() -> str:
    """Why this machine cannot save and restore containers; "" if it can."""
    versions = {name: _version(name) for name in _PROGRAMS}
    missing = [name for name, version in versions.items() if not version]
    if missing:
        return f"there is no {', '.join(missing)} here: apt-get install podman runc criu (Debian 13 or later)"
    if tuple(int(number) for number in versions["criu"].split(".")[:2]) < _LEAST_CRIU:
        return f"CRIU is {versions['criu']} here: containers are restored by 4.2 and later"
    if not control_groups.hierarchies(control_groups.RUNC_CONTROLLERS):
        return "there are no control groups of version 1 here, with all controllers that runc wants"
    try:
        done = subprocess.run(["criu", "check"], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "criu check does not end"
    return "" if done.returncode == 0 else f"criu check: {' '.join(done.stderr.split())[-300:]}"


def _version(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"[0-9]+(\.[0-9]+)+", done.stdout)
    return found[0] if found else ""


def provide() -> Path:
    """The directory of the container image, which is built when the cache has none."""
    result = subprocess.run([sys.executable, str(_BUILDER), "build-container"], stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise MiniclusterError("the container image could not be built (see above)")
    return Path(result.stdout.strip()).parent


def reference(cluster: Cluster) -> str:
    """The name of the image."""
    return (Path(cluster.image_directory) / "reference").read_text().strip()


def install_configuration(cluster: Cluster) -> None:
    """Write what nodes have for podman and CRIU."""
    for node in cluster.node_hosts:
        write(node.path("etc/criu/rmsplugin"), (REPOSITORY / "hooks/criu").read_bytes(), mode=0o755)
        node.path("var/lib/containers").mkdir(parents=True, exist_ok=True)


def load_image(cluster: Cluster, node: Host) -> None:
    """Put the image into the store of a node."""
    words = ["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", "load", "--quiet"]
    hosts.run(cluster, node, [*words, "--input", f"{IMAGE_DIRECTORY}/container.tar"])
