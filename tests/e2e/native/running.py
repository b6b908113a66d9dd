"""Cases run on a minicluster, many side by side: submission, the wait for all their jobs, what is left of them."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from e2e.cluster import Cluster, Result
from e2e.native.case import Case
from e2e.native.normal import Names, names_of
from e2e.native.outcome import Outcome, file_lines
from minicluster_lib.layout import PRIMARY_GROUPS, PROJECTS, USERS

NATIVE, VJOB = "plain", "vjob"
SACCT = tuple(
    """JobName Account User Group NCPUS AllocNodes ReqMem ReqTRES AllocTRES Timelimit State ExitCode DerivedExitCode
    QOS Comment Constraints""".split()  # noqa: SIM905
)

_PRELUDE = Path(__file__).with_name("prelude.sh")
_AT_ONCE = 10
_SUBMISSION_S = 400.0
_END_S = 600.0
#: A case whose jobs take longer, or wait for ever, does not hold up the next ones.
_OWN_END_S = 60.0


@dataclass
class _Run:
    """A case in one partition."""

    case: Case
    directory: str
    submission: Result = field(default_factory=lambda: Result(-1, "", ""))


def run_all(cluster: Cluster, cases: Sequence[Case], partition: str, user: str = "alice") -> dict[str, Outcome]:
    """Run cases in a partition and wait for all of their jobs; the outcome of each, by its name."""
    since = cluster.ok("date", "+%Y-%m-%dT%H:%M:%S").strip()
    runs = [_Run(case, _place(cluster, case, partition, user)) for case in cases]
    queue, done = _Queue(cluster, partition, user), 0
    for alone in (False, True):
        with ThreadPoolExecutor(1 if alone else _AT_ONCE) as pool:
            some = [run for run in runs if run.case.alone == alone]
            for _ in pool.map(lambda run: _submit(cluster, run, queue), some):
                done += 1
                print(f"\r{partition}: {done} of {len(runs)} cases", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    late = _wait_until_ended(queue)
    rows = _accounting(cluster, partition, user, since)
    return {run.case.name: _outcome(cluster, run, partition, rows, late) for run in runs}


def _place(cluster: Cluster, case: Case, partition: str, user: str) -> str:
    """Make the case's directory, with its script; returns its path on the login node."""
    inside = f"native/{partition}/{case.name}"
    directory = cluster.home(user) / inside
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "job.sh").write_bytes(case.script)
    for path in (directory / "job.sh", directory, *list(directory.parents)[:3]):  # up to `native`
        os.chown(path, USERS[user], USERS[user])
    return f"/home/{user}/{inside}"


class _Queue:
    """The user's jobs in a partition. All cases that wait share what Slurm is asked once a second."""

    def __init__(self, cluster: Cluster, partition: str, user: str) -> None:
        self.cluster, self.partition, self.user = cluster, partition, user
        self._lock = threading.Lock()
        self._asked = 0.0
        self._found: set[str] = set()

    def under_way(self) -> set[str]:
        """The directories of the jobs that have not ended, as they were less than a second ago."""
        with self._lock:
            if time.monotonic() - self._asked > 0.9:
                self._asked = time.monotonic()
                words = ("squeue", "-h", "-p", self.partition, "-u", self.user, "-o", "%Z")
                self._found = set(self.cluster.ok(*words).split("\n")) - {""}
            return self._found


def _submit(cluster: Cluster, run: _Run, queue: _Queue) -> None:
    words = ("bash", "-c", _PRELUDE.read_text(), "sh", queue.partition, run.directory, run.case.submit)
    try:
        run.submission = cluster.run(*words, user=queue.user, timeout_s=_SUBMISSION_S)
    except subprocess.TimeoutExpired:
        run.submission = Result(124, "", f"(it did not end within {_SUBMISSION_S:.0f} s)")
    deadline = time.monotonic() + _OWN_END_S
    time.sleep(1)  # What Slurm said before may be shared, and does not know of these jobs.
    while run.directory in queue.under_way() and time.monotonic() < deadline:
        time.sleep(1)


