"""contrib/run-campaign slurm-suite: which sources it takes, how endings are read, what differs, the table."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from e2e.cluster import Cluster
from e2e.slurm_suite import page
from e2e.slurm_suite.kept import keep, kept
from e2e.slurm_suite.limited import run_limited
from e2e.slurm_suite.results import Comparison, Ending, Kind, Run, compare, complaint, ending_of, refusal, refusals_in
from e2e.slurm_suite.running import run_both
from e2e.slurm_suite.sources import Sources, SourcesError, check_machine, choose, read_sources

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = str(ROOT / "contrib" / "run-campaign")

LUA = """
-- "salloc and srun cannot start VMs in a comment of some length"
    refuse("a VM of %s MiB is too small for the image %s (the least is %s): ask for more --mem", a,
      b)
    refuse("salloc and srun cannot start VMs: submit a script with sbatch; `rmsplugin ssh JOBID` then"
      .. " gives a shell in it")
    return string.match(x, "^@(.*/)")
"""
PATTERNS = refusals_in(LUA)
NO_SRUN = (
    "salloc and srun cannot start VMs: submit a script with sbatch; `rmsplugin ssh JOBID` then gives a shell in it"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What of a checkout of Slurm's sources is looked at."""
    suite = tmp_path / "testsuite" / "expect"
    suite.mkdir(parents=True)
    (tmp_path / "META").write_text("  Name:\t\tslurm\n  Version:\t22.05.8\n  Release:\t1\n")
    for name in ("globals", "test17.10", "test17.9", "test1.1", "test1.29.prog.c", "inc12.3.1", "test2.1"):
        (suite / name).touch()
    (suite / "test7.20_scripts").mkdir()
    return tmp_path


def test_a_checkouts_tests_come_by_their_numbers_without_what_belongs_to_them(checkout: Path) -> None:
    sources = read_sources(checkout)
    assert (sources.version, sources.tests) == ("22.05.8", ("1.1", "2.1", "17.9", "17.10"))


def test_tests_are_chosen_by_number_or_by_group_and_run_in_the_order_in_which_they_are_named() -> None:
    tests = ("1.1", "1.10", "17.1", "17.10")
    assert choose("17.*,1.1", tests) == ["17.1", "17.10", "1.1"]
    assert choose("test1.10 1.1, 1.1", tests) == ["1.10", "1.1"]


@pytest.mark.parametrize("asked", ["", "17", "*.1", "17.1*", "17.2", "2.*", "../1.1"])
def test_what_names_no_tests_is_refused(asked: str) -> None:
    with pytest.raises(SourcesError):
        choose(asked, ("17.1",))


@pytest.mark.parametrize("missing", ["expect", "gcc"])
def test_a_program_that_is_not_here_is_named_with_its_package(checkout: Path, missing: str) -> None:
    with pytest.raises(SourcesError, match=f"packages {missing}: apt-get"):
        check_machine(read_sources(checkout), "22.05.8", lambda name: None if name == missing else name)


@pytest.mark.parametrize(("installed", "told"), [("24.11.5", "24.11.5 is installed"), (None, "no Slurm here")])
def test_slurm_of_another_release_is_refused(checkout: Path, installed: str | None, told: str) -> None:
    with pytest.raises(SourcesError, match=told):
        check_machine(read_sources(checkout), installed, str)


def test_slurm_of_another_patch_level_is_taken(checkout: Path) -> None:
    check_machine(Sources(checkout, "22.05.8", ("1.1",)), "22.05.3", str)


@pytest.mark.parametrize("absent", ["META", "testsuite/expect/globals"])
def test_the_campaign_refuses_what_is_no_checkout(checkout: Path, absent: str) -> None:
    (checkout / absent).unlink()
    done = subprocess.run([PROGRAM, "slurm-suite", "--sources", str(checkout)], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"is no checkout of Slurm's sources: it has no {absent}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("code", "ending"),
    [(0, Ending.PASSED), (1, Ending.FAILED), (127, Ending.FAILED), (255, Ending.SKIPPED), (-9, Ending.FAILED)],
)
def test_an_exit_code_says_how_a_test_ended(code: int, ending: Ending) -> None:
    assert ending_of(code) is ending


def test_a_test_that_was_ended_did_not_end_in_time() -> None:
    assert ending_of(None) is Ending.LATE


