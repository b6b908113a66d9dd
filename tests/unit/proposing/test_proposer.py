"""The proposing process: whatever it does costs one answer, and there is another one by First Fit Decreasing."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

import rmsplugin
from rmsplugin.errors import UnavailableError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, VJob
from rmsplugin.model.resources import Resources
from rmsplugin.proposer import wire
from rmsplugin.proposer.process import Process, ProcessFailedError, ProposerLimits
from rmsplugin.proposer.proposer import Proposed, Proposer
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal

SOURCE = Configuration(
    (Node("n1", Resources(2, 2048)),), (VJob("a", (VM("a-0", Resources(1, 1024)),)),), {"a-0": WAITING}
)
RJSP = ProposalParameters("rjsp")
LIMITS = ProposerLimits(deadline_s=30, fallback_s=30, start_s=60, memory_mib=512)
SHORT = replace(LIMITS, deadline_s=0.5)


def big(vms: int) -> Configuration:
    """A configuration of which a request fills a pipe many times."""
    vjobs = tuple(VJob(f"v{i}", (VM(f"v{i}-0", Resources(1, 1024)),)) for i in range(vms))
    return Configuration(SOURCE.nodes, vjobs, {f"v{i}-0": WAITING for i in range(vms)})


@contextmanager
def proposer(bad: str, limits: ProposerLimits = LIMITS) -> Iterator[Proposer]:
    with Proposer(limits, f"unit.bad_proposers:{bad}") as made:
        yield made


def pid_in(sentence: str) -> int:
    return int(sentence.rstrip(".").rpartition(" ")[2])


def fell_back(proposed: Proposed) -> str:
    """Why; and it is an answer by First Fit Decreasing that says so."""
    assert isinstance(proposed.found, Proposal)
    assert proposed.found.fallback == proposed.failure
    start = f"{proposed.failure}; First Fit Decreasing alone: repair by "
    assert proposed.failure.startswith("the proposer ") and proposed.found.sentence.startswith(start)
    return proposed.failure.removeprefix("the proposer ")


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and nobody has asked about does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: object, patience_s: float = PATIENCE_S) -> bool:
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


# -- as it should be -------------------------------------------------------------------------------------------------


def test_the_answer_is_that_of_the_pure_function_and_passes_the_check() -> None:
    with Proposer(replace(LIMITS, memory_mib=2048)) as made:
        proposed = made.propose(SOURCE, RJSP)
        assert made._process is not None
        threads = f"/proc/{made._process.pid}/task"
        # After a join the kernel may still bury the thread; a library's thread would be there for ever.
        assert until(lambda: len(os.listdir(threads)) == 1), "a library has threads, and memory for each, on every CPU"
    from rmsplugin.proposing.propose import propose

    assert proposed.found == propose(SOURCE, RJSP)
    assert isinstance(proposed.found, Proposal) and check(SOURCE, proposed.found) == []
    assert list(proposed.seconds) == ["decision", "placement", "planning"] and proposed.failure == ""
    assert proposed.peak_memory_mib > 10


def test_each_answer_tells_the_seconds_that_solvers_took_for_it() -> None:
    with proposer("solves") as made:
        assert made.propose(SOURCE, RJSP).solver_s >= 0.2
        assert made.propose(SOURCE, RJSP.without_solver()).solver_s == 0.0


def test_one_process_answers_again_and_again_however_large_the_request() -> None:
    with proposer("sleeps") as made:
        ffd = RJSP.without_solver()
        found = [made.propose(big(size), ffd).found for size in (1, 3000, 1)]
    assert len({each.sentence for each in found}) == 1


def test_it_outlives_the_thread_that_started_it() -> None:
    """PR_SET_PDEATHSIG would kill it here."""
    with proposer("sleeps") as made:
        thread = threading.Thread(target=made.warm_up)
        thread.start()
        thread.join()
        first = made.propose(SOURCE, RJSP.without_solver())
        time.sleep(0.2)
        assert made.propose(SOURCE, RJSP.without_solver()).found.sentence == first.found.sentence


def test_the_caller_loads_no_solver() -> None:
    code = "import sys, rmsplugin.proposer.proposer, rmsplugin.proposing.check as c; print('ortools' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_it_prints_is_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    with proposer("prints") as made:
        proposed = made.propose(SOURCE, RJSP)
    assert proposed.failure == "" and proposed.found.sentence.startswith("None by")
    assert capfd.readouterr() == ("", "")


def test_it_is_nice_and_the_first_to_go_where_memory_runs_out() -> None:
    with proposer("sleeps", replace(LIMITS, nice=7)) as made:
        pid = pid_in(made.propose(SOURCE, RJSP.without_solver()).found.sentence)
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
        assert "Max core file size        0 " in Path(f"/proc/{pid}/limits").read_text()


_TIGHT = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))
from unit.proposing import test_proposer as t
with t.proposer("sleeps") as made:
    print(repr(made.propose(t.SOURCE, t.RJSP.without_solver()).failure))
    limits = t.Path(f"/proc/{made._process.pid}/limits").read_text()
    print(next(line for line in limits.splitlines() if line.startswith("Max data")))
"""


