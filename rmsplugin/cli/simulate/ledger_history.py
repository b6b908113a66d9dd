"""Ledger history: the workload in the ledger of a live cluster, whether or not its engine runs."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rmsplugin.cli.shared.connection import read_settings

if TYPE_CHECKING:
    from rmsplugin.report.columns import Floats, Jobs
    from rmsplugin.report.workload import History


def read(arguments: argparse.Namespace) -> History:
    """The jobs that have ended, what those did that were observed, and how what was done to them went.

    Raises:
        LedgerError: the ledger cannot be read.
        ReportError: it has no job of a partition that is named.
        SettingsError, UnavailableError: Slurm shall be asked, and cannot be.
    """
    # No other command waits for what these import.
    from rmsplugin.engine.ledger.history import reading
    from rmsplugin.report.ledger import LedgerReader
    from rmsplugin.report.workload import history_of

    until = time.time()

    def limits_s(jobs: Jobs) -> Floats:
        return _limits_s(arguments, jobs, until)

    with reading(Path(arguments.ledger)) as connection:
        return history_of(
            LedgerReader(connection, until),
            until,
            window_s=arguments.demand_window,
            measured=arguments.measured,
            limits_s=limits_s if arguments.ask_slurm else None,
            unpreemptible=arguments.unpreemptible,
        )


def _limits_s(arguments: argparse.Namespace, jobs: Jobs, until: float) -> Floats:
    """What accounting says."""
    from rmsplugin.adapters.rms.slurm_accounting import SlurmAccounting
    from rmsplugin.report.splice import splice

    slurm = read_settings(arguments.config).slurm
    since = float(jobs.submit.min())
    runs = SlurmAccounting(slurm.bin_dir, slurm.command_timeout_s).runs(slurm.partitions, since, until)
    return splice(jobs, runs, since).limit_s
