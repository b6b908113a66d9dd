"""Unentered: jobs that slurmctld forever takes for being entered into the accounting, and so lets nobody change.

Before 24.11 slurmctld marks a job while it waits for slurmdbd to number it, and saves the mark. If slurmctld is killed
meanwhile, it reads the mark back, and nothing ever removes it. A native job runs all the same; but the gate of a vjob
cannot be opened. The engine keeps trying, in the end once a minute, because a job that is really being entered bears
the mark only for a while. An operator is told.
"""

from __future__ import annotations

from rmsplugin.adapters.rms.base import BEING_ENTERED
from rmsplugin.engine.ledger.ledger import Ledger

#: In a row: with the pauses between them, and ten seconds in each, they take more than a minute.
_FAILURES = 5


class Unentered:
    """Tells of such jobs: once in an event for each, and in the problems as long as the mark lasts."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._told: frozenset[int] = frozenset()

    def problems(self) -> list[str]:
        """One sentence for the operator about all such jobs; an empty list if there are none."""
        failures = self._ledger.failures.of_vjobs()
        found = {job_id for (job_id, _), failure in failures.items() if _is_stuck(failure.error, failure.failures)}
        names = {vjob.job_id: vjob.display_id for vjob in self._ledger.vjobs() if vjob.job_id in found}
        for job_id in sorted(names.keys() - self._told):
            self._ledger.event("not-entered", f"{_WHY}: {_WHAT}", vjob=names[job_id])
        self._told = frozenset(names)
        if not names:
            return []
        return [f"vjob {', '.join(names[job_id] for job_id in sorted(names))}: {_WHY}: {_WHAT}"]


def _is_stuck(error: str, failures: int) -> bool:
    return failures >= _FAILURES and BEING_ENTERED in error


_WHY = "slurmctld lets nobody change the job, since it believes that the job is just being entered into the accounting"
_WHAT = (
    "if slurmdbd works, a slurmctld that was killed has left the job in this state: stop slurmdbd, "
    "submit any job, and start slurmdbd when slurmctld's log has DBD_SEND_MULT_JOB_START failure "
    "(docs/operator/operating.md)"
)
