"""Words: texts and numbers as the live page writes them. Every text of others passes ``text`` on its way to HTML."""

from __future__ import annotations

import functools
import html
import re
import time
import unicodedata

_KIB = 1024
_UNITS = ("MiB", "GiB", "TiB")
#: Thousands of VMs have a few sizes.
_REMEMBERED = 4096
_MINUTE_S, _HOUR_S = 60, 3600
#: The longest text of others that is shown.
_MOST = 300
#: Names and most sentences are shown as they are, and found to be so in half of the time.
_is_plain = re.compile(rf"[A-Za-z0-9_ .,:;()/-]{{0,{_MOST}}}").fullmatch
#: Characters that turn the direction of what follows, or cannot be seen: an honest name has none.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def text(words: object) -> str:
    """Any text, safe in HTML and in attributes with quotes: markup is text, and hidden characters are shown as one."""
    shown = str(words)
    if _is_plain(shown):
        return shown
    if len(shown) > _MOST:
        shown = f"{shown[: _MOST - 1]}…"
    if not shown.isascii() or not shown.isprintable():
        shown = "".join("�" if unicodedata.category(each) in _HIDDEN else each for each in shown)
    return html.escape(shown)


@functools.lru_cache(_REMEMBERED)
def amount(mib: float) -> str:
    """Memory, as in `1.5 GiB`."""
    size, unit = float(mib), 0
    while size >= _KIB and unit < len(_UNITS) - 1:
        size, unit = size / _KIB, unit + 1
    return f"{number(size)} {_UNITS[unit]}"


@functools.lru_cache(_REMEMBERED)
def number(value: float) -> str:
    """A number with one decimal at most, and none where it is whole."""
    return f"{value:.0f}" if round(value, 1) == round(value) else f"{value:.1f}"


def lasting(seconds: float) -> str:
    """A duration, as in `4.2 s`, `3 min 5 s` or `2 h 10 min`."""
    if seconds < _MINUTE_S:
        return f"{number(seconds)} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"


def moment(seconds: float) -> str:
    """A point of time as an element, in the time zone of the engine's host."""
    local = time.localtime(seconds)
    return f'<time datetime="{time.strftime("%Y-%m-%dT%H:%M:%S%z", local)}">{time.strftime("%F %T", local)}</time>'


def several(count: float, one: str) -> str:
    """A number with its noun."""
    return f"{number(count)} {one}{'' if count == 1 else 's'}"
