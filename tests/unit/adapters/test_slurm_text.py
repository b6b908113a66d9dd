"""Reading what Slurm prints of jobs, on output captured from Slurm 22.05.8; where it says so, as others spell it."""

from __future__ import annotations

import math

import pytest

from rmsplugin.adapters.rms import slurm_text
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.rms.slurm_text import JobRow

NOW = 1795253000
TOKEN = "5f1c"


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
        "restarts": "0",
        "eligible_time": str(NOW - 100),
        "preempt_time": "N/A",
        "accrue_time": "N/A",
        "mcs_label": "(null)",
        "name": "t.sh",
    }
    assert list(usual) == list(slurm_text.JOB_FIELDS)
    return "".join(f"{value}\x1f" for value in {**usual, **fields}.values()) + f"{TOKEN}\n"


def rows(text: str) -> list[JobRow]:
    return slurm_text.job_rows(text, TOKEN, "vjobgate", NOW)


def read(text: str) -> JobRow:
    (row,) = rows(text)
    return row


def test_format() -> None:
    asked = slurm_text.squeue_format(TOKEN).replace("\x1f", " ")
    assert asked.startswith("JobArrayID:0 ,JobID:0 ,ArrayJobID:0 ,ArrayTaskID:0 ,")
    assert asked.endswith(",AccrueTime:0 ,MCSLabel:0 ,Name:0 5f1c")


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


@pytest.mark.parametrize(("given", "label"), [("(null)", ""), ("N/A", ""), ("", ""), ("physics", "physics")])
def test_mcs_label(given: str, label: str) -> None:
    assert read(squeue(mcs_label=given)).job.mcs_label == label


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
            restarts="2",
            preempt_time=str(NOW - 5),
            accrue_time=str(NOW - 99),
        )
    ).job
    assert (job.state, job.gated, job.held, job.eligible, job.restarts) == (JobState.RUNNING, False, False, False, 2)
    assert (job.nodes, job.batch_host, job.accrue_time) == (("n1", "n2"), "n1", NOW - 99)
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
    job = read(squeue(priority="0", reason="JobHeldUser", eligible_time="N/A")).job
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
    assert not read(squeue(reason=reason, eligible_time=str(NOW + 1))).job.eligible
    assert read(squeue(reason=reason, eligible_time=str(NOW))).job.eligible


def test_the_begin_time_is_told_of_a_job_that_nothing_else_keeps() -> None:
    later = {"eligible_time": str(NOW + 600), "reason": "BeginTime"}
    assert read(squeue(**later)).job.begin_time == NOW + 600
    for other in (
        {"eligible_time": str(NOW)},
        {"priority": "0"},
        {"dependency": "afterok:11(unfulfilled)"},
        {"word": "RUNNING"},
        {"restarts": "1", "submit": str(NOW), "eligible_time": str(NOW + 121)},
    ):
        assert read(squeue(**{**later, **other})).job.begin_time == 0


def test_the_guess_of_the_scheduler_is_no_begin_time() -> None:
    assert read(squeue(reason="Resources", start=str(NOW + 600))).job.eligible


def test_slurms_delay_after_a_requeue_counts_for_nothing() -> None:
    def submitted_anew(restarts: int, eligible_in_s: int) -> JobRow:
        times = {"submit": str(NOW), "eligible_time": str(NOW + eligible_in_s)}
        return read(squeue(reason="BeginTime", restarts=str(restarts), **times))

    row = submitted_anew(1, 121)
    assert (row.delayed, row.job.eligible) == (True, True)
    row = submitted_anew(1, 0)
    assert (row.delayed, row.job.eligible) == (False, True)
    for row in (submitted_anew(0, 121), submitted_anew(1, 600)):
        assert (row.delayed, row.job.eligible) == (False, False)


@pytest.mark.parametrize("left", ["afterok:11(unfulfilled)", "afterok:11(failed)", "singleton(unfulfilled)"])
def test_dependency(left: str) -> None:
    assert not read(squeue(dependency=left, reason="Dependency")).job.eligible


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


def test_limits_matter_only_where_elements_wait_behind_the_gate() -> None:
    assert slurm_text.limited_arrays(rows(array(("1", "20", "PENDING"), ("2", "20", "PENDING")))) == [20]
    assert not slurm_text.limited_arrays(rows(array(("1", "20", "RUNNING")) + squeue()))
    assert not slurm_text.limited_arrays(rows(array(("1", "20", "PENDING"), licenses="matlab:1")))


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
