"""Chart form: utilisation over time, and completions here and under the other schedules, drawn in the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from rmsplugin.report.document import Head, Point

_HEIGHT = 20
#: Narrower than that, and no chart can be read; wider, and no line can be followed.
_NARROWEST, _WIDEST = 60, 160


def chart_lines(head: Head, *, colours: bool) -> Iterator[str]:
    """The charts, for a terminal as wide as this one; without ``colours`` for a file, or a pipe."""
    width = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))
    if head.utilisation:
        yield from _drawn(_utilisation(head.utilisation, width), colours)
    if head.totals["all"] and head.totals["all"][0].worth.jobs:
        yield ""
        yield from _drawn(_completions(head, width), colours)
    else:
        yield "no job ended in this time"


def _drawn(plot: Any, colours: bool) -> Sequence[str]:
    text: str = plot.build()
    return (text if colours else plot.uncolorize(text)).splitlines()


def _figure(width: int) -> Any:
    import plotext  # no other command waits for it

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, _HEIGHT)
    return plotext


def _utilisation(points: Sequence[Point], width: int) -> Any:
    plot = _figure(width)
    times = [point.t for point in points]
    lines = (
        ("used", "hd", [point.cpu_used for point in points]),
        ("booked", "dot", [point.cpu_booked for point in points]),
        ("in the cluster", "-", [point.cpu_total for point in points]),
    )
    for label, marker, values in lines:
        plot.plot(times, values, label=label, marker=marker)
    plot.title("CPUs")
    ticks = [times[index * (len(times) - 1) // 4] for index in range(5)] if len(times) >= 5 else times[:1]
    plot.xticks(ticks, [datetime.fromtimestamp(tick).strftime("%Y-%m-%d %H:%M") for tick in ticks])
    plot.ylim(0, None)
    return plot


def _completions(head: Head, width: int) -> Any:
    """Completion here and there, of the jobs that can be compared; where there is no other schedule, of all."""
    plot = _figure(width)
    total = head.totals["all"][0]
    names, spreads = [head.policy], [total.worth.completion_s]
    for policy, compared in total.without.items():
        spreads[0] = compared.own.completion_s
        names.append(policy)
        spreads.append(compared.worth.completion_s)
    bars = [
        (f"{name} {what}", getattr(spread, value) / 3600)
        for value, what in (("p95", "95 of 100"), ("p50", "median"), ("mean", "mean"))
        for name, spread in reversed(list(zip(names, spreads, strict=True)))
        if spread is not None
    ]
    plot.bar([label for label, _ in bars], [hours for _, hours in bars], orientation="horizontal", width=0.5)
    plot.title("completion, hours")
    return plot
