"""Manager: the command that runs the engines of this host's groups, and answers for all groups."""

from __future__ import annotations

import argparse
import os

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.latency import loading
from rmsplugin.open_directories import OWN_UMASK


def add_command(commands: options.Commands) -> None:
    """Add manager to the command line."""
    options.add_command(
        commands,
        "manager",
        "run a manager of groups in the foreground, as engine.user",
        _manager,
        """
        On each controller of a site with several engines, the systemd unit contrib/systemd/rmsplugin-manager.service
        runs this in place of `rmsplugin engine`. Managers agree who leads and who has which groups of hosts; each runs
        an engine for each of its groups, and answers every request, for all groups. It needs
        cluster.coordination = "zookeeper" and cluster.shared_dir.

        SIGTERM ends it and its engines; VMs and jobs run on, and other managers take up its groups.

        examples:
          rmsplugin manager
          rmsplugin manager --config /etc/rmsplugin/rmsplugin.toml
        """,
    )


def _manager(arguments: argparse.Namespace) -> int:
    with loading():
        from rmsplugin.manager.main import main
        from rmsplugin.settings import settings_path

        settings = read_settings(arguments.config)
    os.umask(OWN_UMASK)
    return main(settings, settings_path(arguments.config))
