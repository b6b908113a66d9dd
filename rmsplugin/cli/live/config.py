"""Config: `rmsplugin config show`, what the running engine is set to, and where the settings file says otherwise."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine, read_settings
from rmsplugin.cli.shared.table import Field, Row, add_table_options, columns_of, local_time, print_rows, text_of
from rmsplugin.errors import NotFoundError, SettingsError


def _value_of(key: str) -> Any:
    def text(row: Row) -> str:
        value = row.get(key)
        if isinstance(value, str):
            return value or '""'
        return "" if value is None else json.dumps(value)

    return text


def _otherwise(row: Row) -> str:
    return (_value_of("file")(row) or "none") if row["differs"] else ""


def _measured(row: Row) -> str:
    measured = row["measured"]
    return f"{measured['count']} times, since {local_time(measured['since'])}" if measured else ""


FIELDS = (
    Field("key", "section and key", text_of("key")),
    Field("value", "what the engine runs with", _value_of("value")),
    Field("file", "what the file says now, where that differs", _otherwise),
    Field("measured", "how often it was measured, and since when that is used in place of the settings", _measured),
)


def add_command(commands: options.Commands) -> None:
    """Add config to the command line."""
    group = options.add_group(
        commands,
        "config",
        "show the settings of the running engine",
        """
        examples:
          rmsplugin config show
        """,
    )
    show = options.add_command(
        group,
        "show",
        "show what the running engine is set to, and where the file says otherwise",
        _show,
        """
        The engine reads its settings when it starts. A key under FILE differs now: it counts once the engine is started
        again. The file is the one of this host (--config), which the engine's host should have, too. Through a manager
        the settings are the manager's; engines of groups have places of their own below those. With
        planning.measured_durations the values of section durations are those that were measured often enough.

        examples:
          rmsplugin config show
          rmsplugin config show decision tokens
          rmsplugin config show durations
          rmsplugin config show --differing
        """,
    )
    show.add_argument("keys", metavar="KEY", nargs="*", help="only these sections or keys: decision, engine.cycle_s")
    show.add_argument("--differing", action="store_true", help="only what the file says otherwise")
    add_table_options(show, FIELDS, "key,value,file,measured", "the settings, as JSON")


def _show(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    config = find_engine(arguments).config()
    runs, measured = dict(_leaves(config["settings"])), config["measured"]
    warnings = []
    try:
        file: Mapping[str, Any] = dict(_leaves(read_settings(arguments.config).model_dump(mode="json")))
    except SettingsError as error:
        file = runs
        warnings = [f"the file is not compared: {line}" for line in str(error).splitlines()]
        for warning in warnings:
            print(f"rmsplugin config: {warning}", file=sys.stderr)
    rows = [
        {
            "key": key,
            "value": measured[key]["value"] if key in measured else runs.get(key),
            "file": file.get(key),
            "differs": runs.get(key) != file.get(key),
            "measured": measured.get(key),
        }
        for key in dict.fromkeys([*runs, *file])
        if _is_wanted(key, arguments.keys)
    ]
    known = [*runs, *file]
    faults = [f"no setting {each}" for each in arguments.keys if not any(_is_wanted(key, [each]) for key in known)]
    if arguments.differing:
        rows = [row for row in rows if row["differs"]]
    print_rows(arguments, columns, "config", rows, errors=faults, warnings=warnings)
    if faults:
        raise NotFoundError("\n".join(faults))
    return 0


def _is_wanted(key: str, wanted: list[str]) -> bool:
    return not wanted or any(key == each or key.startswith(f"{each}.") for each in wanted)


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each key with its value, sections and tables within them taken apart: `guest.mounts.0.source`."""
    inner: Iterator[tuple[str, Any]] | None = None
    if isinstance(value, dict):
        inner = iter(value.items())
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        inner = ((str(number), each) for number, each in enumerate(value))
    if inner is None:
        yield key, value
        return
    for name, each in inner:
        yield from _leaves(each, f"{key}.{name}" if key else name)
