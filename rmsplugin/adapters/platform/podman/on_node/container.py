"""Container: how a VM is made as a container: its words for podman, its network, and what is removed after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmsplugin.adapters.platform.node_base import NodeSettings, WantedVM
from rmsplugin.adapters.platform.podman.on_node import acts, criu, directories, network, program
from rmsplugin.adapters.platform.podman.on_node.groups import PARENT, Group
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vm_names import tap_of

#: Where the guest's first process reads its configuration.
CONFIG_INSIDE = "/usr/lib/rmsplugin/config"
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


def prepare(vm: WantedVM, settings: NodeSettings, is_filtered: Callable[[str], bool]) -> Path:
    """Make what a VM has on this node before it is made or restored; return the path of its network namespace.

    Its configuration is a copy: the file of the agent may be replaced while the VM runs, and CRIU restores no mount of
    a file that has been removed.

    Raises:
        OperationFailedError: it cannot be made. The VM starts with its filter or not at all.
    """
    interface = interface_of(vm.name, vm.filtered)
    if vm.filtered and not is_filtered(interface):
        raise OperationFailedError(f"the interface of {vm.name} is to be filtered here, and is not")
    config = Path(settings.vm_path, f"{vm.name}.config")
    link = network.link_of(config)
    acts.make_directory()
    copy = _config_of(vm.name)
    copy.touch(mode=0o600)
    copy.write_bytes(config.read_bytes())
    criu.write_settings(vm.name)
    return network.make(interface, link)


def _config_of(name: str) -> Path:
    return acts.DIRECTORY / f"{name}.config"


def create(vm: WantedVM, namespace: Path) -> None:
    """Make the container, which does not run yet. Raises as ``program.run``."""
    program.run("create", *_words(vm, namespace), vm.reference, timeout_s=_TIMEOUT_S)


def _words(vm: WantedVM, namespace: Path) -> list[str]:
    memory = f"{vm.memory_mib}m"
    words = ["--name", vm.name, "--hostname", vm.name, "--rm", "--pull", "never", "--restart", "no"]
    words += ["--cgroup-parent", f"/{PARENT}/{vm.name}", "--annotation", f"org.criu.config={criu.settings_of(vm.name)}"]
    words += ["--network", f"ns:{namespace}", "--no-hosts", "--dns", "none"]
    words += ["--cpus", str(vm.cpus), "--memory", memory, "--memory-swap", memory, "--pids-limit", str(_PIDS_MOST)]
    words += ["--shm-size", f"{max(1, vm.memory_mib // 2)}m", "--ulimit", "host"]
    words += ["--cap-drop", "ALL", "--cap-add", _CAPABILITIES, "--security-opt", "no-new-privileges"]
    words += ["--systemd", "false", "--log-driver", "none", "--stop-signal", "SIGKILL", "--read-only"]
    for directory, mode in (("/etc", "755"), ("/run", "755"), ("/tmp", "1777"), ("/var", "755"), ("/root", "700")):
        words += ["--tmpfs", f"{directory}:{_TMPFS},mode={mode}"]
    words += ["--volume", f"{_config_of(vm.name)}:{CONFIG_INSIDE}:ro"]
    for path, writable in vm.mounts:
        options = "bind-propagation=rprivate" + ("" if writable else ",ro")
        words += ["--mount", f"type=bind,src={path},dst={path},{options}"]
    return words


def require_allowed(vm: WantedVM, settings: NodeSettings) -> None:
    """Refuse what this node's own settings do not have, or what users could exchange. Raises OperationFailedError."""
    if vm.reference not in settings.references:
        raise OperationFailedError(f"no image of this node's settings is {vm.reference[:200]}")
    for path, _ in vm.mounts:
        directories.require_allowed(path, settings.mount_targets)


def require_image(reference: str, image: str = "") -> None:
    """Require an image to be here, with this id if one is given. Raises OperationFailedError."""
    found = image_id(reference)
    if not found or (image and found != image):
        what = f"with the id {image[:12]}" if image else "in podman's storage"
        raise OperationFailedError(
            f"this node has no image {reference} {what}: `podman load` it (docs/operator/images.md)"
        )


def image_id(reference: str, timeout_s: float = _TIMEOUT_S) -> str:
    """The id of an image; "" if it is not here. Raises as ``program.run``."""
    words = ("images", "--no-trunc", "--quiet", "--filter", f"reference={reference}")
    said = program.run(*words, timeout_s=timeout_s).split()
    return said[0].removeprefix("sha256:") if said else ""


def remove(name: str) -> None:
    """Remove what is left of a VM none of whose processes is here; without effect if nothing is.

    Podman removes a container by itself when it has ended, unless podman was ended meanwhile.
    """
    program.run("rm", "--force", "--ignore", "--time", "0", name, timeout_s=_TIMEOUT_S)
    for filtered in (True, False):
        network.remove(interface_of(name, filtered))
    Group(name).remove()
    _config_of(name).unlink(missing_ok=True)


def _interfaces(name: str) -> list[str]:
    """The VM's interface on this node, whether it is filtered or not."""
    names = [interface_of(name, filtered) for filtered in (True, False)]
    return [each for each in names if Path("/sys/class/net", each).exists()]


def freeze(name: str, timeout_s: float) -> bool:
    """Have the VM stand still, and its network; returns whether it does, else it is as before.

    Raises:
        OperationFailedError: its network cannot be stopped; it is as before.
    """
    stood_still = Group(name).is_told_to_stand_still()
    if not Group(name).freeze(timeout_s):
        if not stood_still:
            Group(name).thaw()
        return False
    try:
        for interface in _interfaces(name):
            network.detach(interface)
    except OperationFailedError:
        if not stood_still:
            Group(name).thaw()
        raise
    return True


def attached(name: str) -> list[str]:
    """The VM's interfaces that are in a bridge: one that was paused by podman is there still."""
    return [each for each in _interfaces(name) if network.is_attached(each)]


def stay(name: str, interfaces: list[str], bridge: str, timeout_s: float) -> None:
    """Have a VM stand still that did before, with these interfaces in the bridge.

    Processes that wait for storage stand still once they need not wait any more, however late that is.
    """
    Group(name).freeze(timeout_s)
    for interface in interfaces:
        network.attach(interface, bridge)


def thaw(name: str, bridge: str) -> None:
    """Let the VM go on, with its network."""
    for interface in _interfaces(name):
        network.attach(interface, bridge)
    Group(name).thaw()
