"""Reading what Slurm prints of jobs, on output captured from Slurm 22.05.8; where it says so, as others spell it."""

from __future__ import annotations

import math

import pytest

from rmsplugin.adapters.rms import slurm_text
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_text import JobRow, More
from rmsplugin.errors import UnavailableError

NOW = 1795253000
TOKEN = "5f1c"
ELIGIBLE = More(eligible_time=NOW - 100)


def squeue(**fields: str) -> str:
    """A row as squeue prints it: a gated job, with these differences."""
    usual = {
        "display_id": "12",
        "job_id": "12",
        "array_id": "12",
        "task": "N/A",
        "partition": "vjob",
        "user": "alice",
        "uid": "2001",
        "gid": "3001",
        "word": "PENDING",
        "reason": "Licenses",
        "priority": "100000",
        "nice": "0",
        "account": "users",
        "cpus": "2",
        "memory": "64M",
        "submit": str(NOW - 100),
        "start": "N/A",
        "end": "N/A",
        "limit": "UNLIMITED",
        "dependency": "(null)",
        "nodes": "",
        "required_nodes": "",
        "batch_host": "n/a",
        "licenses": "vjobgate",
        "name": "t.sh",
    }
    assert list(usual) == list(slurm_text.JOB_FIELDS)
    return "\x1f".join([TOKEN, *{**usual, **fields}.values()]) + "\n"


def rows(text: str, more: More = ELIGIBLE) -> list[JobRow]:
    return slurm_text.job_rows(text, TOKEN, dict.fromkeys(range(100), more), "vjobgate", NOW)


def read(text: str, more: More = ELIGIBLE) -> JobRow:
    (row,) = rows(text, more)
    return row


def test_format() -> None:
    asked = slurm_text.squeue_format(TOKEN).replace("\x1f", " ")
    assert asked == "5f1c %i %A %F %K %P %u %U %G %T %r %Q %y %a %C %m %V %S %e %l %E %N %n %B %W %j"


def test_gated_job() -> None:
    job = read(squeue()).job
    assert (job.display_id, job.job_id, job.uid, job.gid) == ("12", 12, 2001, 3001)
    assert (job.cpus, job.memory_mib) == (2, 64)
    assert (job.state, job.completing) == (JobState.PENDING, False)
    assert (job.gated, job.held, job.eligible) == (True, False, True)
    assert (job.nodes, job.batch_host, job.submit_time, job.priority) == ((), "", NOW - 100, 100000)
    assert (job.time_limit_s, job.start_time, job.end_time, job.preempt_time) == (math.inf, 0, 0, 0)


@pytest.mark.parametrize(
    "name",
    [
        *("a|b|c", "", "two\nlines", "a\x1fb", "é%s$(x)"),
        f"x\n{squeue(display_id='99', job_id='99').replace(TOKEN, 'guess')}",
    ],
)
def test_names_hold_anything(name: str) -> None:
    first, second = rows(squeue(name=name) + squeue())
    assert (first.job.name, second.job.name) == (name, "t.sh")


@pytest.mark.parametrize(
    ("given", "gated", "own"),
    [
        ("vjobgate", True, ""),
        ("vjobgate:1", True, ""),
        ("matlab:2,vjobgate", True, "matlab:2"),
        ("vjobgate:1,matlab:2,ansys", True, "matlab:2,ansys"),
        ("matlab@server:2,vjobgate", True, "matlab@server:2"),
        ("vjobgate2,xvjobgate", False, "vjobgate2,xvjobgate"),
        ("matlab:2", False, "matlab:2"),
        ("", False, ""),
        ("(null)", False, ""),  # 24.11, and of a job that was never asked
        ("vjobgate:1|matlab", False, "vjobgate:1|matlab"),  # one of them is enough
    ],
)
def test_licences(given: str, gated: bool, own: str) -> None:
    job = read(squeue(licenses=given)).job
    assert (job.gated, job.licenses) == (gated, own)


