"""The documentation is true where a program can tell: links, commands, settings, generated pages."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from unit.shown_commands import GUIDES, PAGES, commands_shown

from rmsplugin.cli.main import build_parser
from rmsplugin.cli.shared.arguments import split_command
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import KernelImage, Qcow2Image

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: What stands behind a point that is none between a section and a setting.
FILE_ENDINGS = ("md", "sock", "py", "toml", "json", "service", "socket", "conf", "db")

#: What marks a machine or a network of ours, and must never be in anything committed.
PRIVATE = re.compile(r"/work/|/root/|/home/(?!(?:alice|proj)\b)\w+/|artifact-?registry|\.internal\b")


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def broken_links(path: Path) -> list[str]:
    """The links of a page, but those to other sites, that lead to no file or to no heading of it."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text())):
        file, _, anchor = target.partition("#")
        page = (path.parent / file) if file else path
        if re.match(r"https?://", target) or (page.exists() and (not anchor or anchor in anchors(page))):
            continue
        broken.append(f"{place(path)}: {target}")
    return broken


def test_links_lead_somewhere() -> None:
    assert [link for path in PAGES for link in broken_links(path)] == []


def test_what_is_above_or_below_is_on_the_same_page() -> None:
    """A reader who is told to look above looks there."""
    elsewhere = re.compile(r"\[(?:as )?(?:above|below)\]\([^#)][^)]*\)")
    assert [(place(path), found) for path in PAGES for found in elsewhere.findall(path.read_text("utf-8"))] == []


def test_files_of_the_repository_that_are_named_exist() -> None:
    named = re.compile(r"(?<![\w/.-])((?:rmsplugin|contrib|lua|hooks|tests|docs|\.ci)/[\w./-]*\w)")
    missing = [(place(path), n) for path in PAGES for n in named.findall(path.read_text()) if not (ROOT / n).exists()]
    assert missing == []


def test_nothing_of_the_machine_it_was_written_on() -> None:
    assert [(place(path), found) for path in PAGES for found in PRIVATE.findall(path.read_text())] == []


def parses(words: str) -> bool:
    """Whether ``rmsplugin`` takes these arguments; a command alone that needs more of them is just named."""
    own, _ = split_command(shlex.split(words))
    if own[0] not in complete_without_arguments() and len(own) == 1:
        return own[0] in subparsers()
    try:
        parser().parse_args(own)
    except SystemExit:
        return False
    return True


def test_commands_that_are_shown_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "contrib/policy-template")  # where a policy of one's own is tried
    shown = {(place(path), words) for path in GUIDES for words in commands_shown(path.read_text())}
    assert sorted((path, words) for path, words in shown if not parses(words)) == []


def settings_named(text: str) -> set[tuple[str, str]]:
    """Settings that a text names by section and name, such as `engine.socket`."""
    sections = "|".join(
        name for name, field in Settings.model_fields.items() if hasattr(field.annotation, "model_fields")
    )
    return set(re.findall(rf"(?<![\w./-])({sections})\.([a-z][a-z0-9_]*[a-z0-9])(?![\w(/.-])", text))


def unknown_settings(text: str) -> set[str]:
    known = {section: field.annotation for section, field in Settings.model_fields.items()}
    return {
        f"{section}.{name}"
        for section, name in settings_named(text)
        if name not in FILE_ENDINGS and name not in known[section].model_fields  # type: ignore[union-attr]
    }


def test_settings_that_are_named_exist() -> None:
    """The changelog names those that are gone, too: see below."""
    pages = [*(page for page in GUIDES if page.name != "CHANGELOG.md"), *DOCS.glob("man/*")]
    assert [(place(path), name) for path in pages for name in sorted(unknown_settings(path.read_text()))] == []


def newest_release() -> dict[str, str]:
    """The changelog's newest release: the text of each part, by its title."""
    _, newest, *_ = (DOCS / "CHANGELOG.md").read_text().split("\n## ")
    return dict(part.split("\n", 1) for part in newest.split("\n### ")[1:])


def entries(text: str) -> list[str]:
    """The entries of a part as they are read: where links lead is left out."""
    found = re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)
    return [" ".join(re.sub(r"\]\([^)]*\)", "]", entry).split()) for entry in found]


def test_an_entry_of_the_changelog_is_two_lines_at_most() -> None:
    """What takes more to tell stands in a guide, where the entry leads."""
    long = [entry for text in newest_release().values() for entry in entries(text) if len(entry) > 400]
    assert long == []


