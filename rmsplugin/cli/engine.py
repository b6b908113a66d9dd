"""Service: the command that is the engine itself."""

from __future__ import annotations

import argparse
import os

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.latency import loading
from rmsplugin.open_directories import OWN_UMASK


def add_command(commands: options.Commands) -> None:
    """Add engine to the command line."""
    command = options.add_command(
        commands,
        "engine",
        "run the engine in the foreground, as engine.user",
        _engine,
        """
        The systemd unit contrib/systemd/rmsplugin-engine.service runs this. SIGTERM ends it; VMs and jobs run on, and
        the next engine goes on where this one stopped.

        With --group it is the engine of one group of hosts among others: it sees and acts on the hosts and vjobs only
        that the leader of the site's managers has given to the group. Managers start such engines; it needs
        cluster.coordination = "zookeeper" and cluster.shared_dir.

        examples:
          rmsplugin engine
          rmsplugin engine --config /etc/rmsplugin/rmsplugin.toml
        """,
    )
    command.add_argument("--group", default="", metavar="NAME", help="run the engine of this group of hosts only")


def _engine(arguments: argparse.Namespace) -> int:
    # OR-Tools, libvirt and the like are the engine's only: no other command waits for them.
    with loading():
        from rmsplugin.engine import daemon
        from rmsplugin.settings import settings_path

        settings = read_settings(arguments.config)
    os.umask(OWN_UMASK)
    return daemon.main(settings, settings_path(arguments.config), arguments.group)