def test_running_job() -> None:
    job = read(
        squeue(
            word="RUNNING",
            reason="None",
            licenses="",
            nodes="n[1-2]",
            required_nodes="n1",
            batch_host="n1",
            start=str(NOW - 50),
            end=str(NOW + 3550),
            limit="1:00:00",
        ),
        More(restarts=2, eligible_time=NOW - 100, preempt_time=NOW - 5),
    ).job
    assert (job.state, job.gated, job.held, job.eligible, job.restarts) == (JobState.RUNNING, False, False, False, 2)
    assert (job.nodes, job.batch_host) == (("n1", "n2"), "n1")
    assert (job.start_time, job.end_time, job.time_limit_s, job.preempt_time) == (NOW - 50, NOW + 3550, 3600, NOW - 5)


def test_times_of_a_pending_job_are_guesses() -> None:
    job = read(squeue(start=str(NOW + 50), end=str(NOW + 3650), required_nodes="n2")).job
    assert (job.start_time, job.end_time, job.nodes) == (0, 0, ("n2",))


def test_the_time_limit_of_a_suspended_job_stands_still() -> None:
    job = read(squeue(word="SUSPENDED", priority="0", start=str(NOW - 50), end=str(NOW + 50))).job
    assert (job.start_time, job.end_time) == (NOW - 50, 0)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("CONFIGURING", JobState.CONFIGURING),
        ("SUSPENDED", JobState.SUSPENDED),
        ("STOPPED", JobState.RUNNING),
        ("STAGE_OUT", JobState.RUNNING),
        ("SPECIAL_EXIT", JobState.PENDING),
        ("REQUEUE_HOLD", JobState.PENDING),
        ("TIMEOUT", JobState.ENDED),
        ("PREEMPTED", JobState.ENDED),
        ("NODE_FAIL", JobState.ENDED),
        ("OUT_OF_MEMORY", JobState.ENDED),
    ],
)
def test_states(word: str, state: JobState) -> None:
    job = read(squeue(word=word)).job
    assert (job.state, job.detail) == (state, word)


def test_held_job() -> None:
    job = read(squeue(priority="0", reason="JobHeldUser"), More()).job
    assert (job.held, job.gated, job.eligible, job.reason) == (True, True, False, "JobHeldUser")


def test_a_suspended_or_running_job_of_priority_0_is_not_held() -> None:
    assert not read(squeue(word="SUSPENDED", priority="0")).job.held
    assert not read(squeue(word="RUNNING", priority="0", reason="JobHeldAdmin")).job.held


def test_completing_after_the_end() -> None:
    job = read(squeue(word="COMPLETING", end=str(NOW - 1))).job
    assert (job.state, job.completing, job.eligible) == (JobState.ENDED, True, False)


@pytest.mark.parametrize("end", [str(NOW + 600), "N/A", "NONE"])
def test_completing_after_a_requeue(end: str) -> None:
    """Slurm shows the end that it would have if it started now; without a time limit, none."""
    job = read(squeue(word="COMPLETING", end=end, start=str(NOW), reason="None")).job
    assert (job.state, job.completing, job.held) == (JobState.PENDING, True, False)


@pytest.mark.parametrize("reason", ["BeginTime", "Licenses", "None"])
def test_begin_time_whatever_the_reason(reason: str) -> None:
    assert not read(squeue(reason=reason), More(eligible_time=NOW + 1)).job.eligible
    assert read(squeue(reason=reason), More(eligible_time=NOW)).job.eligible


def test_the_guess_of_the_scheduler_is_no_begin_time() -> None:
    assert read(squeue(reason="Resources", start=str(NOW + 600))).job.eligible


def test_slurms_delay_after_a_requeue_counts_for_nothing() -> None:
    requeued = squeue(submit=str(NOW), reason="BeginTime")
    row = read(requeued, More(restarts=1, eligible_time=NOW + 121))
    assert (row.delayed, row.job.eligible) == (True, True)
    row = read(requeued, More(restarts=1, eligible_time=NOW))
    assert (row.delayed, row.job.eligible) == (False, True)
    for own in (More(restarts=0, eligible_time=NOW + 121), More(restarts=1, eligible_time=NOW + 600)):
        row = read(requeued, own)
        assert (row.delayed, row.job.eligible) == (False, False)


