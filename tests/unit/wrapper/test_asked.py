"""What the wrapper makes of a request from the VM, which may be anything."""

from __future__ import annotations

import io
import tarfile

import pytest

from rmsplugin.errors import RefusedError
from rmsplugin.wrapper.carry_out.asked import Asked, read, sbatch_words

PARTS = {"words": b"squeue\0-l\0", "cwd": b"/home/alice", "umask": b"0022\n", "environment": b"HOME=/home/alice\0"}


def asked(**changes: bytes) -> Asked:
    return Asked({**PARTS, **changes})


def archive(parts: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, data in parts.items():
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(data), kind, "/etc/passwd"
            made.addfile(member, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def test_a_request_is_read_as_it_was_made() -> None:
    result = read(archive({**PARTS, "words": b"sbatch\0a b\0\0\xff\0", "operand": b"1\n", "script": b"#!/bin/sh\n"}))
    assert result.words == ["sbatch", "a b", "", "\udcff"]
    assert (result.cwd, result.umask, result.operand, result.script) == ("/home/alice", 0o022, 1, b"#!/bin/sh\n")


@pytest.mark.parametrize("client", ["sh", "srun", "/bin/sh", "../sh", "salloc", "", "scrontab"])
def test_only_clients_of_slurm_can_be_asked_for(client: str) -> None:
    with pytest.raises(RefusedError, match="no client of Slurm's"):
        asked(words=client.encode() + b"\0")


@pytest.mark.parametrize(
    "changes",
    [
        {"words": b""}, {"words": b"squeue"}, {"cwd": b"home"}, {"cwd": b"/a\0b"}, {"umask": b"x"},
        {"operand": b"2"}, {"operand": b"1e9"}, {"environment": b"A=1"},
    ],
)  # fmt: skip
def test_what_is_not_of_the_form_is_refused(changes: dict[str, bytes]) -> None:
    with pytest.raises(RefusedError):
        asked(**changes)


@pytest.mark.parametrize("missing", sorted(PARTS))
def test_a_part_that_is_missing_is_named(missing: str) -> None:
    with pytest.raises(RefusedError, match=missing):
        Asked({name: data for name, data in PARTS.items() if name != missing})


@pytest.mark.parametrize(
    "source",
    [
        archive({**PARTS, "evil": b""}),
        archive({**PARTS, "../../etc/x": b""}),
        archive({**PARTS, "script": b"x" * (4 << 20) + b"x"}),
        archive(PARTS, tarfile.SYMTYPE),
        archive(PARTS, tarfile.FIFOTYPE),
        io.BytesIO(archive(PARTS).getvalue()[:700]),
        io.BytesIO(b"no tar at all" * 100),
        io.BytesIO(b""),
    ],
)
def test_an_archive_with_anything_else_is_refused(source: io.BytesIO) -> None:
    with pytest.raises(RefusedError):
        read(source)


def test_the_client_gets_the_users_environment_but_for_what_would_have_it_run_other_code() -> None:
    variables = (
        "SLURM_JOB_ID=12", "SQUEUE_FORMAT=%i", "A=b=c", "EMPTY=", "LD_PRELOAD=/home/x.so", "LD_LIBRARY_PATH=/l",
        "LUA_PATH=/l", "GCONV_PATH=/g", "SLURM_CONF=/home/slurm.conf", "RMSPLUGIN_HOSTFILE=/run/x", "=odd", "odd",
        "PATH=/run/rmsplugin/bin:/opt/bin::/run/rmsplugin/bin/:/bin", "BASH_FUNC_f%%=() { echo; }",
    )  # fmt: skip
    request = asked(environment="".join(f"{each}\0" for each in variables).encode())
    assert request.safe_environment() == {
        "SLURM_JOB_ID": "12",
        "SQUEUE_FORMAT": "%i",
        "A": "b=c",
        "EMPTY": "",
        "PATH": "/opt/bin::/bin",
        "BASH_FUNC_f%%": "() { echo; }",
    }


def test_the_words_of_sbatch_name_what_lies_on_this_host() -> None:
    request = asked(words=b"sbatch\0-n\x002\0x.sh\0-n\0", operand=b"3", script=b"")
    assert sbatch_words(request, script="", directory="") == ["-n", "2", "x.sh", "-n"]
    assert sbatch_words(request, script="/t/x.sh", directory="/d") == [*("--chdir=/d", "-n", "2", "/t/x.sh", "-n")]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("scontrol listpids", "listpids"), ("scontrol LIST 12", "listpids"), ("scontrol -o pid 1", "pidinfo"),
        ("scontrol -M main listpids 12", "listpids"), ("scontrol -oM main pidinfo 7", "pidinfo"),
        ("scontrol show job 12", ""), ("scontrol ping", ""), ("scontrol pi", ""),
        ("scontrol", ""), ("scontrol update JobId=12 Comment=listpids", ""), ("squeue listpids", ""),
    ],
)  # fmt: skip
def test_what_scontrol_would_tell_of_the_front_is_known(words: str, name: str) -> None:
    assert asked(words="".join(f"{word}\0" for word in words.split()).encode()).of_this_host() == name