def test_sentences_of_refusals_are_read_from_the_lua_files() -> None:
    said = "a VM of 16 MiB is too small for the image default (the least is 96): ask for more --mem"
    assert refusal(f"x\r\nsbatch: error: {said}\r\ny\r\n", PATTERNS) == said
    assert refusal(f"srun: error: {NO_SRUN}\r\n", PATTERNS) == NO_SRUN
    assert refusal("srun: error: Unable to allocate resources", PATTERNS) == ""
    assert len(PATTERNS) == 2


def test_what_the_programs_of_guests_refuse_is_a_refusal() -> None:
    said = "--pty is not possible inside a vjob: use rmsplugin ssh"
    assert refusal(f"a\nsrun: error: {said}\n", []) == said
    logged = f"a\n[2026-11-26 11:12:47.320] Debug   \tOutput: srun: error: {said}\nb"
    assert refusal(logged, []) == said, "without the log's own words"


def test_the_first_refusal_of_a_log_is_told() -> None:
    small = "a VM of 1 MiB is too small for the image x (the least is 2): ask for more --mem"
    assert refusal(f"{NO_SRUN}\n{small}\n", PATTERNS) == NO_SRUN


def test_all_refusals_of_the_plugin_are_found() -> None:
    patterns = [each for path in (ROOT / "lua").glob("*.lua") for each in refusals_in(path.read_text())]
    for said in (
        NO_SRUN + ", and srun inside the script starts tasks in its VMs",
        "heterogeneous jobs cannot run in VMs: submit one job for each part, and tie them with --dependency",
        "--contiguous is about neighbouring nodes, and VMs move: leave it out, or name nodes with --nodelist",
        "3 VMs are more than the 2 that a job can have here: ask for fewer --nodes, or fewer tasks with more "
        "--cpus-per-task",
    ):
        assert refusal(f"sbatch: error: {said}\n", patterns) == said


PASSED, FAILED, SKIPPED, LATE, NOT_RUN = (Run(ending) for ending in Ending)
REFUSED = Run(Ending.FAILED, f"srun: error: {NO_SRUN}\n")


@pytest.mark.parametrize(
    ("native", "vjob", "kind"),
    [
        (PASSED, PASSED, Kind.SAME),
        (PASSED, FAILED, Kind.DIFFERS),
        (PASSED, LATE, Kind.DIFFERS),
        (PASSED, REFUSED, Kind.REFUSED),
        (PASSED, Run(Ending.LATE, REFUSED.log), Kind.REFUSED),
        (PASSED, SKIPPED, Kind.NOT_COMPARED),
        (FAILED, FAILED, Kind.NOT_COMPARED),
        (FAILED, PASSED, Kind.NOT_COMPARED),
        (SKIPPED, PASSED, Kind.NOT_COMPARED),
        (LATE, REFUSED, Kind.NOT_COMPARED),
        (FAILED, NOT_RUN, Kind.NOT_COMPARED),
    ],
)
def test_two_endings_mean_one_thing(native: Run, vjob: Run, kind: Kind) -> None:
    assert compare("1.1", native, vjob, PATTERNS).kind is kind


def test_a_refusal_that_a_test_meets_natively_too_explains_nothing() -> None:
    native = Run(Ending.PASSED, REFUSED.log)
    assert compare("1.1", native, REFUSED, PATTERNS).kind is Kind.DIFFERS


def test_a_test_that_passes_is_no_refused_one_whatever_it_met() -> None:
    assert compare("1.1", PASSED, Run(Ending.PASSED, REFUSED.log), PATTERNS).kind is Kind.SAME


def test_the_worst_complaint_of_a_log_is_told() -> None:
    stamp = "[2026-11-26 01:00:45.046]"
    fatal = f"{stamp} Fatal   It ended (fail@globals:1)"
    subtest = "  Subtest  3 failed  : it was 1"
    warning = f"{stamp} Warning It was late"
    assert complaint(Run(Ending.FAILED, f"{fatal}\r\n{subtest}\r\n{warning}\r\n")) == "It ended (fail@globals:1)"
    assert complaint(Run(Ending.FAILED, f"{warning}\n{subtest}\n")) == "Subtest 3 failed : it was 1"
    assert complaint(Run(Ending.SKIPPED, f"{warning}\n")) == "It was late"
    assert complaint(PASSED) == ""


def _row(test: str, kind: Kind = Kind.SAME, refused: str = "", date: str = "2026-01-01") -> str:
    return page.row(Comparison(test, PASSED, PASSED, kind, refused), {"1.2": "A reason."}, "22.05.8", date)


