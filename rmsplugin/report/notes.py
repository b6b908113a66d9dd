"""Notes: what a report cannot know, and what it assumes, each in a sentence and with a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from rmsplugin.report.columns import Flags
from rmsplugin.report.document import Note
from rmsplugin.report.lives import SLEEPING, WAITING
from rmsplugin.report.totals import Facts

#: The sentence for each code, in the order in which they are said.
SENTENCES = {
    "own-only": "this is of {count} {jobs} of yours: the replays have the jobs of all users, which are not "
    "shown; utilisation and costs are those of your jobs, and the cluster's context switches are "
    "left out",
    "ledger-begins": "the ledger has nothing of the first {count} seconds of this time: it was made, or pruned, later",
    "earlier": "{count} {jobs} were submitted before this time: the replays have them, and none of those that had"
    " ended by then, so they begin with more room than there was",
    "not-ended": "{count} {jobs} had not ended: they are in no comparison, and hold their CPUs in the replays for as"
    " long as they have run",
    "asleep": "{count} {jobs} of these slept",
    "waiting": "{count} {jobs} had not run yet: their run times are not known, and the replays are without them",
    "never-ran": "{count} {jobs} ended before they ran (most likely cancelled): they are in no comparison, and the"
    " replays are without them",
    "ruled": "{count} {jobs} waited or slept for placement rules of the site: {why}",
    "wished": "{count} {jobs} asked for VMs apart, alone or on few switches (--spread-job, --exclusive, --switches),"
    " which the replays do without",
    "repeated": "{count} {jobs} lost their state and began anew, or went back to a checkpoint: their run time has work"
    " that was done twice",
    "no-accounting": "accounts and time limits of {count} {jobs} are not known: {why}",
    "unknown-to-accounting": "accounting does not know {count} {jobs} of the ledger",
    "unknown-to-ledger": "accounting has {count} more {jobs} of these partitions, which are not in the ledger: they are"
    " left out",
    "differs": "of {count} {jobs} accounting has another run time than the ledger, by more than 5 minutes and 5 %: the"
    " ledger's is used",
    "node-changes": "nodes came and went {count} times: replays and utilisation count all nodes, as they are now, "
    "for all the time",
    "no-replay": "{count} {jobs} are not compared with other schedules: {why}",
    "replayed": "the replays give each of {count} {jobs} the CPUs and memory that it requested, from its start to its"
    " end, for as long as it really ran; VMs are counted in equal processors, as if all nodes were one, and all jobs"
    " are one queue in the order of their submission: priorities, tiers of partitions, QOS, users' limits,"
    " dependencies, placement rules, native jobs and outages of nodes are not replayed",
    "shared": "{count} {jobs} of these shared CPUs with VMs that together demanded more than their node has: "
    "the cost of that, by the demands that were seen, is taken off their run times",
    "slowed": "other things that slowed {count} {jobs} of these are not known, and not taken off: neighbours "
    "that were saved or moved, disks and memory, a rise of demand before it was seen",
    "hosts-unknown": "nor is it known how many CPUs the nodes had on which {count} {jobs} of these ran: the cost of "
    "sharing CPUs there is not taken off",
    "too-large": "{count} {jobs} that ran are larger than all nodes together: the replays are without them",
    "by-memory": "the VMs of {count} {jobs} need more memory than their CPUs' share of the nodes, and count for more"
    " processors",
    "no-limit": "EASY takes the run time of {count} {jobs} for their limits, which are not known",
}

#: Run times of ledger and accounting differ by more than the boot of the VMs if they differ by both of these or more.
_DIFFER_S, _DIFFER_PART = 300.0, 0.05


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Facts about a report besides its jobs.

    Attributes:
        since: the beginning of the report's time.
        begins: the time of the ledger's oldest entry; the end of the report's time if it has none.
        node_changes: the number of times that nodes came and went.
        no_accounting: why accounting was not asked, or did not answer; empty if it did.
        no_nodes: why the nodes are not known; empty if they are.
        knows_hosts: whether the numbers of CPUs are known of the nodes on which VMs ran.
        own_only: whether it tells of the jobs of one user only, to whom nothing is told of others' jobs.
        ruled: by placement rule, the jobs that it kept out.
    """

    since: float
    begins: float
    node_changes: int
    no_accounting: str
    no_nodes: str
    knows_hosts: bool
    own_only: bool
    ruled: Mapping[str, Flags] = field(default_factory=dict)