def test_under_an_engine_that_may_have_less_it_has_no_more() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", _TIGHT], capture_output=True, text=True, check=True, env=environment)
    failure, limit = done.stdout.splitlines()
    assert failure == "''" and limit.split()[3:5] == [str(400 << 20)] * 2


@pytest.mark.parametrize(
    "field, value", [("deadline_s", 0), ("fallback_s", -1), ("start_s", 0), ("memory_mib", 0), ("nice", 20)]
)
def test_limits_that_nothing_can_keep_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be .* not {value}$"):
        ProposerLimits(**{field: value})  # type: ignore[arg-type]


# -- as it should not be ---------------------------------------------------------------------------------------------


def test_one_that_hangs_in_c_is_killed_at_the_deadline() -> None:
    with proposer("hangs_in_c", SHORT) as made:
        made.warm_up()
        first = made._process
        assert first is not None
        why = fell_back(made.propose(SOURCE, RJSP))
        assert why == "had no answer within 0.5 s, and was killed (searching)"
        assert not is_there(first.pid)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("crashes", "was killed by SIGSEGV"),
        ("aborts", "was killed by SIGABRT (F0000 solver.cc:17] Check failed: a <= b (2 vs. 1) [31m)"),
        ("eats_in_python", "failed: it ran out of memory (512 MiB are allowed)"),
        ("eats_in_c", "was killed by SIGABRT (terminate called after throwing an instance of 'std::bad_alloc')"),
        ("writes_garbage", "answered with garbage (no frame begins so)"),
        ("writes_half_a_frame", "ended with status 0"),
        ("leaves", "ended with status 0"),
        ("fails", "failed: internal error: IndexError: list index out of range"),
    ],
)
def test_one_that_fails_costs_its_answer_and_the_next_is_right(bad: str, why: str) -> None:
    with proposer(bad) as made:
        assert fell_back(made.propose(SOURCE, RJSP)) == why
        again = made.propose(SOURCE, RJSP.without_solver())
        assert again.failure == "" and isinstance(again.found, Proposal)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("improves_and_hangs", "had no answer within 4 s, and was killed (searching)"),
        ("improves_and_crashes", "was killed by SIGSEGV"),
        ("improves_and_eats", "failed: it ran out of memory (512 MiB are allowed)"),
        ("improves_and_fails", "failed: internal error: IndexError: list index out of range"),
    ],
)
def test_the_best_that_was_found_before_a_failure_is_used(bad: str, why: str) -> None:
    with proposer(bad, replace(LIMITS, deadline_s=4)) as made:
        made.warm_up()
        proposed = made.propose(SOURCE, RJSP)
        assert proposed.failure == f"the proposer {why}"
        assert isinstance(proposed.found, Proposal) and proposed.found.fallback == proposed.failure
        assert proposed.found.sentence == f"{proposed.failure}; the best that it had found: best"


def test_what_was_found_on_the_way_is_not_taken_for_the_answer_nor_for_that_of_the_next_request() -> None:
    with proposer("improves") as made:
        for _ in range(2):
            proposed = made.propose(SOURCE, RJSP)
            assert proposed.failure == "" and proposed.found.sentence.startswith("None by")
        assert made._process is not None
        os.kill(made._process.pid, signal.SIGSTOP)
        made._limits = SHORT
        assert fell_back(made.propose(SOURCE, RJSP)) == "had no answer within 0.5 s, and was killed"


def test_what_it_said_before_is_not_told_with_a_later_failure() -> None:
    with proposer("warns_once") as made:
        assert made.propose(SOURCE, RJSP).failure == ""
        assert fell_back(made.propose(SOURCE, RJSP)) == "ended with status 0"