def test_a_row_says_why_a_test_is_refused_or_differs() -> None:
    assert "| srun \\| 'x' |" in _row("1.1", Kind.REFUSED, "srun | `x`")
    assert "| differs | A reason. |" in _row("1.2", Kind.DIFFERS)
    assert "| differs | not explained yet |" in _row("1.3", Kind.DIFFERS)


def test_the_table_gets_the_rows_of_a_run_and_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"before\n\n{page.BEGIN}\n\n{page.END}\n\nafter\n")
    page.write([_row("1.10"), _row("17.1"), _row("1.9")], path)
    page.write([_row("17.1", date="2026-02-02")], path)
    lines = path.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert rows == [_row("1.9"), _row("1.10"), _row("17.1", date="2026-02-02")]
    assert (lines[0], lines[-1]) == ("before", "after")


def test_what_ended_before_an_interruption_is_kept_and_the_rest_is_run_again(
    tmp_path: Path,
) -> None:
    for test in ("1.1", "1.2"):
        (tmp_path / f"test{test}.log").write_text(f"said by {test}")
    keep(tmp_path, "1.1", Run(Ending.LATE))
    assert kept(tmp_path, "1.1") == Run(Ending.LATE, "said by 1.1")
    assert kept(tmp_path, "1.2") is None
    (tmp_path / "test1.2.ending").write_text("pas")
    assert kept(tmp_path, "1.2") is None


class _Cluster:
    """What a campaign asks of a minicluster; tests end with the codes that a partition has for them."""

    def __init__(self, home: Path, codes: dict[str, dict[str, int]]) -> None:
        self._home, self._codes = home, codes
        self.ran: list[str] = []

    def home(self, _user: str) -> Path:
        return self._home

    def entering(self, *argv: str, user: str) -> list[str]:
        found = re.search(r"slurm-suite/(\w+)/.* expect test(\S+)$", argv[-1])
        assert found and user == "alice"
        self.ran.append(" ".join(found.groups()))
        return ["sh", "-c", f"echo ran {found[2]}; exit {self._codes[found[1]][found[2]]}"]

    def ok(self, *_argv: str) -> str:
        return ""

    def run(self, *_argv: str) -> None:
        pass

    def unable_nodes(self) -> list[str]:
        return []

    def wait(self, _what: str, until: Callable[[], object], *_more: object) -> None:
        assert until()


def test_a_campaign_goes_on_with_what_had_not_ended_and_leaves_out_what_cannot_be_compared(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "chown", lambda *_args, **_more: None)
    codes = {"plain": {"1.1": 0, "2.1": 1, "17.9": 0}, "vjob": {"1.1": 1, "17.9": 0}}
    cluster, sources, logs = _Cluster(tmp_path / "home", codes), read_sources(checkout), tmp_path / "logs"
    both = run_both(cast(Cluster, cluster), sources, ["17.9", "1.1", "2.1"], 60, logs)
    assert cluster.ran == ["plain 17.9", "plain 1.1", "plain 2.1", "vjob 17.9", "vjob 1.1"]
    endings = [[run.ending for run in each.values()] for each in both]
    assert endings == [[Ending.PASSED, Ending.PASSED, Ending.FAILED], [Ending.PASSED, Ending.FAILED, Ending.NOT_RUN]]
    (logs / "vjob" / "test17.9.ending").unlink()
    cluster.ran.clear()
    assert run_both(cast(Cluster, cluster), sources, ["17.9", "1.1", "2.1"], 60, logs) == both
    assert cluster.ran == ["vjob 17.9"]


def test_a_program_within_its_time_gives_its_exit_code_and_its_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run_limited(["sh", "-c", "echo out; echo err >&2; exit 7"], 60, log) == 7
    assert log.read_text() == "out\nerr\n"


def test_what_takes_too_long_is_ended_with_all_that_it_started_in_sessions_of_their_own_too(tmp_path: Path) -> None:
    fifo, log = tmp_path / "fifo", tmp_path / "log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    # The one in a session of its own goes for SIGKILL alone.
    script = f"exec 3>{fifo}; setsid sh -c \"trap '' TERM HUP; while :; do sleep 1000; done\" & wait"
    assert run_limited(["sh", "-c", script], 1.5, log) is None
    deadline = time.monotonic() + 60
    while _somebody_writes(reader):
        assert time.monotonic() < deadline, "something that was started is still there"
        time.sleep(0.05)
    os.close(reader)


def _somebody_writes(reader: int) -> bool:
    try:
        return os.read(reader, 1) != b""
    except BlockingIOError:
        return True
