"""Traces in the Standard Workload Format: what becomes a job, and the message for each line that does not."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.replayed import DATA, needs_data

from rmsplugin.errors import WorkloadError
from rmsplugin.workload.faults import NAMED, SUMMARIES, FaultCode, Faults
from rmsplugin.workload.jobs import Job, MemoryUnit, Workload, read_workload, vjob_of
from rmsplugin.workload.record import DECIMAL, FIELD_NAMES, Record
from rmsplugin.workload.swf import SwfReader, parse_line


def line(**changed: object) -> str:
    """A line of a trace: job 1 of 4 processors, submitted at 10 s, which ran for 100 s of the 200 s requested."""
    fields = {
        **dict.fromkeys(Record._fields, -1),
        **{"job_id": 1, "submit_s": 10, "run_s": 100, "allocated_processors": 4, "requested_s": 200, "status": 1},
        **changed,
    }
    return " ".join(str(fields[name]) for name in Record._fields)


def read(*lines: str) -> Workload:
    return read_workload(["\n".join([*lines, ""]).encode()])


def only(*lines: str) -> Job:
    found = read(*lines)
    assert not found.faults, list(found.faults)
    (job,) = found.jobs
    return job


NO_PROCESSORS = "job 1 has no processors, neither allocated nor requested"
PARTIAL = "is a partial execution of job 1, of which no line tells the whole"


# -- lines that are no jobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        ("7", FaultCode.FIELDS, "has 1 field, 18 are needed"),
        (line().removesuffix(" -1"), FaultCode.FIELDS, "has 17 fields, 18 are needed"),
        (line().replace(" ", ","), FaultCode.FIELDS, "has 1 field, 18 are needed"),
        (line(job_id="a7"), FaultCode.NUMBER, "field 1 (job number) is 'a7', which is no number"),
        (line(submit_s="nan"), FaultCode.NUMBER, "field 2 (submit time) is 'nan', which is no number"),
        (line(run_s="inf"), FaultCode.NUMBER, "field 4 (run time) is 'inf', which is no number"),
        (line(run_s="1_000"), FaultCode.NUMBER, "field 4 (run time) is '1_000', which is no number"),
        (line(run_s="0x10"), FaultCode.NUMBER, "field 4 (run time) is '0x10', which is no number"),
        (line(run_s="12:30"), FaultCode.NUMBER, "field 4 (run time) is '12:30', which is no number"),
        (line(run_s="--5"), FaultCode.NUMBER, "field 4 (run time) is '--5', which is no number"),
        (line(user="alice"), FaultCode.NUMBER, "field 12 (user) is 'alice', which is no number"),
        (line(user="\u0663"), FaultCode.NUMBER, "field 12 (user) is '\u0663', which is no number"),
        (line(user="x" * 99), FaultCode.NUMBER, f"field 12 (user) is '{'x' * 40}...', which is no number"),
        (
            line(allocated_processors="2.5"),
            FaultCode.NUMBER,
            "field 5 (allocated processors) has to be a whole number, not '2.5'",
        ),
        (line(job_id="1e3"), FaultCode.NUMBER, "field 1 (job number) has to be a whole number, not '1e3'"),
        (line(run_s=-100), FaultCode.RANGE, "field 4 (run time) is '-100'; below 0 there is only -1, unknown"),
        (line(think_s="-0.5"), FaultCode.RANGE, "field 18 (think time) is '-0.5'; below 0 there is only -1, unknown"),
        (line(run_s="9" * 16), FaultCode.RANGE, f"field 4 (run time) is '{'9' * 16}', which is too large"),
        (line(run_s="9" * 5000), FaultCode.RANGE, f"field 4 (run time) is '{'9' * 40}...', which is too large"),
        (line(submit_s="1e999"), FaultCode.RANGE, "field 2 (submit time) is '1e999', which is too large"),
        (line(status=6), FaultCode.STATUS, "field 11 (status) is 6; there are -1 to 5"),
        (line(job_id=-1), FaultCode.NO_JOB_NUMBER, "has no job number"),
        (line(submit_s=-1), FaultCode.NO_SUBMIT_TIME, "job 1 has no submit time"),
        (line(run_s=-1), FaultCode.NO_RUN_TIME, "job 1 has no run time"),
        (line(run_s=-1, status=5), FaultCode.CANCELLED, "job 1 was cancelled before it started"),
        (line(run_s=0, status=5), FaultCode.CANCELLED, "job 1 was cancelled before it started"),
        (line(allocated_processors=-1), FaultCode.NO_PROCESSORS, NO_PROCESSORS),
        (line(allocated_processors=0, requested_processors=0), FaultCode.NO_PROCESSORS, NO_PROCESSORS),
        (line(job_id=9), FaultCode.REPEATED, "job 9 is on line 2 already"),
        (line(status=2), FaultCode.PARTIAL, PARTIAL),
        (line(status=4), FaultCode.PARTIAL, PARTIAL),
        ("\x00\xff\x00", FaultCode.FIELDS, "has 1 field, 18 are needed"),
    ],
)
def test_a_line_that_is_no_job_is_named_with_the_reason_and_costs_no_other(
    bad: str, code: FaultCode, message: str
) -> None:
    found = read("; Version: 2.2", line(job_id=9), bad, line(job_id=8))
    assert [(fault.line, fault.code, fault.message) for fault in found.faults] == [(3, code, message)]
    assert [job.job_id for job in found.jobs] == [9, 8]
    assert found.lines == 4


def test_all_faults_are_counted_and_so_many_of_each_reason_named() -> None:
    faults = Faults()
    for number in range(NAMED + 500):
        faults.add(number, FaultCode.FIELDS, "")
    faults.add(3, FaultCode.STATUS, "")
    assert len(faults) == NAMED + 501
    assert faults.counts[FaultCode.FIELDS] == NAMED + 500
    named = list(faults)
    assert len(named) == NAMED + 1
    assert [fault.line for fault in named[2:6]] == [2, 3, 3, 4]


def test_every_reason_has_its_words() -> None:
    assert SUMMARIES.keys() == set(FaultCode)


def test_a_line_without_end_is_no_trace() -> None:
    blocks = iter([b"; fine\n\n", *[b"0" * 65536] * 100])
    with pytest.raises(WorkloadError, match=r"^line 3 is longer than 1 MiB: no SWF trace$"):
        read_workload(blocks)
    assert len(list(blocks)) > 80, "it is not read to its end"


# -- lines that are jobs -------------------------------------------------------------------------------------------


def test_the_fields_have_their_places() -> None:
    record = parse_line(b"1 2 3 4 5 6 7 8 9 10 1 12 13 14 15 16 17 18")
    assert record == Record(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 12, 13, 14, 15, 16, 17, 18)
    assert len(FIELD_NAMES) == len(Record._fields)
    assert {Record._fields[place] for place in DECIMAL} == {
        *("submit_s", "wait_s", "run_s", "average_cpu_s", "requested_s", "think_s"),
        *("used_memory_kib", "requested_memory_kib"),
    }


def test_a_job_is_as_its_line() -> None:
    assert only("; a comment", "", line()) == Job(1, 10, 100, 4, 200, None, 3)


def test_requested_processors_stand_for_allocated_ones_that_nobody_knows() -> None:
    assert only(line(requested_processors=9)).processors == 4
    for unknown in (-1, 0):
        assert only(line(allocated_processors=unknown, requested_processors=9)).processors == 9


@pytest.mark.parametrize("unknown", [-1, 0])
def test_the_run_time_stands_for_a_requested_time_that_nobody_knows(unknown: int) -> None:
    found = read(line(requested_s=unknown), line(job_id=2))
    assert [job.estimate_s for job in found.jobs] == [100, 200]
    assert found.unestimated == 1


def test_users_groups_and_queues_are_called_by_their_numbers_where_they_are_known() -> None:
    named = only(line(user=7, group=3, queue=0, partition=2))
    assert (named.user, named.account, named.partition) == ("7", "3", "0")
    assert only(line(partition=2)).partition == "2"
    unknown = only(line())
    assert (unknown.user, unknown.account, unknown.partition) == ("", "", "")


def test_used_memory_and_program_are_known_beside_what_was_requested() -> None:
    known = only(line(requested_memory_kib=4096, used_memory_kib=1025, executable=5))
    assert (known.memory_mib, known.used_mib, known.program) == (4, 2, "5")
    unknown = only(line(requested_memory_kib=4096))
    assert (unknown.program, unknown.used_mib) == ("", None)
    text = line(requested_memory_kib=8 << 20, used_memory_kib=4 << 20, allocated_processors=4)
    (by_job,) = read_workload([(text + "\n").encode()], MemoryUnit.BYTES_PER_JOB).jobs
    assert (by_job.memory_mib, by_job.used_mib) == (2, 1)


def test_work_beyond_the_requested_time_is_not_cut() -> None:
    job = only(line(run_s=300))
    assert (job.run_s, job.estimate_s) == (300, 200)


def test_a_run_of_less_than_half_a_second_is_a_job() -> None:
    assert only(line(run_s=0)).run_s == 0


def test_a_job_that_was_cancelled_while_it_ran_is_a_job() -> None:
    assert only(line(status=5)).run_s == 100


def test_memory_is_what_was_requested_else_what_was_used() -> None:
    assert only(line(requested_memory_kib=2049, used_memory_kib=1024)).memory_mib == 3, "rounded up"
    assert only(line(used_memory_kib="1024.5")).memory_mib == 2
    assert only(line(requested_memory_kib=0)).memory_mib is None


def test_whole_numbers_stay_whole_and_times_may_have_decimals() -> None:
    job = only(line(submit_s="12.0", run_s="0.25", requested_s="1e2", average_cpu_s=".5"))
    assert (job.submit_s, job.run_s, job.estimate_s) == (12, 0.25, 100)
    assert isinstance(job.submit_s, int)


def test_partial_executions_are_counted_beside_their_job() -> None:
    found = read(line(run_s=150), line(status=2), line(submit_s=80, run_s=50, status=3), line(job_id=2))
    assert [(job.job_id, job.run_s) for job in found.jobs] == [(1, 150), (2, 100)]
    assert found.partial == 2
    assert not found.faults


def test_partial_executions_of_a_job_that_cannot_be_simulated_are_of_a_known_job() -> None:
    found = read(line(allocated_processors=-1), line(status=2))
    assert [fault.line for fault in found.faults] == [1]
    assert found.partial == 1


def test_the_queue_is_by_submit_time_and_then_by_the_file() -> None:
    found = read(line(job_id=5, submit_s=20), line(job_id=7), line(job_id=6), line(job_id=4, submit_s=15))
    assert [job.job_id for job in found.jobs] == [7, 6, 4, 5]


def test_further_fields_are_left_out_and_such_lines_counted() -> None:
    found = read(line() + " {1,2} q_2w 1:ppn=1:brno", line(job_id=2), line(job_id="x") + " {1}")
    assert [job.job_id for job in found.jobs] == [1, 2]
    assert found.extended == 1
    assert len(found.faults) == 1


@pytest.mark.parametrize("ending", ["\r\n", "\n", " \t\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_line_ends_byte_order_marks_and_pieces_do_not_matter(ending: str, start: str, size: int) -> None:
    lines = ["; MaxProcs: 64", "\t" + line().replace(" ", "  \t"), "   ", line(job_id=2)]
    data = (start + ending.join(lines)).encode()
    found = read_workload(data[at : at + size] for at in range(0, len(data), size))
    assert [job.job_id for job in found.jobs] == [1, 2]
    assert (found.lines, len(found.faults), found.header) == (4, 0, {"MaxProcs": ["64"]})


def test_the_header_is_above_the_first_record() -> None:
    reader = SwfReader(
        [b";  Computer : IBM SP2\n;Note: one\n; Note: two: 2\n; words\n;\n" + line().encode() + b"\n;A: b"]
    )
    assert len(list(reader)) == 1
    assert reader.header == {"Computer": ["IBM SP2"], "Note": ["one", "two: 2"]}
    assert (reader.lines, reader.records) == (7, 1)


def test_nothing_has_no_jobs() -> None:
    for blocks in ([], [b""], [b"\n\n"], [b"; Version: 2.2\n"]):
        found = read_workload(blocks)
        assert (found.jobs, len(found.faults)) == ([], 0)


def test_a_job_of_p_processors_is_p_vms_of_one_cpu() -> None:
    vjob = vjob_of(only(line()), default_memory_mib=512, ran_s=30)
    assert (vjob.name, vjob.time_limit_s, vjob.ran_s) == ("1", 200, 30)
    assert [vm.name for vm in vjob.vms] == ["1-0", "1-1", "1-2", "1-3"]
    assert {(vm.demand.cpus, vm.demand.memory_mib) for vm in vjob.vms} == {(1, 512)}
    known = vjob_of(only(line(requested_memory_kib=2048)), default_memory_mib=512)
    assert {vm.demand.memory_mib for vm in known.vms} == {2}


# -- what is not believed ----------------------------------------------------------------------------------------------


def cpu_times(runs: list[int], cpu_s: list[float]) -> Workload:
    """A trace of jobs with these run times and average CPU times."""
    pairs = enumerate(zip(runs, cpu_s, strict=True), start=1)
    return read(*(line(job_id=number, run_s=run_s, average_cpu_s=used_s) for number, (run_s, used_s) in pairs))


@pytest.mark.parametrize(
    ("runs", "cpu_s", "disbelieved"),
    [
        (list(range(100, 110)), [1] * 10, 10),  # as a site fills in what it does not know
        (list(range(100, 112)), [1] * 10 + [-1, 0], 10),  # whatever is not known says nothing
        (list(range(100, 109)), [1] * 9, 0),  # too few
        (list(range(100, 110)), [1] * 9 + [2], 0),  # somebody measured
        ([100] * 10, [1] * 10, 0),  # the same job again and again
        (list(range(100, 110)), [-1] * 10, 0),
    ],
)
def test_a_cpu_time_that_is_the_same_for_jobs_of_all_lengths_is_not_believed(
    runs: list[int], cpu_s: list[float], disbelieved: int
) -> None:
    found = cpu_times(runs, cpu_s)
    assert found.disbelieved == disbelieved
    believed = [None if disbelieved or used_s <= 0 else used_s for used_s in cpu_s]
    assert [job.average_cpu_s for job in found.jobs] == believed
    assert [job.run_s for job in found.jobs] == runs and not found.faults


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from((-1, 0, 1, 1, 1, 1, 2))), min_size=9, max_size=14))
def test_cpu_times_are_all_believed_or_none_and_nothing_else_is_changed(jobs: list[tuple[int, float]]) -> None:
    runs, cpu_s = [run_s for run_s, _ in jobs], [used_s for _, used_s in jobs]
    found, without = cpu_times(runs, cpu_s), cpu_times(runs, [-1] * len(jobs))
    assert [job._replace(average_cpu_s=None) for job in found.jobs] == without.jobs
    known = {(run_s, used_s) for run_s, used_s in jobs if used_s > 0}
    alike = len({used_s for _, used_s in known}) == 1 and len({run_s for run_s, _ in known}) > 1
    doubted = sum(used_s > 0 for used_s in cpu_s) if alike else 0
    assert found.disbelieved == (doubted if doubted >= 10 else 0)
    assert sum(job.average_cpu_s is not None for job in found.jobs) == (
        0 if found.disbelieved else sum(used_s > 0 for used_s in cpu_s)
    )


@needs_data
def test_a_trace_that_is_not_normalised_is_read() -> None:
    found = read_workload([gzip.decompress((DATA / "swf" / "metacentrum-wagap-2013.swf.gz").read_bytes())])
    assert (len(found.jobs), found.lines, found.extended) == (17898, 17900, 17898)
    assert [(fault.line, fault.code) for fault in found.faults] == [(4186, FaultCode.RANGE), (4200, FaultCode.RANGE)]
    assert (found.disbelieved, found.disbelieved_cpu_s) == (17898, 1)  # whatever they ran
