"""HTML: the page itself: our template, style and scripts, BokehJS from Python's package of Bokeh, and the data.

The page does not trust the texts in its data. Names of jobs and users are data in a JSON element, and scripts show them
as text. A content security policy allows no script but ours and Bokeh's, by their hashes, and allows nothing to be
loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from rmsplugin.errors import ReportError
from rmsplugin.report.page.columns import in_columns

#: With more jobs, file and allocation diagram are too large for any browser to show them fluently.
MAX_JOBS = 50_000

#: They become one script in this order.
SCRIPTS = ("data", "filters", "tables", "charts", "completion", "allocation", "cluster", "jobs", "main")

_LIBRARY = ("bokeh.min.js", "bokeh-api.min.js")

# Bokeh's figures carry their styles with them.
_POLICY = (
    "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)

_TITLES = {
    "report": "Context switches: what they cost, what they gained",
    "simulation": "Simulated schedule: {policy}",
    "comparison": "Policies compared: {policy}, {others}",
}


def page_text(document: Mapping[str, Any]) -> str:
    """The page that shows a document (rmsplugin.report.document), as the text of one HTML file.

    Raises:
        ReportError: Bokeh is not installed, or there are more jobs than a page can show.
    """
    check_size(len(document["jobs"]))
    scripts = [*library(), _own_script()]
    return Template(_own("page.html")).substitute(
        policy=_POLICY.format(hashes=" ".join(map(_hash, scripts))),
        title=html.escape(_title(document)),
        style=_own("page.css"),
        document=_json(in_columns(document)),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def check_size(jobs: int, remedy: str = "choose fewer by time, user, account or partition") -> None:
    """Raise ReportError for more jobs than a page can show; ``remedy`` tells how to have fewer."""
    if jobs > MAX_JOBS:
        raise ReportError(f"{jobs} jobs are too many for a page, which shows {MAX_JOBS} at most: {remedy}")


def _title(document: Mapping[str, Any]) -> str:
    return _TITLES[document["kind"]].format(policy=document["policy"], others=", ".join(document["others"]))


def library() -> list[str]:
    """The text of BokehJS, whose license, BSD-3-Clause, stands in it. Raises ReportError if Bokeh is not installed."""
    try:
        files = resources.files("bokeh") / "server" / "static" / "js"
        return [_inline((files / name).read_text(encoding="utf-8")) for name in _LIBRARY]
    except (ModuleNotFoundError, FileNotFoundError):
        raise ReportError("a page needs BokehJS: install rmsplugin[html], or Python's package bokeh") from None


def _own(name: str) -> str:
    return (resources.files(__package__) / "files" / name).read_text(encoding="utf-8")


def _own_script() -> str:
    parts = "\n".join(_own(f"{name}.js") for name in SCRIPTS)
    return _inline(f'(() => {{\n"use strict";\n{parts}}})();\n')


def _inline(script: str) -> str:
    """The script without texts that would end its element early; in a script they stand only in strings and regexes."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json(value: Any) -> str:
    """JSON that is safe in HTML: no bracket opens a tag, or a comment, or ends the element."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