def notes(facts: Facts, about: Circumstances, told: Flags) -> Iterator[Note]:
    """All notes of a report, on those of its jobs that may be told."""
    flags = {**_of_jobs(facts, about), **_of_accounting(facts, about), **_of_replays(facts, about)}
    counts = _of_circumstances(facts, about)
    counts |= {code: int(np.count_nonzero(of & told)) for code, of in flags.items()}
    for code, sentence in SENTENCES.items():
        if count := counts.get(code, 0):
            why = {"no-accounting": about.no_accounting, "ruled": _rules(about, told)}.get(code, about.no_nodes)
            yield Note(code, count, sentence.format(count=count, jobs="job" if count == 1 else "jobs", why=why))


def _rules(about: Circumstances, told: Flags) -> str:
    """How many jobs each rule kept out, most first: "db 3, private 1"."""
    counts = {rule: int(np.count_nonzero(of & told)) for rule, of in about.ruled.items()}
    return ", ".join(
        f"{rule} {counts[rule]}" for rule in sorted(counts, key=lambda rule: (-counts[rule], rule)) if counts[rule]
    )


def _of_circumstances(facts: Facts, about: Circumstances) -> dict[str, int]:
    return {
        "ledger-begins": int(max(0.0, about.begins - about.since)),
        "node-changes": about.node_changes,
        # The owners of these are not looked at.
        "unknown-to-ledger": 0 if about.own_only else facts.accounts.others,
    }


def _of_jobs(facts: Facts, about: Circumstances) -> dict[str, Flags]:
    lives = facts.lives
    still = np.isnan(lives.end)
    return {
        "own-only": np.full(len(facts.jobs), about.own_only),
        "earlier": facts.jobs.submit < about.since,
        "not-ended": still & lives.ran,
        "asleep": still & (lives.state == SLEEPING),
        "waiting": still & ~lives.ran & (lives.state == WAITING),
        "never-ran": ~still & ~lives.ran,
        "repeated": facts.jobs.repeated,
        "ruled": np.logical_or.reduce([np.zeros(len(facts.jobs), dtype=bool), *about.ruled.values()]),
    }


def _of_accounting(facts: Facts, about: Circumstances) -> dict[str, Flags]:
    if about.no_accounting:
        return {"no-accounting": np.ones(len(facts.jobs), dtype=bool)}
    accounts, lives = facts.accounts, facts.lives
    known = accounts.runs > 0
    differ_s = np.abs(accounts.run_s - lives.run_s)
    differ = known & lives.ended & (differ_s > _DIFFER_S) & (differ_s > _DIFFER_PART * lives.run_s)
    return {"unknown-to-accounting": ~known, "differs": differ}


def _of_replays(facts: Facts, about: Circumstances) -> dict[str, Flags]:
    if about.no_nodes:
        return {"no-replay": np.ones(len(facts.jobs), dtype=bool)}
    replays = facts.replays
    return {
        "replayed": replays.replayed,
        "shared": replays.replayed & (facts.slowed_s > 0),
        "slowed": replays.replayed,
        "hosts-unknown": replays.replayed & (not about.knows_hosts),
        "too-large": replays.too_large,
        "by-memory": replays.by_memory,
        "no-limit": replays.replayed & np.isnan(facts.accounts.limit_s),
        "wished": replays.replayed & facts.jobs.wishing,
    }