@pytest.mark.parametrize("left", ["afterok:11(unfulfilled)", "afterok:11(failed)", "singleton(unfulfilled)"])
def test_dependency(left: str) -> None:
    assert not read(squeue(dependency=left, reason="Dependency")).job.eligible


def test_a_job_that_only_one_of_two_readings_has_is_not_eligible_yet() -> None:
    (row,) = slurm_text.job_rows(squeue(), TOKEN, {}, "vjobgate", NOW)
    assert (row.job.state, row.job.eligible) == (JobState.PENDING, False)


# --- arrays ---


def array(*elements: tuple[str, str, str], licenses: str = "vjobgate") -> str:
    """Rows of array 20: (index, job id, state)."""
    return "".join(
        squeue(display_id=f"20_{index}", task=index, job_id=job_id, array_id="20", word=word, licenses=licenses)
        for index, job_id, word in elements
    )


def test_elements_without_a_record_of_their_own() -> None:
    found = rows(array(("1", "20", "PENDING"), ("2", "21", "PENDING"), ("3", "20", "PENDING")))
    assert [row.job.split for row in found] == [False, True, False]
    assert [row.target for row in found] == ["20_1", "20_2", "20_3"]
    assert read(squeue()).target == "12"


def test_the_last_element_has_the_id_of_its_array() -> None:
    found = rows(array(("1", "21", "RUNNING"), ("2", "20", "PENDING")))
    assert [row.job.split for row in found] == [True, True]


@pytest.mark.parametrize(
    ("limit", "eligible"), [(0, ["2", "3", "10"]), (1, []), (2, ["2"]), (3, ["2", "3"]), (9, ["2", "3", "10"])]
)
def test_array_limit(limit: int, eligible: list[str]) -> None:
    found = rows(
        array(("1", "21", "SUSPENDED"), ("10", "20", "PENDING"), ("2", "20", "PENDING"), ("3", "20", "PENDING"))
    )
    limited = slurm_text.within_array_limits(found, {20: limit} if limit else {})
    assert sorted((row.task for row in limited if row.job.eligible), key=int) == eligible


def test_an_element_that_is_opened_counts_like_one_under_way() -> None:
    opened = array(("1", "21", "PENDING"), licenses="")
    found = rows(opened + array(("2", "20", "PENDING"), ("3", "20", "PENDING")))
    limited = slurm_text.within_array_limits(found, {20: 2})
    assert [row.task for row in limited if row.job.eligible] == ["1", "2"]


def test_limits_matter_only_where_elements_wait() -> None:
    assert slurm_text.limits_matter(rows(array(("1", "20", "PENDING"))))
    assert not slurm_text.limits_matter(rows(array(("1", "20", "RUNNING")) + squeue()))


RECORDS = (
    "JobId=20 ArrayJobId=20 ArrayTaskId=2-3%1 ArrayTaskThrottle=1 JobName=x ArrayTaskThrottle=99 UserId=alice(2001)"
    " Comment= ArrayTaskThrottle=98 \n"
    "JobId=21 ArrayJobId=20 ArrayTaskId=1 JobName=t.sh UserId=alice(2001)\n"
    "JobId=12 JobName= ArrayTaskThrottle=9 UserId=alice(2001)\n"
)
ELEMENTS = array(("1", "21", "RUNNING"), ("2", "20", "PENDING"), ("3", "20", "PENDING")) + squeue()


def test_array_limits_are_read_before_the_users_own_words() -> None:
    assert slurm_text.array_limits(RECORDS, rows(ELEMENTS)) == {20: 1}


def test_array_limits_cannot_be_forged_by_a_name_of_several_lines() -> None:
    forged = "JobId=7 JobName=x\nJobId={} ArrayJobId=20 ArrayTaskId=9 ArrayTaskThrottle=77 JobName=y\n"
    known = rows(ELEMENTS)
    assert slurm_text.array_limits(RECORDS + forged.format(999), known) == {20: 1}
    assert slurm_text.array_limits(RECORDS + forged.format(12), known) == {20: 1}
    assert slurm_text.array_limits(forged.format(20) + RECORDS, known) == {}


