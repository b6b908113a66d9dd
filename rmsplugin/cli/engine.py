"""Service: the command that is the engine itself."""

from __future__ import annotations

import argparse

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.latency import loading


def add_command(commands: options.Commands) -> None:
    """Add engine to the command line."""
    options.add_command(
        commands,
        "engine",
        "run the engine in the foreground, as engine.user",
        _engine,
        """
        The systemd unit contrib/systemd/rmsplugin-engine.service runs this. SIGTERM ends it; VMs and jobs run on, and
        the next engine goes on where this one stopped.

        examples:
          rmsplugin engine
          rmsplugin engine --config /etc/rmsplugin/rmsplugin.toml
        """,
    )


def _engine(arguments: argparse.Namespace) -> int:
    # OR-Tools, libvirt and the like are the engine's only: no other command waits for them.
    with loading():
        from rmsplugin.engine import daemon
        from rmsplugin.settings import settings_path

        settings = read_settings(arguments.config)
    return daemon.main(settings, settings_path(arguments.config))
