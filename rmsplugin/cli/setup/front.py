"""A front: all of it comes with the package; Slurm's lines for it are said."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rmsplugin.cli.check.facts import Row, words
from rmsplugin.cli.setup.site_lua import WRAPPER
from rmsplugin.cli.setup.slurm_conf_file import value_in
from rmsplugin.cli.setup.writing import Writer
from rmsplugin.settings import Settings

_SLURM_CONF = "/etc/slurm/slurm.conf"
_OVERRIDES = "config_overrides"


def prepare(settings: Settings, writer: Writer, ask_slurmctld: Callable[[], Row]) -> None:
    """Look for what a front needs, and say what is missing.

    Args:
        settings: of the site.
        writer: is told.
        ask_slurmctld: returns the configuration that slurmctld has, empty if it does not answer. It is called on a host
            without a slurm.conf, whose slurmd has slurmctld's.
    """
    if writer.at(Path(WRAPPER)).exists():
        writer.told.append(f"{'in order':<9}{WRAPPER}")
    else:
        writer.later(f"{WRAPPER} is not there, which the jobs of the queue name; install rmsplugin-common")
    if not settings.engine.url:
        writer.later("set engine.listen and engine.url in the settings of all hosts: this one cannot reach the engine")
    _registration(writer, ask_slurmctld)


def _registration(writer: Writer, ask_slurmctld: Callable[[], Row]) -> None:
    """Slurmd has to report what its NodeName line says, which is more than the host has."""
    path = Path(os.environ.get("SLURM_CONF") or _SLURM_CONF)
    here = value_in(writer.at(path), "SlurmdParameters")
    said = ask_slurmctld().get("SlurmdParameters", "") if here is None else here
    if _OVERRIDES in words(said):
        whose = "slurmctld's slurm.conf" if here is None else path
        writer.told.append(f"{'in order':<9}{whose}: SlurmdParameters has {_OVERRIDES}")
    else:
        writer.later(f"have SlurmdParameters={_OVERRIDES} in this host's slurm.conf (docs/operator/slurm.md)")
