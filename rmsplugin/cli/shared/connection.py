"""Connection: the settings file and the engine, as a command of a user finds them."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

from rmsplugin.errors import SettingsError, UnavailableError

if TYPE_CHECKING:
    from rmsplugin.client import EngineClient
    from rmsplugin.settings import Settings


def read_settings(argument: str | None) -> Settings:
    """The settings of --config, of the environment, or of the default path. Raises SettingsError."""
    # pydantic takes longer to import than `rmsplugin --help` may take as a whole.
    from rmsplugin import settings

    return settings.load(settings.settings_path(argument))


def connect(settings: Settings) -> EngineClient:
    """Reach the engine by its socket when it is on this host, else over TCP with munge.

    Raises:
        UnavailableError: there is no socket here, and the settings name no address.
        SettingsError: the account that the engine runs as does not exist here.
    """
    from rmsplugin.client import EngineClient

    engine = settings.engine
    if engine.socket.exists():
        return EngineClient.unix(str(engine.socket))
    if not engine.url:
        raise UnavailableError(
            f"no engine on this host (there is no {engine.socket}), and engine.url, where it would be reached from "
            "other hosts, is not set in the settings"
        )
    try:
        uid = pwd.getpwnam(engine.user).pw_uid
    except KeyError:
        raise SettingsError(f"engine.user: no account {engine.user!r} on this host") from None
    return EngineClient.tcp(engine.url, uid)
