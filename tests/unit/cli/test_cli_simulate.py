"""`rmsplugin simulate` as users run it."""

from __future__ import annotations

import bz2
import gc
import gzip
import json
import lzma
import os
import pty
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from unit.cli.json_documents import answer_of
from unit.replayed import DATA, REFERENCES, needs_data, reference
from unit.simulation.test_workload import line

from rmsplugin.cli.main import main
from rmsplugin.cli.simulate import trace_file
from rmsplugin.decision.policies import POLICIES
from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import blocks, named
from rmsplugin.model.policy_names import POLICIES as SIMULATED

PROGRAM = [sys.executable, "-m", "rmsplugin.cli.main"]

#: Job 2 waits for job 1 on 4 CPUs; job 3 passes it under easy only.
TRACE = "; Version: 2.2\n; Computer: a small one\n" + "".join(
    f"{each}\n"
    for each in (
        line(job_id=1, submit_s=0, run_s=100, allocated_processors=3, requested_s=100),
        line(job_id=2, submit_s=10, run_s=20, allocated_processors=2, requested_s=60),
        line(job_id=3, submit_s=20, run_s=40, allocated_processors=1, requested_s=50),
    )
)
CLUSTER = ("--nodes", "2", "--cpus-per-node", "2")
EASY = "job_id,submit,start,end,processors,estimate\n1,0,0,100,3,100\n2,10,100,120,2,60\n3,20,20,60,1,50\n"


def hungry() -> bytes:
    """An xz file that says it needs 4 GiB to be decompressed."""
    data = bytearray(lzma.compress(TRACE.encode()))
    begin, end = 12, 12 + data[12] * 4  # the header of its block, without the checksum
    data[data.index(b"\x21\x01", begin) + 2] = 40
    data[end : end + 4] = zlib.crc32(data[begin:end]).to_bytes(4, "little")
    return bytes(data)


UNREAD = "t.swf: compressed in a form that is not read here; `{} FILE` decompresses it for standard input (`-`)"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of its own for each test, with a trace in it."""
    monkeypatch.chdir(tmp_path)
    Path("t.swf").write_text(TRACE)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run the command in this process: status, standard output, standard error."""
    try:
        status = main(["simulate", *words])
    except SystemExit as error:
        status = int(str(error.code))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return status, out, err


def simulated(capsys: pytest.CaptureFixture[str], *words: str, policy: str = "easy") -> dict[str, Any]:
    status, out, err = call(capsys, "--workload", "t.swf", *CLUSTER, "--policy", policy, "--json", *words)
    assert (status, err) == (0, "")
    found: dict[str, Any] = answer_of(out)
    return found


# -- what it prints and writes -------------------------------------------------------------------------------------


def test_the_jobs_are_written_in_the_order_of_the_queue(capsys: pytest.CaptureFixture[str]) -> None:
    simulated(capsys, "--jobs-out", "easy.csv")
    assert Path("easy.csv").read_text() == EASY
    simulated(capsys, "--jobs-out", "fcfs.csv", policy="fcfs")
    assert "\n3,20,100,140,1,50\n" in Path("fcfs.csv").read_text()


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_where_processors_are_counted_nobody_waits_for_solvers_and_libraries_of_pages(policy: str) -> None:
    words = ["simulate", "--workload", "t.swf", *CLUSTER, "--policy", policy, "--jobs-out", "jobs.csv"]
    code = f"import sys; from rmsplugin.cli.main import main; main({words!r}); print('loaded', *sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    loaded = found.stdout.rpartition("loaded ")[2].split()
    assert "rmsplugin.simulation.short_way" in loaded
    assert not {"ortools", "pandas", "sqlite_utils", "rmsplugin.report"}.intersection(loaded)


def test_whether_cycles_of_objects_are_looked_for_is_afterwards_as_before() -> None:
    for enabled in (False, True):
        (gc.enable if enabled else gc.disable)()
        trace_file.read("t.swf")
        assert gc.isenabled() is enabled