def test_more_fields() -> None:
    text = (
        f"{'40':22}{'0':22}{NOW:<22}{'N/A':22}{NOW - 9:<22}{NOW - 11:<22}\n"
        f"{'44':22}{'2':22}{'N/A':22}{NOW + 1:<22}{'N/A':22}{NOW - 12:<22}\n"
        f"{'45':22}{'0':22}{'Unknown':22}{'N/A':22}{'N/A':22}{NOW - 13:<22}\n"
    )
    assert slurm_text.more_fields(text) == {
        40: More(0, NOW, 0, NOW - 9, NOW - 11),
        44: More(2, 0, NOW + 1, 0, NOW - 12),
        45: More(submit_time=NOW - 13),
    }


class Requeued:
    """Slurm with one job, which it requeues between answers of squeue: before those that are named."""

    def __init__(self, *requeues: int) -> None:
        self._requeues, self._answers = requeues, 0

    def run(self, *words: str) -> str:
        restarts = sum(self._answers >= requeue for requeue in self._requeues)
        self._answers += 1
        submitted = NOW - 100 + restarts
        if words[-2] == "-O":
            return f"{'12':22}{restarts:<22}{NOW - 100:<22}{'N/A':22}{'N/A':22}{submitted:<22}\n"
        return squeue(submit=str(submitted)).replace(TOKEN, words[-1].partition("\x1f")[0])


@pytest.mark.parametrize(("requeues", "restarts"), [((), 0), ((0,), 1), ((1,), 1), ((1, 3), 2)])
def test_a_job_is_as_it_is_before_a_requeue_or_behind_it(
    requeues: tuple[int, ...], restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in one, it would be a job that was submitted at another time and never requeued: another one's."""
    commands = SlurmCli()
    monkeypatch.setattr(commands, "_run", Requeued(*requeues).run)
    job = commands.job(12)
    assert (job.restarts, job.submit_time) == (restarts, NOW - 100 + restarts)


def test_a_job_that_is_requeued_again_and_again_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = SlurmCli()
    monkeypatch.setattr(commands, "_run", Requeued(1, 3, 5).run)
    with pytest.raises(UnavailableError, match=r"^Slurm requeued jobs while squeue was asked about them: 12$"):
        commands.job(12)


@pytest.mark.parametrize(
    ("text", "mib"),
    [("0", 0), ("64M", 64), ("2G", 2048), ("1.50G", 1536), ("1T", 1048576), ("100Mc", 100), ("512K", 0)],
)
def test_memory(text: str, mib: int) -> None:
    assert read(squeue(memory=text)).job.memory_mib == mib


# --- the pulse ---


def pulse(job_id: str, state: str = "PD", preempted: str = "N/A", reason: str = "Licenses") -> str:
    return f"{job_id:64}{state:8}{preempted:24}{reason:40}\n"


@pytest.mark.parametrize(
    "after",
    [
        pulse("7") + pulse("8"),
        pulse("7", state="R", reason="None"),
        pulse("7", preempted=str(NOW)),
        pulse("7", reason="JobHeldUser"),
        pulse("7", reason="Dependency"),
        pulse("7", reason="BeginTime"),
        "",
    ],
)
def test_pulse_changes(after: str) -> None:
    assert slurm_text.pulse(pulse("7")) != slurm_text.pulse(after)


def test_pulse_stays_while_slurm_looks_around() -> None:
    before = slurm_text.pulse(pulse("7") + pulse("8", reason="Resources"))
    assert slurm_text.pulse(pulse("8", reason="Priority") + pulse("7", reason="None")) == before


def test_sacct_says_which_jobs_have_ended() -> None:
    text = "7|COMPLETED\n8|RUNNING\n9|CANCELLED by 1000\n10|REQUEUED\n11|TIMEOUT\n12.batch|FAILED\n13|\n"
    assert slurm_text.ended_jobs(text, {7, 8, 9, 10, 12, 13}) == {7: "COMPLETED", 9: "CANCELLED"}
