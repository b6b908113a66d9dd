"""Factory: which implementation of the RMS Protocol a site gets."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import Rms
from rmsplugin.adapters.rms.slurm_cli import SlurmCli


def open_rms(kind: str = "auto", *, bin_dir: str = "", timeout_s: float = 30.0) -> Rms:
    """Return the implementation named ``kind``."""
    return SlurmCli(bin_dir, timeout_s)
