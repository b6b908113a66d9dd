"""What counts as the engine's own deafness, until when, and what is said of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import make_settings
from unit.munged import Munged

from rmsplugin.client import LOOK
from rmsplugin.engine.context.hearing import TEST_LATE_S, TEST_PERIOD_S, Hearing
from rmsplugin.engine.serve import ears
from rmsplugin.engine.serve.ears import Ears, Way, ways_in

T = 1000.0


def after_tests(*moments: float) -> Hearing:
    hearing = Hearing()
    for moment in moments:
        hearing.test_begins(moment)
        hearing.test_ends(moment + 0.01)
    return hearing


def test_an_engine_that_nobody_tests_and_that_misses_nothing_hears() -> None:
    assert Hearing().deaf_until(T) == 0.0
    assert Hearing().problem(T) == ""


def test_tests_that_end_well_and_in_time_say_nothing() -> None:
    hearing = after_tests(T, T + TEST_PERIOD_S)
    assert hearing.deaf_until(T + 2 * TEST_PERIOD_S) == 0.0
    hearing.test_begins(T + 2 * TEST_PERIOD_S)
    assert hearing.deaf_until(T + 2 * TEST_PERIOD_S + TEST_LATE_S) == 0.0


def test_silence_counts_from_the_end_of_the_deafness() -> None:
    hearing = Hearing()
    hearing.note_deaf("munged does not answer", T)
    hearing.note_deaf("munged does not answer", T + 4)
    assert hearing.deaf_until(T + 20) == T + 4


def test_an_engine_is_deaf_now_while_a_test_hangs() -> None:
    hearing = after_tests(T)
    hearing.test_begins(T + 2)
    assert hearing.deaf_until(T + 2 + TEST_LATE_S + 1) == T + 2 + TEST_LATE_S + 1
    hearing.test_ends(T + 19)
    assert hearing.deaf_until(T + 22) == T + 19, "until the test ended, however well it did"


def test_a_test_that_hung_while_nobody_asked_counts() -> None:
    hearing = after_tests(T)
    hearing.test_begins(T + 2)
    hearing.test_ends(T + 19)
    assert hearing.deaf_until(T + 20) == T + 19


def test_a_process_that_stood_still_was_deaf_whoever_notices_first() -> None:
    """After SIGCONT the thread of the cycle may be ahead of that of the tests."""
    assert after_tests(T).deaf_until(T + 40) == T + 40
    hearing = after_tests(T, T + 40)
    assert hearing.deaf_until(T + 41) == T + 40
    assert "stood still" in after_tests(T).problem(T + 40) or after_tests(T).problem(T + 40) == ""


def test_what_lasts_is_told_with_its_cause_and_its_beginning_and_is_told_no_more_when_it_is_over() -> None:
    hearing = Hearing()
    hearing.note_deaf("munged does not answer", T)
    assert hearing.problem(T) == "", "a moment is nothing to tell"
    hearing.note_deaf("munged does not answer", T + 10)
    said = hearing.problem(T + 11)
    assert "since 00:16:40 UTC: munged does not answer." in said
    assert "nobody counts as silent" in said
    assert hearing.problem(T + 12) == said, "the same words, as long as it is the same"
    assert hearing.problem(T + 60) == ""
    hearing.note_deaf("something else", T + 100)
    assert hearing.problem(T + 100) == "", "it has begun anew"


def test_all_causes_that_last_are_told() -> None:
    hearing = Hearing()
    for moment in (0, 5, 10, 15, 20):
        hearing.note_deaf("munged does not answer", T + moment)
        hearing.note_deaf("the manager c2:7 hears nobody", T + moment)
    assert "UTC: munged does not answer; the manager c2:7 hears nobody. " in hearing.problem(T + 20)
    for moment in (25, 30, 35, 40):
        hearing.note_deaf("munged does not answer", T + moment)
    assert "UTC: munged does not answer. " in hearing.problem(T + 40)


def test_a_deaf_engine_says_so_for_as_long_as_it_is() -> None:
    hearing = Hearing()
    for moment in range(0, 7200, 10):
        hearing.note_deaf("munged does not answer", T + moment)
    assert "since 00:16:40 UTC" in hearing.problem(T + 7195)


def test_the_cause_is_told_as_it_was_found_and_not_that_a_test_is_late() -> None:
    hearing = after_tests(T)
    hearing.test_begins(T + 2)
    assert hearing.deaf_until(T + 8) == T + 8
    hearing.test_ends(T + 13, "munged does not answer")
    hearing.test_begins(T + 15)
    assert hearing.deaf_until(T + 19) == T + 19
    assert "munged does not answer" in hearing.problem(T + 19)


# -- what the engine does at its own doors -----------------------------------------------------------------------------


@contextlib.contextmanager
def door(*, answers: bool, host: str = "127.0.0.1") -> Iterator[Way]:
    """A listener that answers looks; or whose backlog takes connections, and that says nothing."""
    with socket.create_server((host, 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        if connection.recv(len(LOOK)):
                            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        if answers:
            threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[:2]
        listening.shutdown(socket.SHUT_RDWR)


def heard(*ways: Way, munged: str | None = None) -> str:
    """What keeps an engine with these ways from hearing, in words."""
    hearing, times = Hearing(), iter(range(1000, 2000, 20))
    own = Ears(hearing, lambda: float(next(times)), ways, by_munge=munged is not None, munge_socket=munged or "")
    return own._why_deaf()


def test_doors_that_serve_are_heard_and_others_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ears, "TEST_LATE_S", 0.2)
    with door(answers=True) as served, door(answers=False) as hanging:
        assert heard(served) == ""
        assert heard(served, hanging).startswith(f"nobody is served at 127.0.0.1:{hanging[1]}: ")
    assert "Connection refused" in heard(served)
    assert "No such file" in heard(str(tmp_path / "engine.sock"))


def test_a_socket_that_takes_connections_and_says_nothing_serves_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ears, "TEST_LATE_S", 0.2)
    path = str(tmp_path / "engine.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        found: list[str] = []
        asking = threading.Thread(target=lambda: found.append(heard(path)), daemon=True)
        asking.start()
        asking.join(PATIENCE_S)
        assert found == [f"nobody is served at {path}: timed out"]


@pytest.mark.skipif(shutil.which("munged") is None, reason="munged is not installed")
def test_a_munged_that_stands_still_or_is_gone_makes_deaf_and_one_that_goes_on_does_not() -> None:
    with tempfile.TemporaryDirectory() as name:
        daemon = Munged(Path(name))
        try:
            assert heard(munged=daemon.socket) == ""
            hearing, clock = Hearing(), [T]
            own = Ears(hearing, lambda: clock[0], (), by_munge=True, munge_socket=daemon.socket)
            os.kill(daemon.pid, signal.SIGSTOP)
            testing = threading.Thread(target=own.test_hearing)
            testing.start()
            deadline = time.monotonic() + PATIENCE_S
            while hearing._test_began is None:
                assert testing.is_alive() and time.monotonic() < deadline, "munged is not asked"
                time.sleep(0.01)
            clock[0] += TEST_LATE_S + 1
            assert hearing.deaf_until(clock[0]) == clock[0], "nothing has failed yet, and it is deaf all the same"
            os.kill(daemon.pid, signal.SIGCONT)
            testing.join(PATIENCE_S)
            clock[0] += 1
            assert hearing.deaf_until(clock[0]) == clock[0] - 1
            assert heard(munged=daemon.socket) == ""
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
            daemon.stop()
        assert "munged does not answer" in heard(munged=daemon.socket)


@pytest.mark.parametrize(
    ("listen", "way"),
    [
        ("0.0.0.0:6829", ("127.0.0.1", 6829)),
        (":6829", ("127.0.0.1", 6829)),
        ("[::]:6829", ("::1", 6829)),
        ("10.0.0.1:6829", ("10.0.0.1", 6829)),
        ("[fd00::1]:6829", ("fd00::1", 6829)),
    ],
)
def test_the_ways_in_are_the_engines_own_doors(listen: str, way: Way) -> None:
    assert ways_of(listen) == ["/run/e.sock", way]


def test_without_an_address_only_the_socket_is_a_way_in() -> None:
    assert ways_of("") == ["/run/e.sock"]


def ways_of(listen: str) -> list[Way]:
    settings = make_settings()
    engine = settings.engine.model_copy(update={"listen": listen, "socket": Path("/run/e.sock")})
    return ways_in(settings.model_copy(update={"engine": engine}))