def test_one_that_drowns_us_in_diagnostics_is_killed_at_the_deadline() -> None:
    with proposer("drowns_in_diagnostics", SHORT) as made:
        assert fell_back(made.propose(SOURCE, RJSP)).startswith("had no answer within 0.5 s, and was killed (xxx")


def test_one_that_does_not_read_its_request_is_killed_at_the_deadline() -> None:
    with proposer("sleeps", SHORT) as made:
        made.propose(SOURCE, RJSP.without_solver())
        assert made._process is not None
        stopped = made._process.pid
        os.kill(stopped, signal.SIGSTOP)
        assert fell_back(made.propose(big(3000), RJSP)) == "had no answer within 0.5 s, and was killed"
        assert not is_there(stopped)


def test_one_that_was_killed_while_nobody_asked_is_replaced_and_costs_no_answer() -> None:
    with proposer("sleeps") as made:
        before = pid_in(made.propose(SOURCE, RJSP.without_solver()).found.sentence)
        os.kill(before, signal.SIGKILL)
        assert until(lambda: not is_there(before))
        proposed = made.propose(SOURCE, RJSP.without_solver())
        assert proposed.failure == "" and pid_in(proposed.found.sentence) != before


def test_one_that_is_killed_from_outside_while_it_searches() -> None:
    with proposer("sleeps") as made:
        made.warm_up()
        assert made._process is not None
        threading.Timer(0.5, os.kill, (made._process.pid, signal.SIGKILL)).start()
        assert fell_back(made.propose(SOURCE, RJSP)) == "was killed by SIGKILL"


def test_where_ffd_fails_as_well_there_is_no_proposal() -> None:
    with proposer("always_crashes") as made:
        proposed = made.propose(SOURCE, RJSP)
    assert isinstance(proposed.found, NoProposal) and proposed.found.missing is Missing.ANSWER
    assert proposed.found.sentence == (
        "no answer: the proposer was killed by SIGSEGV; asked for First Fit Decreasing alone, it was killed by SIGSEGV"
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("unit.no_such_module:propose", "ended with status 1 (ModuleNotFoundError: No module named"),
        ("unit.bad_proposers:no_such_name", "ended with status 1 (AttributeError: "),
    ],
)
def test_one_that_cannot_load_what_it_needs_says_so(entry: str, why: str) -> None:
    with Proposer(LIMITS, entry) as made:
        found = made.propose(SOURCE, RJSP).found
    assert isinstance(found, NoProposal) and found.explanation.startswith(f"the proposer {why}")


def test_one_that_is_not_ready_in_time() -> None:
    with Proposer(replace(LIMITS, start_s=0.001)) as made:
        found = made.propose(SOURCE, RJSP).found
    assert "was not ready within 0.001 s of its start, and was killed" in found.sentence


def test_one_of_another_release_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rmsplugin, "__version__", "0.0.1")
    with proposer("sleeps") as made:
        found = made.propose(SOURCE, RJSP).found
    assert "is of release" in found.sentence and "the engine of 0.0.1: restart the engine" in found.sentence


def test_one_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python3")
    with proposer("sleeps") as made:
        made.warm_up()
        found = made.propose(SOURCE, RJSP).found
    assert "could not be started: No such file or directory" in found.sentence


def test_one_that_holds_on_to_memory_is_replaced_before_that_matters() -> None:
    with proposer("holds_on", replace(LIMITS, memory_mib=400)) as made:
        pids = [pid_in(made.propose(SOURCE, RJSP).found.sentence) for _ in range(3)]
    assert len(set(pids)) == 3


# -- the end ---------------------------------------------------------------------------------------------------------


def test_closing_ends_a_request_at_once_and_there_are_no_more() -> None:
    with proposer("hangs_in_c", replace(LIMITS, deadline_s=600)) as made:
        made.warm_up()
        threading.Timer(0.5, made.close).start()
        with pytest.raises(UnavailableError, match="was closed meanwhile"):
            made.propose(SOURCE, RJSP)
        with pytest.raises(UnavailableError, match="is closed"):
            made.propose(SOURCE, RJSP)
        made.warm_up()
        assert made._process is None


def test_nothing_is_left_of_those_that_failed() -> None:
    def held() -> set[str]:
        return {entry.name for entry in Path("/proc/self/fd").iterdir()}

    def children() -> list[str]:
        return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()

    before, others = held(), children()
    with proposer("crashes") as made:
        for _ in range(2):
            made.propose(SOURCE, RJSP)
    assert (held(), children()) == (before, others)


