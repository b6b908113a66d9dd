"""Factory: the Rms of the settings (``slurm.adapter``), or the best one for the running Slurm."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.rms.base import Rms
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_pyslurm import SlurmPyslurm
from rmsplugin.adapters.rms.slurm_reading import Handed
from rmsplugin.errors import RmspluginError, SettingsError


def open_rms(
    kind: Literal["auto", "cli", "pyslurm"] = "auto",
    bin_dir: str = "",
    timeout_s: float = 30.0,
    *,
    watch_s: float = 1.0,
    gate: str = "vjobgate",
    gate_reservation: str = "rmsplugin_gate",
    permit: Permit = nullcontext,
    handed: Handed | None = None,
) -> Rms:
    """Return the Rms of this host.

    Args:
        kind: ``auto`` takes pyslurm if it imports and was made for the running release of Slurm, else the commands.
        bin_dir: directory of the commands; empty: PATH.
        timeout_s: bound of one command.
        watch_s: pause between two looks at the queue, for ``pulse``.
        gate: name of the gate's licence.
        gate_reservation: name of the reservation that takes the licence away from all jobs.
        permit: see ``SlurmCommands``.
        handed: what others read; None: this process reads Slurm itself.

    Raises:
        SettingsError: the settings ask for pyslurm, and it cannot be used.
    """
    commands = SlurmCli(
        bin_dir, timeout_s, watch_s=watch_s, gate=gate, gate_reservation=gate_reservation, permit=permit
    )
    own = _best_of(kind, commands)
    if handed is None:
        return own
    from rmsplugin.adapters.rms.slurm_handed import HandedSlurm  # an engine that is alone does without it

    return HandedSlurm(own, commands, handed)


def _best_of(kind: Literal["auto", "cli", "pyslurm"], commands: SlurmCli) -> Rms:
    """The Rms of this kind that fits the running Slurm. Raises SettingsError."""
    # Slurm is not asked for its release in vain: a new leader's slurmctld may have gone with its host.
    if kind == "cli" or (kind == "auto" and not SlurmPyslurm.is_installed()):
        return commands
    try:
        version = commands.version()
    except RmspluginError:
        version = ""  # the engine may be started before Slurm or its slurm.conf; the commands do in any case
    if SlurmPyslurm.fits(version):
        return SlurmPyslurm(commands)
    if kind == "pyslurm":
        raise SettingsError(
            "slurm.adapter is pyslurm, but this host has no pyslurm that was made for Slurm "
            f"{version or '(not answering)'}: install it, or say auto"
        )
    return commands
