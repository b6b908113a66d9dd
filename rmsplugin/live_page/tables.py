"""Tables: what the live page lists, each table with a caption, in a region that a keyboard scrolls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmsplugin.live_page.nodes import state_of
from rmsplugin.live_page.scene import Act, Node, Row, Switch
from rmsplugin.live_page.words import amount, lasting, moment, number, several, text

#: The most rows of one table.
MOST_ROWS = 200
_MIB = 1 << 20

#: Columns with sentences.
_SENTENCES = ("Why", "What")
#: A column: its title, and whether it has numbers.
_Column = tuple[str, bool]


def _table(name: str, caption: str, columns: Sequence[_Column], rows: Iterable[str]) -> str:
    heads = "".join(f'<th scope="col"{_class(is_number)}>{title}</th>' for title, is_number in columns)
    return (
        f'<div class="wide" role="region" aria-labelledby="{name}-what" tabindex="0"><table id="{name}">'
        f'<caption id="{name}-what">{caption}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _class(is_number: bool, title: str = "") -> str:
    """That of a cell: numbers stand to the right, and sentences have room."""
    if title in _SENTENCES:
        return ' class="sentence"'
    return ' class="n"' if is_number else ""


def _cells(columns: Sequence[_Column], values: Sequence[str], attributes: str = "") -> str:
    """One row; its first cell is its header. Values are HTML."""
    (_, first), *others = columns
    rest = "".join(
        f"<td{_class(is_number, title)}>{value}</td>"
        for (title, is_number), value in zip(others, values[1:], strict=True)
    )
    return f'<tr{attributes}><th scope="row"{_class(first)}>{values[0]}</th>{rest}</tr>'


def _left_out(rows: int, command: str) -> str:
    more = rows - MOST_ROWS
    return f"<p>{more} more: <code>rmsplugin {command}</code> lists them.</p>" if more > 0 else ""


# -- vjobs -----------------------------------------------------------------------------------------------------------

# The reason comes early: on a phone it is seen without scrolling.
_VJOB: tuple[_Column, ...] = (
    *(("Job", False), ("Why", False), ("User", False), ("Name", False)),
    ("Partition", False),
)
_SIZE: tuple[_Column, ...] = (("CPUs", True), ("Memory", True))
_QUEUE: tuple[_Column, ...] = (("Position", True), *_VJOB, *_SIZE, ("Since", False))
_PAUSED: tuple[_Column, ...] = (*_VJOB, *_SIZE, ("On", False), ("Since", False))
_SLEEPING: tuple[_Column, ...] = (*_VJOB, *_SIZE, ("Saved on", False), ("Size", True), ("Since", False))


def queue(rows: tuple[Row, ...]) -> str:
    """The vjobs that wait, in their order."""
    if not rows:
        return "<p>No job waits.</p>"
    made = (_cells(_QUEUE, [_position(row), *_vjob(row), *_size(row), moment(row.since)]) for row in rows)
    return _table("waiting", "Jobs that wait, in their order", _QUEUE, _first(made)) + _left_out(len(rows), "vjobs")


def paused(rows: tuple[Row, ...]) -> str:
    """The vjobs that are paused."""
    if not rows:
        return "<p>No job is paused.</p>"
    made = (_cells(_PAUSED, [*_vjob(row), *_size(row), _nodes(row), moment(row.since)]) for row in rows)
    return _table("paused-jobs", "Jobs that stand still in memory", _PAUSED, _first(made)) + _left_out(
        len(rows), "vjobs -t paused"
    )


def sleeping(rows: tuple[Row, ...]) -> str:
    """The vjobs that sleep."""
    if not rows:
        return "<p>No job sleeps.</p>"
    made = (
        _cells(
            _SLEEPING,
            [*_vjob(row), *_size(row), _nodes(row), amount(row.size_bytes / _MIB), moment(row.since)],
        )
        for row in rows
    )
    return _table("sleeping-jobs", "Jobs whose VMs are saved on disk", _SLEEPING, _first(made)) + _left_out(
        len(rows), "vjobs -t sleeping"
    )


def _first(rows: Iterable[str]) -> Iterable[str]:
    return (row for row, _ in zip(rows, range(MOST_ROWS), strict=False))


def _position(row: Row) -> str:
    return "–" if row.position is None else str(row.position)


def _vjob(row: Row) -> list[str]:
    elements = f" ({several(row.elements, 'element')})" if row.elements > 1 else ""
    return [text(row.vjob) + elements, _why(row), text(row.user), text(row.name), text(row.partition)]


def _size(row: Row) -> list[str]:
    return [str(row.cpus) if row.cpus else "–", amount(row.memory_mib) if row.memory_mib else "–"]


def _nodes(row: Row) -> str:
    return text(", ".join(row.nodes)) or "–"


def _why(row: Row) -> str:
    code = f' <span class="code">{text(row.code)}</span>' if row.code else ""
    return f"{text(row.reason)}{code}"


# -- VMs, acts and switches ------------------------------------------------------------------------------------------

_MACHINES: tuple[_Column, ...] = (
    ("Job", False),
    ("User", False),
    ("Name", False),
    ("CPUs", True),
    ("Memory", True),
    ("Needs CPUs", True),
    ("Needs memory", True),
    ("State", False),
)
_ACTS: tuple[_Column, ...] = (
    *(("VM", False), ("User", False), ("Act", False), ("From", False), ("To", False)),
    *(("Done", True), ("Since", False)),
)
_SWITCHES: tuple[_Column, ...] = (
    *(("Number", True), ("State", False), ("What", False), ("Cost", True), ("Least cost", True)),
    *(("Expected", True), ("Took", True), ("Steps", True), ("Time", False)),
)


def machines(node: Node) -> str:
    """The VMs of one node."""
    if not node.machines:
        return f"<p>No VM is on {text(node.name)}.</p>"
    made = (
        _cells(
            _MACHINES,
            [
                *(text(each.vjob) or "another user's", text(each.user) or "–", text(each.name) or "–"),
                *(number(each.cpus), amount(each.memory_mib)),
                "–" if each.needs_cpus is None else number(each.needs_cpus),
                "–" if each.needs_mib is None else amount(each.needs_mib),
                state_of(each),
            ],
        )
        for each in node.machines
    )
    return _table(
        "machines",
        f"VMs on {text(node.name)}, what is booked for each, and what each was seen to need",
        _MACHINES,
        made,
    )


def acts(under_way: tuple[Act, ...]) -> str:
    """What is done to VMs now."""
    if not under_way:
        return "<p>Nothing is under way.</p>"
    return _table("acts", "VMs that start, move, are saved or come back now", _ACTS, _first(map(_act, under_way)))


def _act(act: Act) -> str:
    part = "–" if act.part is None else f"{100 * act.part:.0f} %"
    way = ""
    if act.source and act.destination and act.source != act.destination:
        way = f' data-from="{text(act.source)}" data-to="{text(act.destination)}"'
    return _cells(
        _ACTS,
        [
            *(text(act.vm), text(act.user), text(act.kind), text(act.source) or "–", text(act.destination) or "–"),
            *(part, moment(act.since)),
        ],
        way,
    )


def switches(told: tuple[Switch, ...]) -> str:
    """The last context switches, the newest first."""
    if not told:
        return "<p>There was no context switch yet.</p>"
    return _table("switches", "The last context switches, the newest first", _SWITCHES, map(_switch, told))


def _switch(switch: Switch) -> str:
    return _cells(
        _SWITCHES,
        [
            *(str(switch.number), text(switch.state), text(switch.sentence) or "–"),
            *(amount(switch.cost_mib), amount(switch.bound_mib)),
            "unknown" if switch.expected_s is None else lasting(switch.expected_s),
            "–" if switch.took_s is None else lasting(switch.took_s),
            f"{switch.steps_done}/{switch.steps}",
            moment(switch.time),
        ],
    )
