"""Nodes: each VM host as a box with its VMs to scale: one bar for CPUs, one for memory, in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from rmsplugin.live_page.scene import Machine, Node
from rmsplugin.live_page.words import amount, number, several, text

#: Width of a bar, and the top and the height of each, in the units of the drawing.
_WIDTH, _CPUS_TOP, _MEMORY_TOP, _HEIGHT = 200, 0, 12, 10
#: What stands still uses no CPUs: it has no part of that bar.
_STILL = ("paused",)
#: States that have a look of their own; all others look like one that changes.
_LOOKS = {"running": "r", "paused": "p", "leaving": "l", "arriving": "a"}
_CHANGES = "c"
_LEGEND = (
    ("r", "runs"),
    ("c", "starts, ends or changes"),
    ("l", "leaves this node"),
    ("a", "arrives"),
    ("p", "paused: in memory, computes nothing"),
)

#: The hatch of what is paused; boxes refer to it.
DEFINITIONS = (
    '<svg class="unseen" aria-hidden="true" focusable="false"><defs><pattern id="hatch" width="4" height="4" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="hatch-ground" width="4" height="4"/>'
    '<rect class="hatch-line" width="1.6" height="4"/></pattern></defs></svg>'
)


def legend() -> str:
    """What the looks of VMs mean."""
    keys = "".join(
        f'<li><svg class="key" viewBox="0 0 20 10" aria-hidden="true"><path class="{look}" d="M1 1h18v8h-18z"/></svg> '
        f"{what}</li>"
        for look, what in _LEGEND
    )
    keys += (
        '<li><svg class="key" viewBox="0 0 20 10" aria-hidden="true"><path class="r" d="M1 1h18v8h-18z"/>'
        '<path class="needs" d="M1 8h11"/></svg> what it needs, as seen</li>'
    )
    return f'<ul class="legend" aria-label="What the boxes mean">{keys}</ul>'


def box(node: Node) -> str:
    """An item of a list."""
    name = text(node.name)
    look = "" if node.usable else " out"
    why = f'<p class="why">{text(node.reason)}</p>' if node.reason else ""
    taken = (
        sum(each.cpus for each in node.machines if each.state not in _STILL),
        sum(each.memory_mib for each in node.machines),
    )
    needs = f'<p class="facts">{said}</p>' if (said := _needed(node)) else ""
    return (
        f'<li class="node{look}" id="n-{name}"><p class="name"><a href="?node={name}#vms">{name}</a> '
        f'<span class="facts">{text(node.state)}{_sensed(node)}</span></p>{_drawing(node, *taken)}'
        f'<p class="facts">{_taken(node, *taken)}</p>{needs}{why}</li>'
    )


def _sensed(node: Node) -> str:
    watts = "" if node.watts is None else f" {node.watts} W"
    return watts + ("" if node.celsius is None else f" {node.celsius} °C")


def _taken(node: Node, cpus: float, memory_mib: int) -> str:
    saved = f", {several(node.saved, 'saved state')}" if node.saved else ""
    return (
        f"{number(cpus)}/{number(node.cpus)} CPUs, {amount(memory_mib)}/{amount(node.memory_mib)}, "
        f"{several(len(node.machines), 'VM')}{saved}"
    )


def _needed(node: Node) -> str:
    """What its VMs were seen to need, of those of which it is known."""
    cpus = [each.needs_cpus for each in node.machines if each.needs_cpus is not None]
    memory = [each.needs_mib for each in node.machines if each.needs_mib is not None]
    told = [f"{number(sum(cpus))} CPUs{_of(cpus, node)}"] * bool(cpus)
    told += [f"{amount(sum(memory))}{_of(memory, node)}"] * bool(memory)
    return f"needed: {', '.join(told)}" if told else ""


def _of(known: Sized, node: Node) -> str:
    return "" if len(known) == len(node.machines) else f" ({len(known)} of {len(node.machines)} VMs)"


def _drawing(node: Node, cpus: float, memory_mib: int) -> str:
    parts = "".join(_parts(node, cpus, memory_mib))
    label = f"CPUs and memory of {text(node.name)}, and what its VMs have of them"
    return (
        f'<svg class="bars" viewBox="0 0 {_WIDTH} 22" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<path class="ground" d="{_bar(0, _CPUS_TOP, _WIDTH)}{_bar(0, _MEMORY_TOP, _WIDTH)}"/>{parts}</svg>'
    )


def _parts(node: Node, cpus_taken: float, memory_taken_mib: int) -> Iterator[str]:
    # A node that has more VMs than room, while VMs move or demand more than before, is drawn up to what they take.
    per_cpu = _WIDTH / max(node.cpus, cpus_taken, 0.01)
    per_mib = _WIDTH / max(node.memory_mib, memory_taken_mib, 1)
    cpus_at = memory_at = 0.0
    needs = ""
    for each in node.machines:
        cpus = 0.0 if each.state in _STILL else each.cpus * per_cpu
        memory = each.memory_mib * per_mib
        bars = (_bar(cpus_at, _CPUS_TOP, cpus) if cpus else "") + _bar(memory_at, _MEMORY_TOP, memory)
        needs += _need(cpus_at, _CPUS_TOP, each.needs_cpus, per_cpu) + _need(
            memory_at, _MEMORY_TOP, each.needs_mib, per_mib
        )
        cpus_at, memory_at = cpus_at + cpus, memory_at + memory
        yield f'<path class="{_LOOKS.get(each.state, _CHANGES)}" d="{bars}"><title>{_title(each)}</title></path>'
    if needs:
        yield f'<path class="needs" d="{needs}"/>'


def _need(left: float, top: int, needs: float | None, scale: float) -> str:
    """A line at the foot of a VM's part: how much of it the VM needs."""
    return f"M{left:.4g} {top + _HEIGHT - 1}h{needs * scale:.4g}" if needs else ""


def _bar(left: float, top: int, width: float) -> str:
    across = f"{width:.4g}"
    return f"M{left:.4g} {top}h{across}v{_HEIGHT}h-{across}z"


def _title(machine: Machine) -> str:
    whose = f"{machine.vjob} ({machine.user})" if machine.vjob else "another user's"
    return (
        f"{text(whose)}: {several(machine.cpus, 'CPU')}, {amount(machine.memory_mib)}, {state_of(machine)}"
        f"{_needs(machine)}"
    )


def _needs(machine: Machine) -> str:
    """What it was seen to need, as the end of a sentence."""
    cpus, mib = machine.needs_cpus, machine.needs_mib
    if cpus is None and mib is None:
        return ""
    told = [] if cpus is None else [f"{number(cpus)} CPUs"]
    told += [] if mib is None else [amount(mib)]
    return f"; needs {', '.join(told)}"


def state_of(machine: Machine) -> str:
    """Its state, with the other node while it is on the way."""
    if not machine.other:
        return text(machine.state)
    return f"{text(machine.state)}, {'from' if machine.state == 'arriving' else 'to'} {text(machine.other)}"