def _wait_until_ended(queue: _Queue) -> set[str]:
    """Wait until no job is left, those that jobs submit too; cancels what does not end, and returns its directories."""
    deadline = time.monotonic() + _END_S
    while left := queue.under_way():
        if time.monotonic() > deadline:
            queue.cluster.run("scancel", "-p", queue.partition, "-u", queue.user)
            queue.cluster.wait("cancelled jobs to go", lambda: not queue.under_way(), 120)
            return left
        time.sleep(0.5)
    return set()


def _accounting(cluster: Cluster, partition: str, user: str, since: str) -> list[dict[str, str]]:
    """The rows of all jobs, in the order of their submission; waits until each is there, with its end."""
    fields = ["JobIDRaw", "JobID", "WorkDir", "NodeList", "End", *SACCT]
    submitted = _submitted(cluster, partition, user, since)
    command = ("sacct", "-XPD", "-u", user, "-r", partition, "-S", since, "-o", ",".join(fields))

    def read() -> list[dict[str, str]]:
        header, *lines = cluster.ok(*command).splitlines()
        return [dict(zip(header.split("|"), line.split("|"), strict=False)) for line in lines]

    def whole() -> bool:
        rows = read()
        return submitted <= {row["JobIDRaw"] for row in rows} and all(row["End"] != "Unknown" for row in rows)

    cluster.wait("the accounting", whole, 60)
    return sorted(read(), key=_order)


def _submitted(cluster: Cluster, partition: str, user: str, since: str) -> set[str]:
    """The jobs that slurmctld remembers since then: slurmdbd may be told of the last ones later than they ended.

    Without jobs that were held until they were cancelled: sacct lists nothing that was never eligible.
    """
    columns = "SubmitTime:30,EligibleTime:30,JobID:30"
    lines = cluster.ok("squeue", "-h", "-t", "all", "-p", partition, "-u", user, "-O", columns).splitlines()
    return {job for time, eligible, job in map(str.split, lines) if time >= since and eligible != "N/A"}


def _order(row: Mapping[str, str]) -> tuple[int, int]:
    array, _, element = row["JobID"].partition("_")
    return int(array.split("+")[0]), int(element) if element.isdecimal() else -1


def _outcome(cluster: Cluster, run: _Run, partition: str, rows: Iterable[Mapping[str, str]], late: set[str]) -> Outcome:
    own = [row for row in rows if f"{row['WorkDir']}/".startswith(f"{run.directory}/")]
    names = names_of(partition, {row["JobID"].partition("_")[0]: row["NodeList"] for row in own})
    plain = _printed(run.submission)
    if any(f"{each}/".startswith(f"{run.directory}/") for each in late):
        plain.append("(jobs that did not end were cancelled)")
    parts = {"submission": tuple(map(names.plain, plain)), "jobs": (f"{len(own)} jobs",)}
    for name in SACCT:
        parts[f"sacct {name}"] = tuple(names.plain(f"{row['JobID']} {accounted(name, row[name])}") for row in own)
    return parts | _files(cluster, run, names)


def accounted(field: str, value: str) -> str:
    """What is compared of a field: AllocTRES without its nodes, which AllocNodes tells.

    slurmctld counts a job's TRES anew when slurmdbd sends it the list of them, and a job that has ended then has none.
    """
    return re.sub(r"(?:^|,)node=\d+", "", value) if field == "AllocTRES" else value


def _printed(result: Result) -> list[str]:
    return [f"exit {result.code}", *result.out.splitlines(), *(f"error: {line}" for line in result.err.splitlines())]


def _files(cluster: Cluster, run: _Run, names: Names) -> dict[str, tuple[str, ...]]:
    root = cluster.directory / "shared" / run.directory.lstrip("/")
    found = {}
    for path in sorted(root.rglob("*")):
        if path == root / "job.sh":
            continue
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else None
        lines = file_lines(about.st_mode, _OWNERS.get(about.st_uid, "?"), _GROUPS.get(about.st_gid, "?"), content)
        found[f"file {names.plain(str(path.relative_to(root)))}"] = tuple(map(names.plain, lines))
    return found


_OWNERS = {0: "root"} | {uid: user for user, uid in USERS.items()}
_GROUPS = {0: "root"} | {USERS[user]: group for user, group in PRIMARY_GROUPS.items()}
_GROUPS |= {gid: project for project, (gid, _) in PROJECTS.items()}
