"""A front: all of it comes with the package; Slurm's lines for it are said."""

from __future__ import annotations

from pathlib import Path

from rmsplugin.cli.setup.site_lua import WRAPPER
from rmsplugin.cli.setup.writing import Writer
from rmsplugin.settings import Settings


def prepare(settings: Settings, writer: Writer) -> None:
    """Look for what a front needs, and say what is missing."""
    if writer.at(Path(WRAPPER)).exists():
        writer.told.append(f"{'in order':<9}{WRAPPER}")
    else:
        writer.later(f"{WRAPPER} is not there, which the jobs of the queue name; install rmsplugin-common")
    if not settings.engine.url:
        writer.later("set engine.listen and engine.url in the settings of all hosts: this one cannot reach the engine")
    writer.later("have SlurmdParameters=config_overrides in this host's slurm.conf (docs/operator/slurm.md)")
