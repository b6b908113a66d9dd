"""Fields: what the tables of a report show of each job, and of each total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmsplugin.cli.shared.table import Field, Row, duration, mebibytes_of, text_of, time_of


def _span(key: str) -> Callable[[Row], str]:
    """A duration; nothing where it is not known."""
    return lambda row: _shown(row.get(key))


def _shown(seconds: Any) -> str:
    if seconds is None:
        return ""
    return f"-{duration(-seconds)}" if seconds < 0 else duration(seconds)


def _there(policy: str) -> Callable[[Row], str]:
    """The completion of a job under another schedule."""

    def text(row: Row) -> str:
        schedule = row["without"].get(policy)
        return _shown(schedule["end"] - row["submit"]) if schedule else ""

    return text


def _gain(policy: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        schedule = row["without"].get(policy)
        return _shown(schedule["end"] - row["end"]) if schedule and row["end"] else ""

    return text


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.2f}"


def _account(row: Row) -> str:
    return row["account"] or ""


def _runs(row: Row) -> str:
    return str(row["slurm"]["runs"]) if row["slurm"] else ""


JOB_FIELDS = (
    Field("jobid", "job id, or ARRAYID_INDEX for an element of a job array", text_of("id"), right=True),
    Field("user", "the user who submitted it", text_of("user")),
    Field("account", "its account in Slurm's accounting", _account),
    Field("partition", "its partition", text_of("partition")),
    Field("state", "ended, never-ran (ended before it ran), running, sleeping or waiting", text_of("state")),
    Field("vms", "number of its VMs", text_of("vms"), right=True),
    Field("cpus", "CPUs of each VM, or of the larger ones", text_of("cpus"), right=True),
    Field("memory", "memory of each VM, or of the larger ones", mebibytes_of("memory_mib"), right=True),
    Field("submit", "first submission; a requeue does not change it", time_of("submit")),
    Field("start", "when it first ran", time_of("start")),
    Field("end", "when it ended", time_of("end")),
    Field("limit", "its user's time limit", _span("limit_s"), right=True),
    Field("wait", "how long it neither ran nor slept", _span("wait_s"), right=True),
    Field("run", "how long it ran", _span("run_s"), right=True),
    Field("asleep", "how long it slept, suspends and resumes included", _span("asleep_s"), right=True),
    Field("completion", "from its first submission to its end", _span("completion_s"), right=True),
    Field(
        "slowdown", "bounded slowdown: completion divided by run time", lambda row: _number(row["slowdown"]), right=True
    ),
    Field("slowed", "the time that sharing CPUs has cost it, as far as known", _span("slowed_s"), right=True),
    Field("suspends", "how often it was suspended", text_of("suspends"), right=True),
    Field("resumes", "how often it was resumed", text_of("resumes"), right=True),
    Field("migrations", "number of live migrations of its VMs", text_of("migrations"), right=True),
    Field("runs", "how often Slurm submitted it, requeues included", _runs, right=True),
    Field("fcfs", "its completion without context switches, under FCFS", _there("fcfs"), right=True),
    Field("easy", "the same under EASY", _there("easy"), right=True),
    Field("fcfsgain", "how much sooner it ended than under FCFS", _gain("fcfs"), right=True),
    Field("easygain", "how much sooner it ended than under EASY", _gain("easy"), right=True),
)

JOB_COLUMNS = "jobid,user,partition,state,submit,wait,run,asleep,migrations,completion,fcfs,easy"


def _spread(worth: Any, measure: str, value: str) -> Any:
    found = worth[measure]
    return None if found is None else found[value]


def _own(measure: str, value: str) -> Callable[[Row], str]:
    """A value of what the live schedule was worth."""
    shown = _number if measure == "slowdown" else _shown
    return lambda row: shown(_spread(row["worth"], measure, value))


def _other(policy: str, measure: str, value: str) -> Callable[[Row], str]:
    shown = _number if measure == "slowdown" else _shown

    def text(row: Row) -> str:
        there = row["without"].get(policy)
        return shown(_spread(there["worth"], measure, value)) if there else ""

    return text


def _beside(policy: str, key: str, shown: Callable[[Any], str] = str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        there = row["without"].get(policy)
        return shown(there[key]) if there else ""

    return text


def _longest(policy: str) -> Callable[[Row], str]:
    def text(row: Row) -> str:
        there = row["without"].get(policy)
        return _shown(there["worth"]["longest_s"]) if there else ""

    return text


def _name(row: Row) -> str:
    return row["name"] or "unknown"


TOTAL_FIELDS = (
    Field("name", "the user, account, partition, class, or Monday of the week of submission", _name),
    Field("jobs", "how many there were", text_of("jobs"), right=True),
    Field("ended", "how many of them ran and ended", text_of("ended"), right=True),
    Field("cpuhours", "run time in hours times requested CPUs", lambda row: f"{row['cpu_s'] / 3600:.1f}", right=True),
    Field("waited", "how long all of them waited", _span("wait_s"), right=True),
    Field("ran", "how long all of them ran", _span("run_s"), right=True),
    Field("asleep", "how long all of them slept", _span("asleep_s"), right=True),
    Field("suspends", "how often they were suspended", text_of("suspends"), right=True),
    Field("resumes", "how often they were resumed", text_of("resumes"), right=True),
    Field("migrations", "how many live migrations their VMs made", text_of("migrations"), right=True),
    Field("wait", "mean wait of those that ended", _own("wait_s", "mean"), right=True),
    Field("completion", "their mean completion", _own("completion_s", "mean"), right=True),
    Field("completion95", "95 of 100 completed in this time", _own("completion_s", "p95"), right=True),
    Field("slowdown", "their mean bounded slowdown", _own("slowdown", "mean"), right=True),
    Field("longest", "their longest completion", lambda row: _shown(row["worth"]["longest_s"]), right=True),
    *(
        field
        for policy, name in (("fcfs", "FCFS"), ("easy", "EASY"))
        for field in (
            Field(
                policy,
                f"mean completion without context switches, under {name}",
                _other(policy, "completion_s", "mean"),
                right=True,
            ),
            Field(
                f"{policy}95",
                f"95 of 100 completed in this time under {name}",
                _other(policy, "completion_s", "p95"),
                right=True,
            ),
            Field(
                f"{policy}slow", f"mean bounded slowdown under {name}", _other(policy, "slowdown", "mean"), right=True
            ),
            Field(
                f"{policy}gain",
                f"how much sooner all together ended than under {name}",
                _beside(policy, "gained_s", _shown),
                right=True,
            ),
            Field(f"{policy}sooner", f"how many ended sooner than under {name}", _beside(policy, "sooner"), right=True),
            Field(f"{policy}later", f"how many ended later than under {name}", _beside(policy, "later"), right=True),
            Field(
                f"{policy}paid",
                "how much later all of these together ended",
                _beside(policy, "paid_s", _shown),
                right=True,
            ),
            Field(f"{policy}longest", f"longest completion under {name}", _longest(policy), right=True),
        )
    ),
)

TOTAL_COLUMNS = "name,jobs,ended,cpuhours,wait,asleep,suspends,migrations,completion,fcfs,easy,easygain"
#: Who gained, who paid, and the longest.
CLASS_COLUMNS = (
    "name%-16,jobs,ended,suspends,completion,easy,easygain,easysooner,easylater,easypaid,longest,easylongest"
)
