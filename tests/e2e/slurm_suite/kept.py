"""How tests ended, beside their logs: a campaign that was interrupted goes on with the tests that it had not run."""

from __future__ import annotations

from pathlib import Path

from e2e.slurm_suite.results import Ending, Run


def keep(logs: Path, test: str, run: Run) -> None:
    """Write down how a test ended, once its log is whole."""
    (logs / f"test{test}.ending").write_text(f"{run.ending.value}\n")


def kept(logs: Path, test: str) -> Run | None:
    """What an earlier campaign left of a test; None if it did not end then."""
    try:
        ending = Ending((logs / f"test{test}.ending").read_text().strip())
        return Run(ending, (logs / f"test{test}.log").read_text(errors="replace"))
    except (FileNotFoundError, ValueError):
        return None
