"""Connection: the settings file and the engine, as a command of a user finds them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmsplugin.api.binding import Engine
    from rmsplugin.settings import Settings


def read_settings(argument: str | None) -> Settings:
    """The settings of --config, of the environment, or of the default path. Raises SettingsError."""
    # pydantic takes longer to import than `rmsplugin --help` may take as a whole.
    from rmsplugin import settings

    return settings.load(settings.settings_path(argument))


def find_engine(argument: str | None) -> Engine:
    """The engine that the settings of --config, of the environment, or of the default path name.

    Raises:
        SettingsError: a fault of the file may be why there is no engine; or as ``connect``.
        UnavailableError: as ``connect``.
    """
    from rmsplugin.api.binding import Engine

    engine = Engine.of_site(argument)
    engine.on_silent = _warn_once()
    return engine


def _warn_once() -> Callable[[list[str]], None]:
    """Says on standard error which groups are missing, once."""
    said: set[str] = set()

    def warn(groups: list[str]) -> None:
        if new := [group for group in groups if group not in said]:
            said.update(new)
            print(
                f"rmsplugin: the engine of group {', '.join(new)} does not answer: its part is missing", file=sys.stderr
            )

    return warn


def connect(settings: Settings) -> Engine:
    """Reach the engine by its socket when it is on this host, else over TCP with munge.

    Raises:
        UnavailableError: there is no socket here, and the settings name no address; or none can be looked for.
        SettingsError: the account that the engine runs as does not exist here.
    """
    from rmsplugin.api.binding import Engine

    return Engine.of(settings)
