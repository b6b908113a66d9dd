"""A VM host: directories, what its platform needs, and what the controller gives it."""

from __future__ import annotations

import grp
import re
from collections.abc import Mapping
from pathlib import Path

from rmsplugin.adapters.platform.factory import platform_files
from rmsplugin.adapters.platform.host_files import HostFiles
from rmsplugin.cli.setup.parcel import Parcel
from rmsplugin.cli.setup.writing import ROOT, Owner, Writer
from rmsplugin.errors import RefusedError
from rmsplugin.settings import Settings

_AUTHORIZED_KEYS = Path("/root/.ssh/authorized_keys")
_UNITS = (Path("/usr/lib/systemd/system"), Path("/etc/systemd/system"))
_ENGINES = ("rmsplugin-engine.service", "rmsplugin-manager.service")
_MADE = Path("/var/lib/rmsplugin-node/made")
#: Marks what was added to the platform's files, for the package's purge.
BEGIN, END = "# rmsplugin setup: begin", "# rmsplugin setup: end"


def prepare(settings: Settings, writer: Writer, parcel: Parcel | None) -> None:
    """Make what a VM host needs.

    Args:
        settings: the site's.
        writer: writes it.
        parcel: what the controller has for this host; None: it is to be brought yet.

    Raises:
        RefusedError: something that is needed is not there.
    """
    files = platform_files(settings)
    try:
        hook = writer.at(files.hook_source).read_bytes()
    except OSError:
        raise RefusedError(f"{files.hook_source} is not there; install the package rmsplugin-node") from None
    writer.directory(settings.nodes.store, 0o700)
    writer.directory(settings.nodes.vm_dir, 0o711)
    writer.file(files.hook, hook, files.hook_does, mode=0o755)
    for path, wanted in files.values.items():
        _configure(writer, path, wanted)
    if parcel is not None:
        _unpack(settings, writer, files, parcel)
    writer.remember(_MADE)
    _keep_apart(settings, writer)
    if parcel is None:
        writer.later("say `rmsplugin setup node --from FILE` with the file that `rmsplugin setup controller` has made")
    writer.later("have sshd let the node agent's keys in: `PermitRootLogin prohibit-password`, or forced-commands-only")
    writer.later(f"then {files.start}")


def _unpack(settings: Settings, writer: Writer, files: HostFiles, parcel: Parcel) -> None:
    name = parcel.node.decode("ascii", "replace")
    parts = {
        "authority": (parcel.cacert, "the certificate authority"),
        "certificate": (parcel.servercert, f"the certificate of {name}"),
        "key": (parcel.serverkey, f"the key of {name}"),
    }
    if files.certificates and not all(content for content, _ in parts.values()):
        raise RefusedError(
            "the file of `rmsplugin setup controller` has no certificate, which hypervisor.platform of the settings "
            "here needs: have the same settings on all hosts, and make it again there"
        )
    for directory in files.private:
        writer.directory(directory, 0o700)
    vms = Owner("root", files.vm_group if _has_group(files.vm_group) else "root")
    for place in files.certificates:
        content, what = parts[place.part]
        owner = vms if place.for_vms else ROOT
        mode = 0o644 if place.part != "key" else 0o640 if place.for_vms else 0o600
        writer.file(place.path, content, what, mode=mode, owner=owner)
    key = settings.nodes.node_key
    writer.file(key, parcel.node_key, "this host's key for the other nodes", mode=0o600)
    if settings.nodes.agent_user == ROOT.user:
        if not writer.at(_AUTHORIZED_KEYS.parent).is_dir():
            writer.directory(_AUTHORIZED_KEYS.parent, 0o700)
        lines = parcel.authorized_keys.decode().splitlines()
        writer.lines(_AUTHORIZED_KEYS, lines, "who may call the node agent", mode=0o600)
    else:
        writer.later(f"let {settings.nodes.agent_user} have the lines of `tar -xO authorized_keys -f FILE` in its own")


def _keep_apart(settings: Settings, writer: Writer) -> None:
    """Tell of directories of VMs that the engine's service on this host would take and close."""
    engines = settings.engine.state_dir
    named = {
        "nodes.vm_dir": settings.nodes.vm_dir,
        "nodes.store": settings.nodes.store,
        "start.template_dir": settings.start.template_dir,
    }
    below = [name for name, path in named.items() if path.is_relative_to(engines)]
    if below and any(writer.at(place / unit).is_file() for place in _UNITS for unit in _ENGINES):
        writer.later(
            f"this host has an engine, too, whose service keeps {engines} and all below it to itself, so no VM would "
            f"start: put {', '.join(below)} elsewhere in the settings of all hosts, and run this again"
        )


def _has_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _configure(writer: Writer, path: Path, wanted: Mapping[str, str]) -> None:
    """Have these values in a file of KEY = VALUE; a key that an administrator has set stays, and is told of."""
    place = writer.at(path)
    text = place.read_text() if place.is_file() else ""
    said = dict(re.findall(r"^[ \t]*(\w+)[ \t]*=[ \t]*([^\n#]*?)[ \t]*(?:#.*)?$", text, re.MULTILINE))
    for key, value in wanted.items():
        if key in said and said[key] != value:
            writer.later(f"in {path} {key} is {said[key]}, which setup leaves; it should be {value}")
    missing = [f"{key} = {value}" for key, value in wanted.items() if key not in said]
    writer.marked(path, missing, (BEGIN, END), "what is not set there")
