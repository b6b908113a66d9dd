"""A policy of a site: who has the least of its time limit left runs first."""

import math

from rmsplugin.policy import Configuration, Decision, Infeasible, Parameters, Selection, VJob, VJobState

#: One that runs makes way only for one that has a third of its time left: a context switch is not free.
FACTOR = 3.0


def shortest_first(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Choose by the rest of the time limit; those with as much left have Slurm's order."""
    selection = Selection(configuration, parameters)

    def rank(vjob: VJob) -> float:
        left_s = math.inf if vjob.time_limit_s is None else max(0.0, vjob.time_limit_s - vjob.ran_s)
        return left_s / FACTOR if selection.state(vjob) is VJobState.RUNNING else left_s

    for vjob in sorted(selection.vjobs, key=rank):
        selection.add(vjob, "has less of its time limit left than those that wait")
    return selection.decision()
