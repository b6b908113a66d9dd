"""Reading: what is on a page that a browser shows, as a reader has it."""

from __future__ import annotations

from datetime import UTC, datetime

from page.browser import Browser

from rmsplugin.cli.shared.table import duration


def rows(page: Browser, place: str) -> list[list[str]]:
    """The texts of a table's cells, of all its pages."""
    script = """(id) => {
        const place = document.getElementById(id);
        const [back, forth] = place.querySelectorAll('.pages button');
        while (!back.disabled) back.click();
        const found = [];
        for (;;) {
            const texts = (row) => [...row.cells].map((cell) => cell.textContent);
            found.push(...[...place.querySelectorAll('tbody tr')].map(texts));
            if (forth.disabled) return found;
            forth.click();
        }
    }"""
    found: list[list[str]] = page.value(f"({script})('{place}')")
    return found


def clock(seconds: float) -> str:
    """A moment as the page has it in a browser of UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def brief(seconds: float) -> str:
    """A moment as a column has it, where all of the page is of one year and of less than two days."""
    return clock(seconds)[5:]


def lasting(seconds: float) -> str:
    """A duration as the page has it."""
    return duration(seconds + 1e-6)


def drawn(page: Browser, chart: str) -> dict[str, int]:
    """How many pixels of the chart have which colour."""
    script = """(id) => {
        const colours = {};
        const look = (root) => {
            for (const inner of root.querySelectorAll('*')) {
                if (inner.shadowRoot) look(inner.shadowRoot);
                if (inner.tagName !== 'CANVAS' || !inner.width) continue;
                const { width, height } = inner;
                const copy = Object.assign(document.createElement('canvas'), { width, height });
                const pixels = copy.getContext('2d', { willReadFrequently: true });
                pixels.drawImage(inner, 0, 0);
                const { data } = pixels.getImageData(0, 0, width, height);
                for (let at = 0; at < data.length; at += 4) {
                    if (data[at + 3] < 255) continue;
                    const hex = [...data.slice(at, at + 3)].map((part) => part.toString(16).padStart(2, '0'));
                    const colour = `#${hex.join('')}`;
                    colours[colour] = (colours[colour] ?? 0) + 1;
                }
            }
        };
        look(document.getElementById(id));
        return colours;
    }"""
    counts: dict[str, int] = page.value(f"({script})('{chart}')")
    return counts


def colour(page: Browser, role: str) -> str:
    """The colour of that role, as the page is now."""
    value: str = page.value(f"getComputedStyle(document.documentElement).getPropertyValue('--{role}').trim()")
    return value


def focused(page: Browser) -> str:
    """The id or the text of what the keyboard acts on."""
    value: str = page.value("document.activeElement.id || document.activeElement.textContent")
    return value


def tab_to(page: Browser, wanted: str) -> None:
    """Press Tab until it is reached."""
    for _ in range(80):
        if focused(page) == wanted:
            return
        page.press("Tab")
    raise AssertionError(f"the keyboard does not reach {wanted}")
