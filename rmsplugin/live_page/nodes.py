"""Nodes: each VM host as a box with its VMs to scale: one bar for CPUs, one for memory, in the same order."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sized

from rmsplugin.live_page.scene import Machine, Node
from rmsplugin.live_page.words import amount, number, several, text

#: Width of a bar, and the top and the height of each, in the units of the drawing.
_WIDTH, _CPUS_TOP, _MEMORY_TOP, _HEIGHT = 200, 0, 12, 10
#: Where the lines of needs are: at the feet of the bars.
_CPUS_FOOT, _MEMORY_FOOT = _CPUS_TOP + _HEIGHT - 1, _MEMORY_TOP + _HEIGHT - 1
#: So many lengths, sizes and owners are written once for all boxes that have them.
_REMEMBERED = 1 << 14
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
        f'<path class="ground" d="{_bar("0", _CPUS_TOP, _WIDTH)}{_bar("0", _MEMORY_TOP, _WIDTH)}"/>{parts}</svg>'
    )


def _parts(node: Node, cpus_taken: float, memory_taken_mib: int) -> Iterator[str]:
    # A node that has more VMs than room, while VMs move or demand more than before, is drawn up to what they take.
    per_cpu = _WIDTH / max(node.cpus, cpus_taken, 0.01)
    per_mib = _WIDTH / max(node.memory_mib, memory_taken_mib, 1)
    cpus_at = memory_at = 0.0
    needs: list[str] = []
    for each in node.machines:
        cpus = 0.0 if each.state in _STILL else each.cpus * per_cpu
        memory = each.memory_mib * per_mib
        cpus_left, memory_left = _units(cpus_at), _units(memory_at)
        bars = (_bar(cpus_left, _CPUS_TOP, cpus) if cpus else "") + _bar(memory_left, _MEMORY_TOP, memory)
        if each.needs_cpus:
            needs.append(f"M{cpus_left} {_CPUS_FOOT}h{_units(each.needs_cpus * per_cpu)}")
        if each.needs_mib:
            needs.append(f"M{memory_left} {_MEMORY_FOOT}h{_units(each.needs_mib * per_mib)}")
        cpus_at, memory_at = cpus_at + cpus, memory_at + memory
        yield f'<path class="{_LOOKS.get(each.state, _CHANGES)}" d="{bars}"><title>{_title(each)}</title></path>'
    if needs:
        yield f'<path class="needs" d="{"".join(needs)}"/>'


@functools.lru_cache(_REMEMBERED)
def _units(length: float) -> str:
    """A length in the units of the drawing; VMs have few sizes, so most lengths are those of others, too."""
    return f"{length:.4g}"


def _bar(left: str, top: int, width: float) -> str:
    across = _units(width)
    return f"M{left} {top}h{across}v{_HEIGHT}h-{across}z"


def _title(machine: Machine) -> str:
    whose, booked = _whose(machine.vjob, machine.user), _booked(machine.cpus, machine.memory_mib)
    return f"{whose}: {booked}, {state_of(machine)}{_needs(machine)}"


@functools.lru_cache(_REMEMBERED)
def _whose(vjob: str, user: str) -> str:
    return text(f"{vjob} ({user})" if vjob else "another user's")


@functools.lru_cache(_REMEMBERED)
def _booked(cpus: float, memory_mib: int) -> str:
    return f"{several(cpus, 'CPU')}, {amount(memory_mib)}"


def _needs(machine: Machine) -> str:
    """What it was seen to need, as the end of a sentence."""
    cpus, mib = machine.needs_cpus, machine.needs_mib
    if cpus is None:
        return "" if mib is None else f"; needs {amount(mib)}"
    return f"; needs {number(cpus)} CPUs" + ("" if mib is None else f", {amount(mib)}")


#: States are few words.
_word = functools.lru_cache(64)(text)


def state_of(machine: Machine) -> str:
    """Its state, with the other node while it is on the way."""
    if not machine.other:
        return _word(machine.state)
    return f"{_word(machine.state)}, {'from' if machine.state == 'arriving' else 'to'} {text(machine.other)}"
