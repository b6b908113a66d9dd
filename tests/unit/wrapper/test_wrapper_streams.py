"""Exactly-once delivery into a file, without any guest: a stream, a file, and deaths at every byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmsplugin.errors import UnavailableError
from rmsplugin.wrapper.session import streams
from rmsplugin.wrapper.session.streams import Ack, OutputFile, ReplayNeeded, same_file

STREAM = b"".join(b"line %d\n" % n for n in range(300)) + b"slurmstepd is a word that a script may print\n"
STREAM += b"rmsplugin-jobs are some, too\n"
NOTE = b"slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:06:13 DUE TO JOB REQUEUE ***\n"
OURS = b"rmsplugin-job: the guest breaks off (given up after 12 failures in a row)\n"


class Guest:
    """Keeps the last acknowledgement, as the real one does."""

    def __init__(self) -> None:
        self.ack: Ack | None = None

    def acknowledge(self, acks: dict[str, Ack]) -> None:
        self.ack = acks["stdout"]


def run(path: Path, guest: Guest, *, until: int, chunk: int, acknowledge: bool = False, kept_from: int = 0) -> None:
    """One life of a wrapper: it delivers the stream up to ``until``, with an acknowledgement at the end or none."""
    with path.open("ab") as output:
        file = OutputFile("stdout", output.fileno())
        if guest.ack is None:
            guest.acknowledge({"stdout": file.ack})
        else:
            file.take_over(guest.ack, kept_from)
        try:
            deliver(file, guest, until, chunk)
        except ReplayNeeded:
            file.restart()
            deliver(file, guest, until, chunk)
        if acknowledge:
            guest.acknowledge({"stdout": file.ack})


def deliver(file: OutputFile, guest: Guest, until: int, chunk: int) -> None:
    offset = file.ack.offset
    while offset < until:
        data = STREAM[offset : min(offset + chunk, until)]
        file.feed(data, guest.acknowledge)
        offset += len(data)


@pytest.mark.parametrize("chunk", [1, 7, 5000])
@pytest.mark.parametrize("acked", [False, True])
@pytest.mark.parametrize("note", [b"", NOTE])
@pytest.mark.parametrize("truncated", [False, True])
def test_two_deaths(tmp_path: Path, chunk: int, acked: bool, note: bytes, truncated: bool) -> None:
    path = tmp_path / "out"
    for first, second in [(0, 0), (1, 2), (8, 8), (100, 1000), (1000, 1000), (1000, 1001), (2000, len(STREAM))]:
        guest = Guest()
        path.write_bytes(b"" if truncated else b"from an earlier job\n")
        for until in (first, second):
            run(path, guest, until=until, chunk=chunk, acknowledge=acked)
            path.write_bytes(b"" if truncated else path.read_bytes() + note)
        run(path, guest, until=len(STREAM), chunk=chunk)
        wanted = STREAM if truncated else b"from an earlier job\n" + STREAM
        assert path.read_bytes().replace(NOTE, b"") == wanted, (first, second)


@pytest.mark.parametrize("chunk", [1, 3, 5000])
@pytest.mark.parametrize(("note", "word"), [(NOTE, b"slurmstepd"), (OURS, b"rmsplugin-job")])
def test_a_message_that_begins_as_the_stream_goes_on_hides_nothing(
    tmp_path: Path, note: bytes, word: bytes, chunk: int
) -> None:
    path = tmp_path / "out"
    cut = STREAM.index(word)
    guest = Guest()
    run(path, guest, until=cut, chunk=100)
    with path.open("ab") as file:
        file.write(note)
    run(path, guest, until=len(STREAM), chunk=chunk)
    assert path.read_bytes() == STREAM[:cut] + note + STREAM[cut:]


@pytest.mark.parametrize("lost", [1, 100, 1999])
def test_a_host_that_crashed_lost_the_end_of_the_file(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"x" * 50)
    guest = Guest()
    run(path, guest, until=2000, chunk=64, acknowledge=True)
    os.truncate(path, 2050 - lost)
    run(path, guest, until=len(STREAM), chunk=64)
    assert path.read_bytes() == b"x" * 50 + STREAM


def test_a_file_that_was_begun_anew_by_somebody_else_gets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_PROOF_BYTES", 100)
    path = tmp_path / "out"
    guest = Guest()
    run(path, guest, until=2000, chunk=64, acknowledge=True)
    other = b"not the stream\n" * 100
    path.write_bytes(other)
    run(path, guest, until=2100, chunk=64)
    run(path, guest, until=len(STREAM), chunk=64)
    assert path.read_bytes() == other + STREAM


@pytest.mark.parametrize("chunk", [1, 7, 5000])
def test_a_truncated_file_says_what_the_guest_has_not_kept_for_it(tmp_path: Path, chunk: int) -> None:
    path = tmp_path / "out"
    guest = Guest()
    run(path, guest, until=2000, chunk=64, acknowledge=True)
    path.write_bytes(b"")
    run(path, guest, until=2500, chunk=chunk, kept_from=1500)
    run(path, guest, until=len(STREAM), chunk=chunk, kept_from=1500)
    note, _, rest = path.read_bytes().partition(b"\n")
    assert note.startswith(b"rmsplugin: error: ")
    assert b"1500 bytes" in note
    assert rest == STREAM[1500:]


@pytest.mark.parametrize("kept_from", [0, 1500, 1990, 2000])
def test_a_file_that_nobody_touched_goes_on_whatever_is_kept(tmp_path: Path, kept_from: int) -> None:
    path = tmp_path / "out"
    guest = Guest()
    run(path, guest, until=2000, chunk=64, acknowledge=True)
    run(path, guest, until=len(STREAM), chunk=64, kept_from=kept_from)
    assert path.read_bytes() == STREAM


@pytest.mark.parametrize("lost", [1, 400])
def test_a_file_that_lost_its_end_is_made_whole_from_what_is_kept(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "out"
    guest = Guest()
    path.write_bytes(b"x" * 50)
    run(path, guest, until=2000, chunk=64, acknowledge=True)
    os.truncate(path, 2050 - lost)
    run(path, guest, until=len(STREAM), chunk=64, kept_from=1590)
    assert path.read_bytes() == b"x" * 50 + STREAM


def test_an_acknowledgement_in_the_middle_of_the_comparison_is_true(tmp_path: Path) -> None:
    path = tmp_path / "out"
    guest = Guest()
    run(path, guest, until=2000, chunk=64)
    run(path, guest, until=500, chunk=64, acknowledge=True)
    assert guest.ack == Ack(500, 500)
    run(path, guest, until=len(STREAM), chunk=64)
    assert path.read_bytes() == STREAM


def test_an_acknowledgement_that_fails_is_made_up_for(tmp_path: Path) -> None:
    path = tmp_path / "out"
    guest = Guest()
    run(path, guest, until=1000, chunk=64)
    with path.open("ab") as output:
        output.write(NOTE)
        output.flush()
        file = OutputFile("stdout", output.fileno())
        assert guest.ack is not None
        file.take_over(guest.ack, 0)

        def broken(_: dict[str, Ack]) -> None:
            raise ConnectionError

        with pytest.raises(ConnectionError):
            deliver(file, type("Broken", (), {"acknowledge": staticmethod(broken)})(), len(STREAM), 5000)
        deliver(file, guest, 1500, 64)
    run(path, guest, until=len(STREAM), chunk=64)
    assert path.read_bytes() == STREAM[:1000] + NOTE + STREAM[1000:]


def test_a_pipe_goes_on_where_it_was_acknowledged() -> None:
    reading, writing = os.pipe()
    file = OutputFile("stdout", writing)
    file.take_over(Ack(10, 0), 0)
    guest = Guest()
    deliver(file, guest, 30, 7)
    assert os.read(reading, 1000) == STREAM[10:30]
    assert file.ack.offset == 30
    os.close(reading)
    os.close(writing)


def test_same_file(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as one, (tmp_path / "b").open("wb") as other:
        again = os.dup(one.fileno())
        assert same_file(one.fileno(), again)
        assert not same_file(one.fileno(), other.fileno())
        os.close(again)


LINE = b"rmsplugin: it goes on from a checkpoint\n"


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("first", [b"", b"one\n", b"one\ntw"])
def test_an_announcement_is_a_line_of_its_own_and_acknowledged_with_the_output(
    tmp_path: Path, first: bytes, chunk: int
) -> None:
    stream, path, guest = b"one\ntwo\nthree\n", tmp_path / "out", Guest()
    with path.open("ab") as output:
        file = OutputFile("stdout", output.fileno())
        file.feed(first, guest.acknowledge)
        file.announce("it goes on from a checkpoint")
        for offset in range(len(first), len(stream), chunk):
            file.feed(stream[offset : offset + chunk], guest.acknowledge)
        assert (file.ack.offset, file.ack.size) == (len(stream), path.stat().st_size)
    lines = path.read_bytes().splitlines(keepends=True)
    lines.remove(LINE)
    assert b"".join(lines) == stream and path.read_bytes().count(LINE) == 1


def test_nothing_is_written_into_a_file_that_somebody_truncates(tmp_path: Path) -> None:
    """Seen: a wrapper whose run was over wrote into the file that Slurm had emptied for the next one."""
    guest = Guest()
    with (tmp_path / "out").open("ab") as output:
        file = OutputFile("stdout", output.fileno())
        file.feed(STREAM[:100], guest.acknowledge)
        os.truncate(output.fileno(), 0)
        with pytest.raises(UnavailableError, match="truncated"):
            file.feed(STREAM[100:200], guest.acknowledge)
        assert (tmp_path / "out").read_bytes() == b""
        assert file.ack == Ack(100, 0)
        # Whoever lets it connect again says by that that this is its file: its user has truncated it.
        file.feed(STREAM[100:300], guest.acknowledge)
    assert (tmp_path / "out").read_bytes() == STREAM[100:300]


def test_what_was_written_in_the_moment_of_a_truncation_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS, where a process learns by its own write that the file was truncated elsewhere."""
    path, write = tmp_path / "out", os.write

    def truncate_and_write(fd: int, data: memoryview) -> int:
        os.truncate(path, 0)
        monkeypatch.setattr(streams.os, "write", write)
        return write(fd, data)

    with path.open("ab") as output:
        file = OutputFile("stdout", output.fileno())
        file.feed(STREAM[:100], Guest().acknowledge)
        monkeypatch.setattr(streams.os, "write", truncate_and_write)
        with pytest.raises(UnavailableError, match="truncated"):
            file.feed(STREAM[100:150], Guest().acknowledge)
        assert file.ack == Ack(150, 50)
        file.feed(STREAM[150:300], Guest().acknowledge)
    assert path.read_bytes() == STREAM[100:300]
