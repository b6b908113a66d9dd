"""Late copies: states on nodes of a group whose vjobs were always another group's, and have ended.

A copy that an engine had begun before it was killed may arrive after the order to remove it was carried out. No ledger
knows it then. It is needed by nobody once its job has ended: Slurm's accounting has to say so of its id, slurmctld must
not know the job any more, and the leader must not have given the vjob to this group. An end that accounting also tells
of jobs that a slurmctld has thrown away is no proof.
"""

from __future__ import annotations

from collections.abc import Collection

from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.observe.absence import DOUBTFUL_ENDS
from rmsplugin.engine.territory.territory import Territory
from rmsplugin.errors import RmspluginError


def over_elsewhere(rms: Rms, territory: Territory | None, jobs: Collection[int]) -> frozenset[int]:
    """Those of these jobs, which the ledger does not know, that have ended as vjobs of other groups.

    Args:
        rms: tells of all jobs.
        territory: of the group; None: the engine has all vjobs there are, so one that it does not know proves nothing.
        jobs: job ids.

    Returns:
        None of them while nothing is proved: Slurm does not answer, or has no accounting.
    """
    if territory is None or not territory.is_told:
        return frozenset()
    theirs = {job for job in jobs if not territory.may_get(job)}
    if not theirs:
        return frozenset()
    try:
        theirs -= rms.jobs(theirs).keys()
        ended = rms.ended(theirs) if theirs else {}
    except RmspluginError:
        return frozenset()
    return frozenset(job for job, end in ended.items() if end not in DOUBTFUL_ENDS)