_ENGINE = """
import sys, threading
from rmsplugin.proposer.proposer import Proposer
from unit.proposing import test_proposer as t

made = Proposer(t.replace(t.LIMITS, deadline_s=600), "unit.bad_proposers:" + sys.argv[1])
made.warm_up()
print(made._process.pid, flush=True)
if sys.argv[2] == "asked":
    made.propose(t.SOURCE, t.RJSP)
made.propose(t.SOURCE, t.RJSP.without_solver())
print("idle", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("when", ["asked", "idle"])
def test_it_does_not_outlive_an_engine_that_was_killed(when: str) -> None:
    """It hangs in C code, holds the interpreter and blocks all signals; or it waits."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    engine = subprocess.Popen(
        [sys.executable, "-c", _ENGINE, "hangs_in_c", when], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert engine.stdout is not None
    pid = int(engine.stdout.readline())
    if when == "idle":
        assert engine.stdout.readline() == "idle\n"
    else:  # while it hangs, it sleeps in nanosleep with all signals blocked

        def hangs() -> bool:
            status = Path(f"/proc/{pid}/status").read_text()
            return "SigBlk:\t0000000000000000" not in status and "(sleeping)" in status

        assert until(hangs)
    assert is_there(pid)
    engine.kill()
    engine.wait()
    engine.stdout.close()
    assert until(lambda: not is_there(pid))


def test_a_process_that_was_ended_is_not_asked() -> None:
    process = Process(LIMITS, "unit.bad_proposers:sleeps")
    request = wire.encode(wire.Request(SOURCE, RJSP.without_solver()))
    assert isinstance(process.ask(request, 30).found, Proposal)
    process.end()
    process.end()
    assert not process.is_usable
    with pytest.raises(ProcessFailedError, match="has been ended"):
        process.ask(request, 30)


# -- the wire --------------------------------------------------------------------------------------------------------


MESSAGES = [
    wire.Ready("1.0"),
    wire.Failure("x" * 3000, over=True),
    wire.Answer(NoProposal(Missing.PLAN, ""), {}, 0.5, 1, 2),
]


@given(sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=20))
def test_messages_come_through_in_any_pieces(sizes: list[int]) -> None:
    data = b"".join(wire.encode(message) for message in MESSAGES)
    decoder, found = wire.Decoder(), []
    for size in [*sizes, len(data)]:
        decoder.feed(data[:size])
        data = data[size:]
        while (message := decoder.message()) is not None:
            found.append(message)
    assert found == MESSAGES and decoder.is_empty


@given(place=st.integers(0, len(wire.encode(MESSAGES[1])) - 1), bit=st.integers(0, 7))
def test_a_message_of_which_a_bit_was_changed_is_garbage_or_never_whole(place: int, bit: int) -> None:
    data = bytearray(wire.encode(MESSAGES[1]))
    data[place] ^= 1 << bit
    decoder = wire.Decoder()
    decoder.feed(bytes(data))
    try:
        assert decoder.message() is None
    except wire.GarbageError:
        return


def test_a_stream_that_ends_in_a_frame_is_garbage_and_one_that_ends_after_it_is_over() -> None:
    data = wire.encode(MESSAGES[0])
    pieces = iter([data, b""])
    decoder = wire.Decoder()
    assert wire.receive(decoder, lambda _: next(pieces)) == MESSAGES[0]
    assert wire.receive(decoder, lambda _: next(pieces)) is None
    cut = iter([data[:-1], b""])
    with pytest.raises(wire.GarbageError, match="ends in a frame"):
        wire.receive(wire.Decoder(), lambda _: next(cut))


def test_no_garbage_is_collected_while_a_message_is_read_or_written() -> None:
    """A collection keeps all other threads waiting, the longer the more there is."""
    collections: list[str] = []

    def note(phase: str, _: object) -> None:
        collections.append(phase)

    source = big(3000)
    gc.callbacks.append(note)
    try:
        data = wire.encode(wire.Request(source, RJSP))
        decoder = wire.Decoder()
        decoder.feed(data)
        message = decoder.message()
        seen = list(collections)
    finally:
        gc.callbacks.remove(note)
    assert isinstance(message, wire.Request) and message.configuration == source
    assert seen.count("start") <= 2, "one after each of the two, at most"
    assert gc.isenabled()
