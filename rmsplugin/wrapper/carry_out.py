"""Carry out: run the client of Slurm's that was asked for in the VM, once, on this host, and print its answer.

A process of its own that ends, started by ``commands``: standard input is the request, standard output the answer:
``EXIT_CODE SIZE SIZE``, a line, and what the client printed on standard output and standard error. The client runs with
the rights of the job's user, as this process does, without a shell, and dies with the wrapper.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import struct
import subprocess
import sys

from rmsplugin.errors import RefusedError, RmspluginError
from rmsplugin.wrapper import process
from rmsplugin.wrapper.asked import Asked, read, sbatch_words

_OUTPUT_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16
#: What Slurm calls a job's script on its node; so it is called in the VM, too, and `sbatch $0` finds it.
_SCRIPT = "slurm_script"
_LIBRARIES = "LD_LIBRARY_PATH"
_NO_LIBRARIES = "/usr/lib"  # Where the loader looks anyway.
# e_phoff, e_phentsize, e_phnum; p_type, p_offset, p_filesz (elf(5)).
_ELF_HEADER = struct.Struct("=32xQ14xHH")
_ELF_SEGMENT = struct.Struct("=I4xQ16xQ")
_PT_INTERP = 3
_NO_PLACE = "/tmp"  # Where Slurm sends a job whose directory is not there.


class Answer:
    """What a client said, and how it ended."""

    __slots__ = ("code", "err", "out")

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code, self.out, self.err = code, out, err

    def encoded(self) -> bytes:
        """As the guest reads it."""
        return b"%d %d %d\n" % (self.code, len(self.out), len(self.err)) + self.out + self.err


def carry_out(asked: Asked, search_path: str) -> Answer:
    """Run the client.

    Args:
        asked: the request.
        search_path: directories that clients are looked for in.

    Raises:
        RefusedError: it is not installed here.
    """
    program = _program(asked.client, search_path)
    os.umask(asked.umask)
    directory, note = _enter(asked)
    environment = asked.safe_environment()
    if "SLURM_CONF" in os.environ:
        environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
    with contextlib.ExitStack() as stack:
        command, feed = [asked.client, *asked.words[1:]], b""
        if asked.client == "sbatch":
            words, feed = _for_sbatch(asked, directory, stack)
            command = [asked.client, *words]
            if _LIBRARIES in asked.environment and (loader := elf_interpreter(program)):
                # The job is to have it; sbatch itself must not load what lies there.
                environment[_LIBRARIES] = asked.environment[_LIBRARIES]
                program, command = loader, [loader, "--library-path", _NO_LIBRARIES, program, *words]
        answer = run(program, command, environment, feed)
    answer.err = note + answer.err
    return answer


def _program(client: str, search_path: str) -> str:
    for directory in search_path.split(":"):
        if os.access(path := os.path.join(directory, client), os.X_OK):
            return path
    raise RefusedError(f"{client} is not installed on this front")


def _enter(asked: Asked) -> tuple[str, bytes]:
    """Go to where it was asked; returns that place if there is none here, and what is to be said then."""
    try:
        os.chdir(asked.cwd)
    except OSError as error:
        os.chdir(_NO_PLACE)
        if asked.client != "sbatch":
            return asked.cwd, b""
        text = f"sbatch: error: couldn't chdir to '{asked.cwd}': {error.strerror}: going to {_NO_PLACE} instead\n"
        return asked.cwd, text.encode("utf-8", "surrogateescape")
    return "", b""


def _for_sbatch(asked: Asked, directory: str, stack: contextlib.ExitStack) -> tuple[list[str], bytes]:
    """Arguments and standard input of sbatch; a script that lies in the VM only is put where sbatch finds it."""
    if asked.script is None:
        return sbatch_words(asked, script="", directory=directory), b""
    if not asked.operand:
        return sbatch_words(asked, script="", directory=directory), asked.script
    named = asked.words[asked.operand]
    if not directory and _same(named, asked.script):
        return sbatch_words(asked, script="", directory=directory), b""
    import tempfile  # Only this needs it, and it is dear.

    place = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmsplugin-sbatch-"))
    # By its own name, of which sbatch makes the name of the job.
    script = os.path.join(place, os.path.basename(named) or _SCRIPT)
    with open(script, "wb") as file:
        file.write(asked.script)
    return sbatch_words(asked, script=script, directory=directory), b""


def _same(path: str, content: bytes) -> bool:
    """Whether the same script lies here."""
    try:
        if os.path.getsize(path) != len(content):
            return False
        with open(path, "rb") as file:
            return file.read(len(content) + 1) == content
    except (OSError, ValueError):
        return False


def elf_interpreter(path: str) -> str:
    """The loader that a program names (PT_INTERP of ELF, 64 bit); empty if it names none."""
    with open(path, "rb") as file:
        head = file.read(_ELF_HEADER.size)
        if len(head) < _ELF_HEADER.size or head[:5] != b"\x7fELF\x02":
            return ""
        offset, size, count = _ELF_HEADER.unpack(head)
        for number in range(count):
            file.seek(offset + number * size)
            kind, where, length = _ELF_SEGMENT.unpack(file.read(_ELF_SEGMENT.size))
            if kind == _PT_INTERP:
                file.seek(where)
                return os.fsdecode(file.read(length).rstrip(b"\0"))
    return ""


def run(program: str, command: list[str], environment: dict[str, str], feed: bytes) -> Answer:
    """Run a program, and return what it said; it is ended when that is more than the guest can be given."""
    with open(os.memfd_create("input"), "w+b") as source:
        source.write(feed)
        source.seek(0)
        try:
            child = subprocess.Popen(
                command,
                executable=program,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                preexec_fn=process.die_with_parent,
            )
        except (OSError, ValueError) as error:
            raise RefusedError(f"{program} cannot be started: {error}") from None
    # Asked to end, as when nobody waits for the answer, it passes that on and has its say.
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    out, err, too_much = _collect(child)
    code = child.wait()
    if too_much:
        err += f"rmsplugin: error: the output was cut off after {_OUTPUT_BYTES >> 20} MiB\n".encode()
    return Answer(1 if too_much else 128 - code if code < 0 else code, out, err)


def _collect(child: subprocess.Popen[bytes]) -> tuple[bytes, bytes, bool]:
    """What a program prints on both streams, and whether it was ended for printing too much."""
    assert child.stdout and child.stderr
    streams = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    room = _OUTPUT_BYTES
    with selectors.DefaultSelector() as selector:
        for fd in streams:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, min(_CHUNK_BYTES, room + 1))
                if not data:
                    selector.unregister(key.fd)
                    continue
                streams[key.fd] += data[:room]
                if len(data) > room:
                    child.kill()
                    return bytes(streams[child.stdout.fileno()]), bytes(streams[child.stderr.fileno()]), True
                room -= len(data)
    return bytes(streams[child.stdout.fileno()]), bytes(streams[child.stderr.fileno()]), False


def main(argv: list[str]) -> None:
    """Print the answer: the client's, or why it was not started."""
    process.die_with_parent()
    client = ""
    try:
        with open(0, "rb") as source:
            asked = read(source)
        client = asked.client
        answer = carry_out(asked, argv[1])
    except (RmspluginError, OSError) as error:
        text = f"{client or 'rmsplugin'}: error: {error}\n"
        answer = Answer(1, b"", text.encode("utf-8", "surrogateescape"))
    with open(1, "wb") as output:
        output.write(answer.encoded())
    sys.exit(0)
