"""The queue that squeue prints is read as if nothing had been kept of the last time, whatever has changed since."""

from __future__ import annotations

from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.adapters.rms.slurm_text import JOB_FIELDS, KeptRows, job_rows

TOKEN, GATE = "5f1c", "vjobgate"
_TIMES = st.sampled_from(["N/A", "100", "105", "110", "120", "250"])

#: The fields of a job that say how it is; the others stay as they are.
changing = st.fixed_dictionaries(
    {
        "display_id": st.sampled_from(["12", "13_0", "13_1", "14"]),
        "task": st.sampled_from(["N/A", "0", "1"]),
        "word": st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "COMPLETED"]),
        "submit": st.sampled_from(["90", "100"]),
        "end": _TIMES,
        "eligible_time": _TIMES,
        "restarts": st.sampled_from(["0", "1"]),
        "licenses": st.sampled_from(["vjobgate", "(null)"]),
        "priority": st.sampled_from(["0", "7"]),
    }
)
usual = {
    **dict.fromkeys(JOB_FIELDS, "N/A"),
    **{"job_id": "13", "array_id": "13", "uid": "1", "gid": "1", "nice": "0", "cpus": "1", "memory": "64M"},
    **{"dependency": "(null)", "nodes": "", "required_nodes": "", "account": "users"},
}
looks = st.lists(st.tuples(st.lists(changing, max_size=4), st.integers(95, 260)), min_size=2, max_size=6)


def printed(jobs: list[dict[str, str]]) -> str:
    return "".join("".join(f"{value}\x1f" for value in {**usual, **job}.values()) + f"{TOKEN}\n" for job in jobs)


@settings(max_examples=few(300))
@given(looks)
def test_rows_that_are_kept_are_what_the_text_says(seen: list[tuple[list[dict[str, str]], int]]) -> None:
    kept = KeptRows(GATE)
    for jobs, now in seen:
        for text in (printed(jobs), printed([*jobs, *seen[0][0]])):
            assert kept.read(text, TOKEN, now) == job_rows(text, TOKEN, GATE, now)


def test_a_job_that_is_as_it_was_is_the_same_object() -> None:
    kept = KeptRows(GATE)
    stays = {"display_id": "12", "word": "RUNNING", "submit": "90", "eligible_time": "90", "restarts": "0"}
    goes = {**stays, "display_id": "14", "word": "COMPLETING", "end": "105"}
    stays["priority"] = goes["priority"] = "7"
    first, later = (kept.read(printed([stays, goes]), TOKEN, now) for now in (100, 110))
    assert [was is now for was, now in zip(first, later, strict=True)] == [True, False]
    assert [row.job.state for row in later] == ["RUNNING", "ENDED"]


def test_a_begin_time_passes_and_comes_again() -> None:
    kept = KeptRows(GATE)
    job = {"display_id": "12", "word": "PENDING", "submit": "90", "eligible_time": "105", "restarts": "0"}
    text = printed([{**job, "priority": "7", "licenses": "vjobgate"}])
    # The clock is set back in the end.
    jobs = [row.job for now in (100, 110, 120, 100) for row in kept.read(text, TOKEN, now)]
    assert [job.eligible for job in jobs] == [False, True, True, False]
    assert [job.begin_time for job in jobs] == [105, 0, 0, 105]