def test_a_cpu_time_that_says_nothing_is_told_once_and_all_that_was_requested_is_used(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def write(cpu_s: int) -> None:
        lines = (line(job_id=number, submit_s=0, run_s=100 + number, average_cpu_s=cpu_s) for number in range(1, 12))
        Path("t.swf").write_text("\n".join([*lines, ""]))

    write(1)
    words = ("--workload", "t.swf", *CLUSTER, "--memory-per-node", "4096", "--policy", "rjsp", "--json")
    status, out, err = call(capsys, *words)
    assert (status, err.count("\n")) == (0, 1)
    assert "t.swf: field 6 (average CPU time) is 1 s for all 11 jobs that have one" in err
    doubted = answer_of(out)
    assert doubted["trace"]["cpu_time_not_believed"] == 11
    write(-1)
    status, out, err = call(capsys, *words)
    assert (status, err) == (0, "")
    unknown = answer_of(out)
    for measure in ("makespan_s", "utilisation", "completion_s"):
        assert doubted[measure] == unknown[measure], measure


def test_json_has_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys)
    seconds = found.pop("seconds")
    assert set(seconds) == {"reading", "simulation"} and all(value >= 0 for value in seconds.values())
    assert found.pop("utilisation") == pytest.approx((300 + 40 + 40) / (4 * 120))
    assert found == {
        "policy": "easy",
        "rules": 0,
        "wishes": 0,
        "platform": "libvirt",
        "cluster": {
            "nodes": 2,
            "cpus_per_node": 2,
            "memory_per_node_mib": None,
            "memory_per_vm_mib": None,
            "cpus_per_vm": 1,
            "cpu_overbooking": {},
        },
        "jobs": 3,
        "makespan_s": 120,
        "wait_s": {"mean": 30, "p50": 0, "p95": pytest.approx(81), "p99": pytest.approx(88.2)},
        "completion_s": {"mean": pytest.approx(250 / 3), "p50": 100, "p95": 109, "p99": pytest.approx(109.8)},
        "bounded_slowdown": {
            "mean": pytest.approx(7.5 / 3),
            "p50": 1,
            "p95": pytest.approx(5.05),
            "p99": pytest.approx(5.41),
        },
        "context_switches": {"suspend": 0, "resume": 0, "migrate": 0, "pause": 0, "unpause": 0},
        "trace": {
            "lines": 5,
            "header": {"Version": "2.2", "Computer": "a small one"},
            "partial_executions": 0,
            "with_further_fields": 0,
            "without_requested_time": 0,
            "naming_a_preceding_job": 0,
            "submitted_after_it": 0,
            "cpu_time_not_believed": 0,
            "not_simulated": 0,
            "reasons": {},
            "named": [],
        },
    }


def test_of_a_site_without_vms_a_person_reads_that_it_has_none_and_how_often_processes_were_paused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    native = ("--memory-per-node", "512", "--memory-per-vm", "64", "--platform", "native", "--policy", "easy-preempt")
    status, out, _ = call(capsys, "--workload", "t.swf", *CLUSTER, *native)
    assert status == 0
    told = out.splitlines()[0]
    assert told.startswith("3 jobs under easy-preempt on 2 nodes of 2 CPUs and 512 MiB without VMs: ")
    assert told.endswith(", 0 context switches with 0 pauses of processes.")


def test_a_person_gets_a_sentence_a_table_and_what_is_to_be_known_of_the_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open("t.swf", "a") as file:
        file.write(line(job_id=3, status=2) + "\n" + line(job_id=4, submit_s=9, run_s=1, requested_s=-1) + " more\n")
    status, out, err = call(capsys, "--workload", "t.swf", *CLUSTER, "--memory-per-node", "512", "--policy", "fcfs")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "4 jobs under fcfs on 2 nodes of 2 CPUs and 512 MiB: makespan 2:21, utilisation 68.1 %, no context switches.",
        "",
        "METRIC           MEAN  P50  P95  P99",
        "wait             1:05 1:26 1:31 1:31",
        "completion       1:46 1:45 1:59 2:00",
        "bounded slowdown 4.69 4.29 8.65 9.09",
        "lines of partial executions, whose jobs are simulated as a whole: 1",
        "jobs without a requested time, for which the run time stands: 1",
        "lines with more than 18 fields, of which the further ones are not read: 1",
    ]


def test_jobs_on_standard_output_are_alone_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--workload", "t.swf", *CLUSTER, "--policy", "easy", "--jobs-out", "-") == (0, EASY, "")


