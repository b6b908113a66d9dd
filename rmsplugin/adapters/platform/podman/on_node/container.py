"""Container: how a VM is made as a container: its words for podman, its network, and what is removed after it."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from rmsplugin.adapters.platform.node_base import NodeSettings, WantedVM
from rmsplugin.adapters.platform.podman.on_node import acts, network, program
from rmsplugin.adapters.platform.podman.on_node.groups import PARENT, Group
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vm_names import tap_of

#: Where the guest's first process reads its configuration.
CONFIG_INSIDE = "/usr/lib/rmsplugin/config"
#: CRIU runs it at each stage of a restore (hooks/criu).
HOOK = Path("/etc/criu/rmsplugin")
_CRIU_CONF = acts.DIRECTORY / "criu.conf"
#: Files that are open and have no name any more are part of a state, up to this size.
_GHOST_BYTES = 1 << 30
_TMPFS = "rw,exec,nosuid,nodev"
#: What the guest's programs need as root: to be another user, to own users' files, to end processes, to listen at 22.
_CAPABILITIES = "CHOWN,DAC_OVERRIDE,FOWNER,FSETID,KILL,SETGID,SETUID,NET_BIND_SERVICE"
_PIDS_MOST = 32768
_TIMEOUT_S = 60
#: The beginning of the name of an interface that nobody filters.
_UNFILTERED = "rmsv"


def interface_of(name: str, filtered: bool) -> str:
    """The name of the interface's half on the node, and of the network namespace."""
    tap = tap_of(name)
    return tap if filtered else _UNFILTERED + tap[len(_UNFILTERED) :]


def make_network(vm: WantedVM, settings: NodeSettings, is_filtered: Callable[[str], bool]) -> Path:
    """Make the VM's network, with its filter or not at all; return the namespace's path.

    Raises:
        OperationFailedError: it cannot be made.
    """
    interface = interface_of(vm.name, vm.filtered)
    if vm.filtered and not is_filtered(interface):
        raise OperationFailedError(f"the interface of {vm.name} is to be filtered here, and is not")
    return network.make(interface, settings.bridge, network.link_of(Path(settings.vm_path, f"{vm.name}.config")))


def create(vm: WantedVM, settings: NodeSettings, namespace: Path) -> None:
    """Make the container, which does not run yet. Raises as ``program.run``, or OperationFailedError."""
    _require_allowed(vm, settings)
    write_criu_conf()
    program.run("create", *_words(vm, settings, namespace), vm.reference, timeout_s=_TIMEOUT_S)


def _words(vm: WantedVM, settings: NodeSettings, namespace: Path) -> list[str]:
    memory = f"{vm.memory_mib}m"
    words = ["--name", vm.name, "--hostname", vm.name, "--rm", "--pull", "never", "--restart", "no"]
    words += ["--cgroup-parent", f"/{PARENT}/{vm.name}", "--annotation", f"org.criu.config={_CRIU_CONF}"]
    words += ["--network", f"ns:{namespace}", "--no-hosts", "--dns", "none"]
    words += ["--cpus", str(vm.cpus), "--memory", memory, "--memory-swap", memory, "--pids-limit", str(_PIDS_MOST)]
    words += ["--shm-size", f"{max(1, vm.memory_mib // 2)}m", "--ulimit", "host"]
    words += ["--cap-drop", "ALL", "--cap-add", _CAPABILITIES, "--security-opt", "no-new-privileges"]
    words += ["--systemd", "false", "--log-driver", "none", "--stop-signal", "SIGKILL", "--read-only"]
    for directory, mode in (("/etc", "755"), ("/run", "755"), ("/tmp", "1777"), ("/var", "755"), ("/root", "700")):
        words += ["--tmpfs", f"{directory}:{_TMPFS},mode={mode}"]
    words += ["--volume", f"{settings.vm_path}/{vm.name}.config:{CONFIG_INSIDE}:ro"]
    for path, writable in vm.mounts:
        options = "bind-propagation=rprivate" + ("" if writable else ",ro")
        words += ["--mount", f"type=bind,src={path},dst={path},{options}"]
    return words


def _require_allowed(vm: WantedVM, settings: NodeSettings) -> None:
    """Refuse what this node's own settings do not have. Raises OperationFailedError."""
    if vm.reference not in settings.references:
        raise OperationFailedError(f"no image of this node's settings is {vm.reference[:200]}")
    for path, _ in vm.mounts:
        if not any(_allows(target, path) for target in settings.mount_targets):
            raise OperationFailedError(f"no mount of this node's settings is {path[:200]}")


def _allows(target: str, path: str) -> bool:
    """Whether ``path`` is ``target`` of [guest] mounts, for some user; a home is that of the account that owns it."""
    if not re.fullmatch(r"/[^\s,:\"]*", path) or ".." in path.split("/"):
        return False
    if target == "{home}" or "{home}" in target:
        return _is_home(path) and re.fullmatch(_pattern(target), path) is not None
    return re.fullmatch(_pattern(target), path) is not None


def _pattern(target: str) -> str:
    return re.escape(target).replace(r"\{user\}", r"[A-Za-z0-9_][A-Za-z0-9_.-]*").replace(r"\{home\}", r"/.+")


def _is_home(path: str) -> bool:
    try:
        owner = os.stat(path).st_uid
        return owner != 0 and pwd.getpwuid(owner).pw_dir == path
    except (OSError, KeyError):
        return False


def write_criu_conf() -> None:
    """Write CRIU's settings, which each checkpoint and restore of ours reads."""
    acts.make_directory()
    lines = [f"action-script {HOOK}", f"ghost-limit {_GHOST_BYTES}", "link-remap", "skip-in-flight"]
    new = _CRIU_CONF.with_suffix(f".{os.getpid()}")
    new.write_text("\n".join([*lines, ""]))
    new.rename(_CRIU_CONF)


def require_image(reference: str, image: str = "") -> str:
    """The id of an image that is here. Raises OperationFailedError: it is not, or has another id than ``image``."""
    said = image_ids([reference]).get(reference, "")
    if not said or (image and said != image):
        what = f"with the id {image[:12]}" if image else "in podman's storage"
        raise OperationFailedError(
            f"this node has no image {reference} {what}: `podman load` it (docs/operator/images.md)"
        )
    return said


def image_ids(references: Sequence[str]) -> dict[str, str]:
    """By reference, the ids of those images that are here."""
    lines = program.run("images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.Id}}", timeout_s=_TIMEOUT_S)
    found = dict(line.split() for line in lines.splitlines() if len(line.split()) == 2)
    return {each: found[each].removeprefix("sha256:") for each in references if each in found}


def remove(name: str) -> None:
    """Remove what is left of a VM none of whose processes is here; without effect if nothing is.

    Podman removes a container by itself when it has ended, unless podman was ended meanwhile.
    """
    program.run("rm", "--force", "--ignore", "--time", "0", name, timeout_s=_TIMEOUT_S)
    for filtered in (True, False):
        network.remove(interface_of(name, filtered))
    Group(name).remove()


def cut(name: str) -> None:
    """Take the VM off the network, whichever its interface is."""
    for filtered in (True, False):
        network.cut(interface_of(name, filtered))