def test_settings_that_the_changelog_says_the_newest_release_has_exist() -> None:
    """Those that are gone are named only where it says what has to be done."""
    gone = ("Changed", "Removed", "If you ran a checkout before")
    parts = [text for title, text in newest_release().items() if title not in gone]
    assert parts
    assert [name for text in parts for name in sorted(unknown_settings(text))] == []


@functools.cache
def parser() -> argparse.ArgumentParser:
    """The program's; none of the tests changes it."""
    return build_parser()


@functools.cache
def subparsers() -> dict[str, argparse.ArgumentParser]:
    return commands_of(parser())


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command for action in actions for name, command in action.choices.items()}


def all_commands() -> dict[str, argparse.ArgumentParser]:
    """The commands, and those of commands, by all their words."""
    inner = {
        f"{name} {word}": below for name, parser in subparsers().items() for word, below in commands_of(parser).items()
    }
    return {**subparsers(), **inner}


@functools.cache
def complete_without_arguments() -> set[str]:
    return {name for name, parser in subparsers().items() if not any(action.required for action in parser._actions)}


def test_every_command_and_option_is_in_the_manual_page() -> None:
    page = (DOCS / "man/rmsplugin.1").read_text().replace("\\-", "-")
    for name, parser in all_commands().items():
        start = page.index(f".SS \\fB{name}\\fR")
        part = page[start : page.find("\n.SS ", start + 1)]
        for action in parser._actions:
            if action.dest == "help":
                continue
            for word in action.option_strings or [action.metavar]:
                assert str(word) in part, f"{name} {word}"


def test_no_help_has_a_percent_sign_that_argparse_takes_for_a_form() -> None:
    """Of a "20 % at most" it makes all that it knows of the option, in the midst of the sentence."""
    lone = re.compile(r"(?<!%)(?:%%)*%(?![%(])")
    options = [(name, action) for name, parser in all_commands().items() for action in parser._actions]
    assert [(name, action.dest) for name, action in options if lone.search(action.help or "")] == []


def test_every_command_is_in_a_guide_or_the_readme() -> None:
    """The changelog tells of a release, and not how something is done."""
    text = "".join(path.read_text() for path in GUIDES if path.name != "CHANGELOG.md")
    for name in all_commands():
        assert re.search(rf"rmsplugin {name}\b", text), name


def test_every_setting_is_documented_with_a_description() -> None:
    markdown, page = (DOCS / "settings.md").read_text(), (DOCS / "man/rmsplugin.toml.5").read_text()
    fields = {name: field.annotation for name, field in Settings.model_fields.items() if name != "image"}
    for name in fields:
        assert f"## [{name}" in markdown
    models = [(get_args(annotation) or (annotation,))[-1] for annotation in fields.values()]
    for model in [*models, KernelImage, Qcow2Image]:
        assert model is not None
        for key, field in model.model_fields.items():
            assert f"| `{key}` |" in markdown, key
            assert f"\\fB{key}\\fR" in page, key
            assert key == "kind" or field.description, f"{key} has no description"


def test_the_example_of_the_settings_is_valid() -> None:
    text = (DOCS / "settings.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    Settings.model_validate(tomllib.loads(example))


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "contrib/make-docs"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run: .venv/bin/python contrib/make-docs"
    assert "Undefined" not in (ROOT / "docs/settings.md").read_text(), "a default that cannot be written in the file"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("page", sorted((DOCS / "man").iterdir()), ids=lambda path: path.name)
def test_manual_pages_have_no_fault_for_groff(page: Path) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(page)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", ["rmsplugin-engine.service", "rmsplugin-manager.service"])
def test_the_systemd_units_are_understood(unit: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(ROOT / "contrib/systemd" / unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    # The program is not installed where the tests run; anything else is a fault of the unit.
    complaints = [line for line in done.stderr.splitlines() if unit.partition(".")[0] in line]
    assert [line for line in complaints if "is not executable" not in line] == []


def test_decisions_are_numbered_and_have_their_parts() -> None:
    records = sorted((DOCS / "decisions").glob("*.md"))
    numbers = [int(path.name[:4]) for path in records]  # with gaps, where records are written side by side
    assert numbers == sorted(set(numbers))
    for path in records:
        text = path.read_text()
        assert text.startswith(f"# {path.name[:4]}: ")
        for part in ("Status: ", "## Context", "## Decision", "## Consequences"):
            assert part in text, f"{path.name}: {part}"
