"""Rules for the formats of saved states: how libvirt compresses them, and who can restore them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmsplugin.adapters.platform.checks_base import AgentFacts
from rmsplugin.finding import Finding, error, ok, warning

#: Formats of saved states that keep pace with a disk, first the one that every libvirt knows; those that do nothing.
_FAST_FORMATS = ("lzop", "zstd")

_UNCOMPRESSED = frozenset({"raw", "sparse"})


def judge_format(subject: str, agent: AgentFacts, key: str, chosen: str) -> Iterator[Finding]:
    """Judge how libvirt compresses what it writes at a ``save``, or of a checkpoint, which it calls a ``snapshot``."""
    what, cannot = {
        "save": ("VMs", "no VM can be suspended there"),
        "snapshot": ("checkpoints", "no checkpoint can be made there"),
    }[key]
    change = f'set {key}_image_format = "{_FAST_FORMATS[0]}" in /etc/libvirt/qemu.conf and restart libvirtd'
    if not chosen:
        return  # an older release, which is told already
    if chosen in _UNCOMPRESSED:
        yield warning(
            subject,
            f"libvirt saves {what} uncompressed: they take more room, and longer to copy to another node",
            f"install {_FAST_FORMATS[0]} on all nodes, {change}",
        )
    elif chosen not in agent.restorable_formats:
        yield error(
            subject,
            f"libvirt saves {what} through {chosen}, and there is no program {chosen}: {cannot}",
            f"install {chosen} on all nodes",
        )
    elif chosen not in _FAST_FORMATS:
        yield warning(
            subject, f"libvirt saves {what} through {chosen}, which is slow: VMs stand still meanwhile", change
        )
    else:
        yield ok(subject, f"libvirt compresses what it saves of {what} ({chosen})")


def judge_formats(agents: Mapping[str, AgentFacts]) -> Iterator[Finding]:
    """Judge whether what is saved on one node can be restored on all others."""
    agents = {name: agent for name, agent in agents.items() if agent.save_format}
    formats = {name: {agent.save_format, agent.snapshot_format} - {""} for name, agent in agents.items()}
    for name, agent in agents.items():
        for chosen in sorted(set().union(*formats.values()) - formats[name] - {*_UNCOMPRESSED}):
            if chosen not in agent.restorable_formats:
                sources = ", ".join(other for other, its in formats.items() if chosen in its)
                yield error(
                    f"node {name}",
                    f"has no program {chosen}: no VM can be resumed there that was saved on {sources}",
                    f"install {chosen} on all nodes",
                )
