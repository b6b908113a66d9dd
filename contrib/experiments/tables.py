"""Tables in Markdown, and charts of text, as docs/reproduction.md has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

#: From nothing to all.
_BLOCKS = " ▁▂▃▄▅▆▇█"


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a table: the first column is text, the others are numbers, and to the right."""
    yield f"| {' | '.join(titles)} |"
    yield f"|---|{'---:|' * (len(titles) - 1)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def minutes(seconds: float) -> str:
    """Seconds as minutes with one decimal."""
    return f"{seconds / 60:.1f}"


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds."""
    return f"{round(seconds) // 60} min {round(seconds) % 60:02d} s"


def bars(values: Sequence[float], most: float) -> str:
    """A character for each value, from 0 to ``most``."""
    return "".join(_BLOCKS[min(8, max(0, round(8 * value / most)))] for value in values)


def fenced(lines: Sequence[str]) -> Iterator[str]:
    """Lines that keep their form."""
    yield from ("```", *(line.rstrip() for line in lines), "```")
