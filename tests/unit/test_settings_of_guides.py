"""The settings that the documents show are settings that the programs take."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.shown_commands import DOCS, GUIDES

from rmsplugin.settings import Settings
from rmsplugin.settings.native import is_native

#: Code of a page: between fences, or indented by four blanks, with blank lines in it.
_FENCED = re.compile(r"^ *```toml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)


def shown(page: Path) -> Iterator[dict[str, Any]]:
    """The parts of a settings file that a page shows, from top to bottom."""
    text = page.read_text()
    for block in [*_FENCED.findall(text), *_INDENTED.findall(text)]:
        part = textwrap.dedent(block).strip("\n")
        section = re.match(r"\[\[?(\w+)", part)
        if section and section.group(1) in Settings.model_fields:
            yield tomllib.loads(part)


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Settings with others in addition, or in their place."""
    both = {
        key: merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in more.items()
    }
    return {**base, **both}


PAGES_WITH_SETTINGS = [page for page in GUIDES if any(shown(page))]


def test_the_pages_with_settings_are_found() -> None:
    assert {"configuring.md", "slurm.md", "energy.md", "several-engines.md"} <= {p.name for p in PAGES_WITH_SETTINGS}


@pytest.mark.parametrize("page", PAGES_WITH_SETTINGS, ids=lambda page: page.stem)
def test_settings_that_are_shown_are_taken(page: Path) -> None:
    """Each part of a page is taken together with those above it, on top of the least that a site has to say.

    That is for VMs: a page of a site without them says all itself, and one of containers what its image is.
    """
    (least,) = _FENCED.findall((DOCS / "settings.md").read_text())
    settings = {} if any(map(is_native, shown(page))) else tomllib.loads(least)
    if any(part.get("hypervisor", {}).get("platform") == "podman" for part in shown(page)):
        del settings["image"]
    for part in shown(page):
        settings = merged(settings, part)
        Settings.model_validate(settings)
