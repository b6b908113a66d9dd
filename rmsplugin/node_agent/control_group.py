"""Control group: bounds the memory of all VMs of this node whose memory is observed (docs/decisions/0040)."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmsplugin.adapters.platform.node_base import Memory, MemoryGroups
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.memory_controllers import MIB, Controller, Version1, Version2

_VM = re.compile(r"vjob[0-9]{1,10}-[0-9]{1,6}")

_SYSTEMCTL_TIMEOUT_S = 10

#: The bytes that each VM that does not wait may take before the next call, if there are so many.
_RESERVE = 16 * MIB


def bound(mib: int, platform: Memory, root: Path = Path("/")) -> dict[str, Any]:
    """Bound the VMs' memory to so much, 0 for leaving it as it is; see ``Nodes.bound_memory``.

    Args:
        mib: for all VMs of observed memory together, their hypervisor processes included.
        platform: puts these VMs into one group.
        root: the directory with the host's /proc, /sys, /run and /etc.

    Raises:
        AgentError: more memory is used and cannot be reclaimed; the bound is as it was.
    """
    systemd = (root / "run/systemd/system").is_dir()
    groups = platform.memory_groups(root)
    try:
        controller = _controller(root, groups, systemd)
    except _MissingError as missing:
        return _report(None, str(missing), root)
    if mib:
        try:
            _make(controller, groups.of_systemd if systemd else "")
        except OSError as error:
            return _report(None, f"no control group can be made in {controller.top}: {error.strerror}", root)
        controller.set_limit(mib * MIB)
        if systemd:
            _systemctl("set-property", "--runtime", groups.of_systemd, *controller.properties(mib * MIB))
    limit = controller.limit()
    if limit is None:
        return _report(None, "", root)
    _share_out(controller, limit)
    return _report(controller, "", root)


class _MissingError(Exception):
    """This host lacks a requirement."""


def _controller(root: Path, groups: MemoryGroups, systemd: bool) -> Controller:
    name = groups.of_systemd if systemd else groups.plain
    if groups.fault:
        raise _MissingError(groups.fault)
    mounted = list(_mounted(root))
    memory = [top for kind, top, options in mounted if kind == "cgroup" and "memory" in options]
    if memory:
        # A VM's group is made in each hierarchy that has a controller, by the platform or by systemd.
        others = [top for kind, top, options in mounted if kind == "cgroup" and not _is_named(options)]
        return Version1(memory[0], name, [] if systemd else [top for top in others if top != memory[0]])
    for kind, top, _ in mounted:
        if kind == "cgroup2" and "memory" in (top / "cgroup.controllers").read_text().split():
            return Version2(top, name)
    raise _MissingError("no control groups with a memory controller are mounted")


def _mounted(root: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Kind, place and options of all mounts."""
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split()[:3]
        yield kind, root / before.split()[4].lstrip("/"), options.split(",")


def _is_named(options: list[str]) -> bool:
    return any(option.startswith("name=") for option in options)


def shares(
    used: Mapping[Path, int], now: Mapping[Path, int | None], waiting: Collection[Path], limit: int
) -> dict[Path, int]:
    """The bytes that each VM may take: those it has, and a part of the rest, so that no VM can take all of the rest.

    All have equal parts. But if some VMs wait, each other VM has a little, and the waiting ones share the rest. Where
    less is left than a little for each, the VMs keep what they have of it: however often this is asked while one VM
    takes its part, the parts of the others do not become less.

    Args:
        used: the bytes that each VM has.
        now: the bytes that each VM may take so far; None for a VM that had no share yet.
        waiting: the VMs that wait for memory.
        limit: of all VMs together, in bytes.
    """
    left = max(0, limit - sum(used.values()))
    others = [vm for vm in used if vm not in waiting]
    if left < _RESERVE * len(others):
        parts = _kept({vm: _part_now(used[vm], now[vm]) for vm in others}, left)
    else:
        parts = dict.fromkeys(others, _RESERVE if waiting else left // max(1, len(others)))
    more = (left - sum(parts.values())) // max(1, len(waiting))
    return {vm: taken + (more if vm in waiting else parts[vm]) for vm, taken in used.items()}


def _part_now(used: int, share: int | None) -> int:
    """The bytes that the VM may still take, as far as they are to be kept for it."""
    return _RESERVE if share is None else min(_RESERVE, max(0, share - used))


def _kept(parts: Mapping[Path, int], left: int) -> dict[Path, int]:
    """The parts as they are, and then what is left for the VMs that have least."""
    kept = _dealt_out(parts, left)
    more = _dealt_out({vm: _RESERVE - part for vm, part in kept.items()}, left - sum(kept.values()))
    return {vm: part + more[vm] for vm, part in kept.items()}


def _dealt_out(wanted: Mapping[Path, int], left: int) -> dict[Path, int]:
    """To each VM what it wants; where that is too much, the same to all that want more than that."""
    dealt = {}
    for number, vm in enumerate(sorted(wanted, key=wanted.__getitem__)):
        dealt[vm] = min(wanted[vm], left // (len(wanted) - number))
        left -= dealt[vm]
    return dealt


def _share_out(controller: Controller, limit: int) -> None:
    """Give each VM its share. A VM that has started meanwhile had no share, and may have taken others' parts."""
    members = _members(controller)
    used = {member: controller.used(member) for member in members}
    now = {member: controller.share(member) for member in members}
    waiting = [member for member in members if controller.waits(member)]
    for member, share in shares(used, now, waiting, limit).items():
        with contextlib.suppress(OSError):  # it has ended, or has taken more meanwhile; the next call sees that
            controller.set_share(member, share)


def _members(controller: Controller) -> list[Path]:
    """The groups of the VMs."""
    return sorted(path for path in controller.group.iterdir() if path.is_dir())


def _vm_of(member: Path) -> str:
    """The VM of a group, by the names that platforms and systemd give to groups; empty for a group of no VM."""
    found = _VM.search(member.name.replace("\\x2d", "-"))
    return found[0] if found else ""


def _make(controller: Controller, slice_name: str) -> None:
    """``slice_name``: the name by which systemd makes the group; "" where it does not."""
    if slice_name and not controller.group.is_dir():
        _systemctl("set-property", "--runtime", slice_name, "MemoryAccounting=yes")
        _systemctl("start", slice_name)
    controller.make()


def _systemctl(*words: str) -> None:
    command = ["systemctl", "--no-ask-password", *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SYSTEMCTL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise AgentError("failed", f"systemctl {words[0]} did not end in {_SYSTEMCTL_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise AgentError("failed", f"systemctl {words[0]}: {done.stderr.strip()[-300:]}")


def _report(controller: Controller | None, why: str, root: Path) -> dict[str, Any]:
    limit = controller.limit() if controller else None
    waiting = [member for member in _members(controller) if controller.waits(member)] if controller else []
    return {
        "bounded": controller is not None,
        "why": why,
        "limit_mib": None if limit is None else limit // MIB,
        "used_mib": controller.used(controller.group) // MIB if controller else None,
        "waits": bool(waiting) or (controller is not None and controller.waits(controller.group)),
        "waiting": sorted(name for member in waiting if (name := _vm_of(member))),
        "pressure": _pressure(root / "proc/pressure/memory"),
    }


def _pressure(path: Path) -> float | None:
    """The share of the last 10 s in which a process on the node waited for memory, in percent."""
    try:
        some = path.read_text().splitlines()[0].split()
    except OSError:  # a kernel without this file, or one that was told not to count
        return None
    return float(dict(field.partition("=")[::2] for field in some[1:])["avg10"])