@pytest.mark.parametrize("zipped", [True, False])
def test_standard_input_gzipped_or_not(zipped: bool) -> None:
    data = gzip.compress(TRACE.encode()) if zipped else TRACE.encode()
    words = ["simulate", "--workload", "-", *CLUSTER, "--policy", "easy", "--jobs-out", "-"]
    done = subprocess.run([*PROGRAM, *words], input=data, capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, EASY, b"")


def test_a_gzipped_file_is_known_by_its_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.swf").write_bytes(gzip.compress(TRACE.encode()))
    assert simulated(capsys)["jobs"] == 3


@needs_data
@pytest.mark.parametrize(("name", "processors"), REFERENCES)
def test_the_command_writes_the_reference_schedule(
    name: str, processors: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--nodes", str(processors), "--cpus-per-node", "1", "--policy", "easy", "--jobs-out", "o.csv"]
    assert call(capsys, "--workload", str(DATA / "swf" / f"{name}.swf"), *words)[0] == 0
    rows = [row.split(",") for row in Path("o.csv").read_text().splitlines()[1:]]
    assert {int(row[0]): int(row[2]) for row in rows} == reference(name, "easy")


def test_the_policies_are_policies_of_the_engine() -> None:
    assert set(SIMULATED) == set(POLICIES)


# -- traces with faults --------------------------------------------------------------------------------------------


def test_lines_that_are_not_simulated_are_named_and_counted_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = ["what is \x1b[31mthis", *[line(job_id=n, allocated_processors=5) for n in range(10, 22)]]
    Path("t.swf").write_text(TRACE + "\n".join(bad))
    words = ["--workload", "t.swf", *CLUSTER, "--policy", "easy", "--jobs-out", "o.csv"]
    status, out, err = call(capsys, *words, "--json")
    assert status == 0
    assert Path("o.csv").read_text() == EASY
    lines = err.splitlines()
    assert lines[0] == "rmsplugin simulate: warning: t.swf:6: has 3 fields, 18 are needed"
    needs = "needs 5 processors, and the cluster has 4 processors"
    assert lines[1:10] == [f"rmsplugin simulate: warning: t.swf:{n - 3}: job {n} {needs}" for n in range(10, 19)]
    count = "13 of 18 lines are not simulated: 12 larger than the cluster; 1 fewer than 18 fields"
    assert lines[10:] == [f"rmsplugin simulate: warning: t.swf: {count}"]
    told = answer_of(out)["trace"]
    assert (told["not_simulated"], told["reasons"]) == (13, {"too-large": 12, "fields": 1})
    assert [fault["line"] for fault in told["named"]] == list(range(6, 19))
    assert told["named"][-1] == {"line": 18, "reason": "too-large", "message": f"job 21 {needs}"}


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (b"", ["t.swf: has no job"]),
        (b"; Version: 2.2\n\n", ["t.swf: has no job"]),
        (
            b"PQ\x03\x04\n\x00",
            [
                "t.swf: has no job that can be simulated",
                "t.swf:1: has 1 field, 18 are needed",
                "t.swf:2: has 1 field, 18 are needed",
                "t.swf: 2 of 2 lines are not simulated: 2 fewer than 18 fields",
            ],
        ),
        (
            b"PQ\x03\x04\n",
            [
                "t.swf: has no job that can be simulated",
                "t.swf:1: has 1 field, 18 are needed",
                "t.swf: 1 of 1 lines is not simulated: 1 fewer than 18 fields",
            ],
        ),
        (gzip.compress(TRACE.encode(), mtime=0)[:-9], ["t.swf: gzipped, but damaged or cut short"]),
        (b"\x1f\x8bnothing of the kind", ["t.swf: gzipped, but damaged or cut short"]),
        (bz2.compress(TRACE.encode())[:-9], ["t.swf: compressed by bzip2, but damaged or cut short"]),
        (b"BZhnothing of the kind", ["t.swf: compressed by bzip2, but damaged or cut short"]),
        (lzma.compress(TRACE.encode())[:-9], ["t.swf: compressed by xz, but damaged or cut short"]),
        (lzma.compress(TRACE.encode()) + b"junk", ["t.swf: compressed by xz, but damaged or cut short"]),
        (b"\xfd7zXZ\0nothing of the kind", ["t.swf: compressed by xz, but damaged or cut short"]),
        (hungry(), ["t.swf: compressed by xz, for more than 256 MiB of memory"]),
        (b"\x28\xb5\x2f\xfd...", [UNREAD.format("zstd -dc")]),
        (b"PK\x03\x04...", [UNREAD.format("unzip -p")]),
        (b"1" * (3 << 20), ["t.swf: line 1 is longer than 1 MiB: no SWF trace"]),
    ],
)
def test_a_file_without_a_job_is_refused_and_nothing_written(
    content: bytes, messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.swf").write_bytes(content)
    Path("o.csv").write_text("before")
    words = ["--workload", "t.swf", *CLUSTER, "--policy", "easy", "--jobs-out", "o.csv", "--json"]
    status, out, err = call(capsys, *words)
    assert (status, out) == (2, "")
    assert err.splitlines() == [f"rmsplugin simulate: {message}" for message in messages]
    assert Path("o.csv").read_text() == "before"
    assert sorted(os.listdir()) == ["o.csv", "t.swf"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none.swf", "none.swf: No such file or directory"),
        (".", ".: Is a directory"),
        ("t\x1b.swf", "t?.swf: No such file or directory"),
        ("t\x00", "t?: embedded null byte"),
        ("plain.gz", "plain.gz: not gzipped, though its name ends in .gz"),
        ("plain.xz", "plain.xz: not compressed by xz, though its name ends in .xz"),
        ("plain.bz2", "plain.bz2: not compressed by bzip2, though its name ends in .bz2"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(path: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plain.gz", "plain.xz", "plain.bz2"):
        Path(name).write_text(TRACE)
    found = call(capsys, "--workload", path, *CLUSTER, "--policy", "easy")
    assert found == (2, "", f"rmsplugin simulate: {message}\n")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_trace_is_known_by_its_bytes_and_may_be_of_several_parts(
    compress: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("plain.swf").write_text(TRACE)
    half = len(TRACE) // 2
    Path("t.swf").write_bytes(compress(TRACE[:half].encode()) + compress(TRACE[half:].encode()))
    words = [*CLUSTER, "--policy", "easy", "--jobs-out", "-"]
    expected = call(capsys, "--workload", "plain.swf", *words)
    assert expected[0] == 0
    assert call(capsys, "--workload", "t.swf", *words)[:2] == expected[:2]


@pytest.mark.parametrize("compress", [bz2.compress, lzma.compress])
def test_a_small_file_that_unpacks_to_more_than_any_trace_has_is_not_read(compress: Callable[[bytes], bytes]) -> None:
    Path("bomb.swf").write_bytes(compress(b"; comment\n" * (1 << 20)))
    assert Path("bomb.swf").stat().st_size < 1 << 16
    read = 0
    with (
        pytest.raises(WorkloadError, match=r"bomb\.swf: more than 4 MiB, which no trace has"),
        named("bomb.swf", WorkloadError),
    ):
        for block in blocks("bomb.swf", WorkloadError, "trace", limit_bytes=4 << 20):
            read += len(block)
            assert len(block) <= 1 << 20
    assert read <= 4 << 20


#: A chain: job 2 follows job 1 after 60 s, job 3 job 2 at once; job 4 names one that is not there.
CHAIN = """1 0 -1 100 1 -1 -1 1 120 -1 1 1 1 -1 1 -1 -1 -1
2 0 -1 100 1 -1 -1 1 120 -1 1 1 1 -1 1 -1 1 60
3 5 -1 10 1 -1 -1 1 120 -1 1 1 1 -1 1 -1 2 -1
4 7 -1 10 1 -1 -1 1 120 -1 1 1 1 -1 1 -1 99 60
"""


@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_a_job_is_submitted_after_the_one_that_it_names_and_its_users_think_time(
    policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("t.swf").write_text(CHAIN)
    words = ["--workload", "t.swf", *CLUSTER, "--policy", policy]
    status, out, err = call(capsys, *words, "--jobs-out", "-")
    assert status == 0
    assert [line.split(",")[:4] for line in out.splitlines()[1:]] == [
        ["1", "0", "0", "100"],
        ["2", "160", "160", "260"],
        ["3", "260", "260", "270"],
        ["4", "7", "7", "17"],
    ]
    assert err == (
        "rmsplugin simulate: warning: t.swf: 1 of 3 jobs that name a preceding job (field 17) are submitted at their "
        "submit times all the same: the one that they name is not simulated, or does not stand before them\n"
    )
    trace = answer_of(call(capsys, *words, "--json")[1])["trace"]
    assert (trace["naming_a_preceding_job"], trace["submitted_after_it"]) == (3, 2)
    assert "(fields 17, 18): 2\n" in call(capsys, *words)[1]


@pytest.mark.parametrize("policy", ["rjsp", "easy-preempt", "mixed", "slowdown"])
def test_policies_that_switch_keep_preceding_jobs_too(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.swf").write_text(CHAIN)
    words = ["--workload", "t.swf", *CLUSTER, "--memory-per-node", "4096", "--policy", policy, "--jobs-out", "-"]
    status, out, _ = call(capsys, *words)
    assert status == 0
    rows = {line.split(",")[0]: [float(value) for value in line.split(",")[1:4]] for line in out.splitlines()[1:]}
    assert list(rows) == ["1", "2", "3", "4"]
    assert rows["2"][0] == rows["1"][2] + 60 <= rows["2"][1]
    assert rows["3"][0] == rows["2"][2]


def test_more_than_any_trace_has_is_not_read() -> None:
    Path("t.swf.gz").write_bytes(gzip.compress((b";" + b" " * 9998 + b"\n") * 400))
    with pytest.raises(WorkloadError, match=r"^t\.swf\.gz: more than 2 MiB, which no trace has$"):
        trace_file.read("t.swf.gz", limit_bytes=2 << 20)


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    found = call(capsys, "--workload", "-", *CLUSTER, "--policy", "easy")
    assert found == (2, "", "rmsplugin simulate: standard input: is closed\n")


# -- usage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "sjf"], "argument --policy: there is no policy 'sjf'; there are fcfs"),
        (["--policy", "rjsp"], "rjsp needs --memory-per-node: how long a context switch takes depends on memory"),
        (["--cpus-per-vm", "3"], "--cpus-per-vm is more than --cpus-per-node"),
        (["--failure-rate", "1"], "argument --failure-rate: '1' is not a number from 0 to 0.9"),
        (["--events", "-"], "--events needs a file"),
        (["--events", "o", "--jobs-out", "o"], "--events and --jobs-out are the same file"),
        (["--events", "t.swf"], "--events would replace the trace of --workload"),
        (["--nodes", "0"], "argument --nodes: has to be at least 1"),
        (["--cpus-per-node", "2.5"], "argument --cpus-per-node: '2.5' is not a whole number from 0 on"),
        (["--memory-per-vm", "5"], "--memory-per-vm is looked at only with --memory-per-node"),
        (["--jobs-out", ""], "argument --jobs-out: the name of a file is empty"),
        (["--jobs-out", "-", "--json"], "--jobs-out - and --json both print on standard output"),
        (["--platform", "metal"], "argument --platform: invalid choice: 'metal' (choose from"),
        (["--platform", "native", "--pause-limit", "60"], "--pause-limit is not for --platform native"),
        (["--platform", "native", "--memory", "observed"], "--memory observed is not for"),
        (["--jobs-out", "./t.swf"], "--jobs-out would replace the trace of --workload"),
        (["--jobs-out", "o", "--events", "./o"], "--events and --jobs-out are the same file"),
        (["--events", "o", "--html", "../{here}/o"], "--events and --html are the same file"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(here=Path.cwd().name) for word in words]
    status, out, err = call(capsys, "--workload", "t.swf", *CLUSTER, "--policy", "easy", *given)
    assert (status, out) == (2, "")
    assert message in err
    assert Path("t.swf").read_text() == TRACE
    assert not Path("o").exists()


@pytest.mark.parametrize("output", ["--jobs-out", "--events", "--html"])
@pytest.mark.parametrize("option", ["activity", "durations", "energy", "rules", "topology", "wishes"])
def test_no_output_replaces_a_file_that_is_read(option: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("given").write_text("what somebody wrote")
    Path("link").symlink_to("given")
    memory = ("--memory-per-node", "4096", *(("--wishes", "w") if option == "topology" else ()))
    words = ("--policy", "easy", *memory, f"--{option}", "given", output, "link")
    status, out, err = call(capsys, "--workload", "t.swf", *CLUSTER, *words)
    assert (status, out) == (2, "") and f"{output} would replace the file of --{option}" in err
    assert Path("given").read_text() == "what somebody wrote"


def test_no_output_replaces_what_standard_input_is() -> None:
    words = ["simulate", "--workload", "-", *CLUSTER, "--policy", "easy", "--jobs-out", "t.swf"]
    with open("t.swf", "rb") as trace:
        done = subprocess.run([*PROGRAM, *words], stdin=trace, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--jobs-out would replace the trace of --workload" in done.stderr
    assert Path("t.swf").read_text() == TRACE


def test_who_makes_way_has_left_before_a_job_starts_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Job 3 runs as long as job 1 leaves job 2 one node of two, and makes way for it then."""
    jobs = (
        line(job_id=number, submit_s=0, run_s=run_s, allocated_processors=processors, requested_s=run_s)
        for number, run_s, processors in ((1, 1000, 1), (2, 500, 2), (3, 5000, 1))
    )
    Path("t.swf").write_text("\n".join(("; Version: 2.2", *jobs, "")))

    def first(event: str, job: int) -> float:
        told = map(json.loads, Path("events.json").read_text().splitlines())
        return next(float(each["time"]) for each in told if (each["event"], each["job"]) == (event, job))

    nodes = ("--workload", "t.swf", "--nodes", "2", "--cpus-per-node", "1", "--memory-per-node", "4096")
    for words in ((), ("--cpu-in-plan",)):
        more = ("--memory-per-vm", "512", "--policy", "rjsp", "--events", "events.json", *words)
        assert call(capsys, *nodes, *more)[0] == 0
        assert (first("start", 2) >= first("sleep", 3)) is bool(words)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = call(capsys, "--workload", "none", *CLUSTER, "--policy", "easy", "--jobs-out", "no/o.csv")
    assert (status, out) == (1, "")
    assert err.startswith("rmsplugin simulate: --jobs-out: there is no directory ")


def test_memory_that_processors_cannot_stand_for_is_looked_at_vm_by_vm(capsys: pytest.CaptureFixture[str]) -> None:
    """A node hosts one VM of 300 MiB and no other: job 4 waits until job 1 has left the second one."""
    with open("t.swf", "a") as file:
        file.write(line(job_id=4, submit_s=30, run_s=5, allocated_processors=1, requested_memory_kib=300 << 10) + "\n")
    found = simulated(capsys, "--memory-per-node", "512", "--jobs-out", "o.csv")
    assert Path("o.csv").read_text().startswith(EASY)
    assert found["context_switches"] == {"suspend": 0, "resume": 0, "migrate": 0, "pause": 0, "unpause": 0}
    assert Path("o.csv").read_text().splitlines()[4].startswith("4,30,100,105,1,")


# -- on a terminal -------------------------------------------------------------------------------------------------


def on_a_terminal(words: list[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the program with a terminal as its standard error; the other end of that."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [*PROGRAM, "simulate", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a shell may have had it ignored
    )
    os.close(theirs)
    return program, ours


def test_a_terminal_shows_how_far_it_is_and_nothing_stays() -> None:
    program, terminal = on_a_terminal(["--workload", "t.swf", *CLUSTER, "--policy", "easy", "--jobs-out", "-"])
    out, _ = program.communicate()
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # so a terminal ends
            break
        shown += part
    os.close(terminal)
    assert (program.returncode, out.decode()) == (0, EASY)
    assert b"reading t.swf" in shown
    assert b"\x1b[2K" in shown, "the line is wiped"


def test_an_interrupt_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    words = ["--workload", "-", *CLUSTER, "--policy", "easy", "--jobs-out", "o.csv"]
    program, terminal = on_a_terminal(words)
    shown = b""
    while b"reading standard input" not in shown:
        shown += os.read(terminal, 65536)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=PATIENCE_S)
    os.close(terminal)
    assert (program.returncode, out) == (130, b"")
    assert os.listdir() == ["t.swf"]


def test_the_input_is_read_as_it_comes() -> None:
    told: list[float] = []
    Path("t.swf").write_bytes((b";" + b" " * 9998 + b"\n") * 250 + TRACE.encode())
    found = trace_file.read("t.swf", told.append)
    assert len(found.jobs) == 3
    assert len(told) > 2 and told == sorted(told) and told[-1] == 1
