"""Connection: the settings file and the engine, as a command of a user finds them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.waiting import Waiting

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rmsplugin.api.binding import Engine
    from rmsplugin.settings import Settings


def read_settings(argument: str | None) -> Settings:
    """The settings of --config, of the environment, or of the default path. Raises SettingsError."""
    # pydantic takes longer to import than `rmsplugin --help` may take as a whole.
    from rmsplugin import settings

    return settings.load(settings.settings_path(argument))


def find_engine(arguments: argparse.Namespace) -> Engine:
    """The engine that the settings of --config, of the environment, or of the default path name.

    Groups whose engines do not answer are told on standard error, and in ``arguments.missing`` for the document. On a
    terminal it is told after two seconds that the engine itself has not answered.

    Raises:
        SettingsError: a fault of the file may be why there is no engine; or as ``connect``.
        UnavailableError: as ``connect``.
    """
    from rmsplugin.api.binding import Engine

    engine = Engine.of_site(arguments.config)
    arguments.missing = []
    engine.on_silent = _warner(arguments.missing)
    engine.while_asked = Waiting(arguments.command)
    return engine


def _warner(told: list[str]) -> Callable[[list[str]], None]:
    """Says on standard error which groups are missing, each once; ``told`` gets the same sentences."""

    def warn(groups: list[str]) -> None:
        for group in groups:
            sentence = f"the engine of group {group} does not answer: its part is missing"
            if sentence not in told:
                told.append(sentence)
                print(f"rmsplugin: {printable(sentence)}", file=sys.stderr)

    return warn


def connect(settings: Settings) -> Engine:
    """Reach the engine by its socket when it is on this host, else over TCP with munge.

    Raises:
        UnavailableError: there is no socket here, and the settings name no address; or none can be looked for.
        SettingsError: the account that the engine runs as does not exist here.
    """
    from rmsplugin.api.binding import Engine

    return Engine.of(settings)
