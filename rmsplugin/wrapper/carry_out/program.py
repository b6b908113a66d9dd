"""Carry out: runs the client of Slurm's that the VM asked for, once, on this host, and prints its answer.

It is a process of its own that ends, started by ``commands``. Standard input is the request. Standard output is a file
for the answer: a line ``EXIT_CODE SIZE SIZE``, and the client's standard output and standard error. While the client
runs, the file has a part of the answer at a time, with ``-`` for the exit code: this process says so over the socket
at descriptor 3, and goes on when it is answered there. The client runs with the rights of the job's user, as this
process does, without a shell, and dies with the wrapper.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from functools import partial

from rmsplugin.errors import RefusedError, RmspluginError
from rmsplugin.wrapper import process
from rmsplugin.wrapper.carry_out.asked import Asked, read, sbatch_words

# A part is sent when it has so many bytes, or its beginning is so old. The answer of a client that has ended by then is
# one piece, which costs the guest least.
_PART_BYTES = 1 << 20
_LINGER_S = 0.25
_WHOLE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 16
_LINE = 3
#: Slurm's name of a job's script on its node; the VM has the script under this name, too, so that `sbatch $0` finds it.
_SCRIPT = "slurm_script"
_LIBRARIES = "LD_LIBRARY_PATH"
_NO_LIBRARIES = "/usr/lib"  # The loader looks there anyway.
# e_phoff, e_phentsize, e_phnum; p_type, p_offset, p_filesz (elf(5)).
_ELF_HEADER = struct.Struct("=32xQ14xHH")
_ELF_SEGMENT = struct.Struct("=I4xQ16xQ")
_PT_INTERP = 3
_NO_PLACE = "/tmp"  # Slurm sends a job there whose directory does not exist.
# Clients that print again and again with `-i`. To a pipe they would print only full buffers. It is not known here
# whether the guest prints to a terminal, where each line has to be seen at once.
_ITERATE = ("squeue", "sinfo")
_BY_LINES = ("/usr/bin/stdbuf", "-oL")


class Output:
    """The output of a client, on its way to the guest."""

    def __init__(self, *, in_parts: bool) -> None:
        """``in_parts``: sent while the client runs; else sent whole, as older guests want it, as far as it fits."""
        self._in_parts = in_parts
        self._out, self._err = bytearray(), bytearray()
        self._due = 0.0
        self._begun = False
        #: Changes the beginning of standard output, which is in a client's first part.
        self.beginning: Callable[[bytes], bytes] = bytes

    def _size(self) -> int:
        return len(self._out) + len(self._err)

    def print(self, data: bytes) -> None:
        """Take standard output."""
        self._take(self._out, data)

    def complain(self, data: bytes) -> None:
        """Take standard error."""
        self._take(self._err, data)

    def _take(self, stream: bytearray, data: bytes) -> None:
        if self._size() == 0:
            self._due = time.monotonic() + _LINGER_S
        stream += data

    def too_large(self) -> bool:
        """Whether the guest cannot take this."""
        return not self._in_parts and self._size() > _WHOLE_BYTES

    def due_s(self) -> float | None:
        """The seconds until a part is to be sent; None: not before there is more output."""
        if not self._in_parts or self._size() == 0:
            return None
        return 0.0 if self._size() >= _PART_BYTES else max(self._due - time.monotonic(), 0.0)

    def send(self) -> None:
        """Send a part, and return when the guest has printed it."""
        self._write(b"-")
        os.write(_LINE, b".")
        os.read(_LINE, 1)

    def end(self, code: int) -> None:
        """Leave the last part in the file."""
        self._write(b"%d" % code)

    def _write(self, code: bytes) -> None:
        if self._out and not self._begun:
            self._begun = True
            self._out = bytearray(self.beginning(bytes(self._out)))
        os.lseek(1, 0, os.SEEK_SET)
        with open(1, "wb", closefd=False) as file:
            file.write(b"%b %d %d\n" % (code, len(self._out), len(self._err)) + self._out + self._err)
        self._out.clear()
        self._err.clear()


def carry_out(asked: Asked, search_path: str, output: Output) -> int:
    """Run the client; returns its exit code.

    Args:
        asked: the request from the VM.
        search_path: the directories in which clients are looked for.
        output: takes the client's output.

    Raises:
        RefusedError: the client is not installed here.
    """
    program = _program(asked.client, search_path)
    if name := asked.of_this_host():
        raise RefusedError(
            f"{name} is not possible inside a vjob: it would tell of the front; ps shows the job's processes"
        )
    os.umask(asked.umask)
    directory, note = _enter(asked)
    output.complain(note)
    environment = asked.safe_environment()
    if "SLURM_CONF" in os.environ:
        environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
    with contextlib.ExitStack() as stack:
        command, feed = [asked.client, *asked.words[1:]], b""
        if asked.client == "sbatch":
            words, feed = _for_sbatch(asked, directory, stack)
            command = [asked.client, *words]
            if _LIBRARIES in asked.environment and (loader := elf_interpreter(program)):
                # The job needs this variable; sbatch itself must not load libraries from there.
                environment[_LIBRARIES] = asked.environment[_LIBRARIES]
                program, command = loader, [loader, "--library-path", _NO_LIBRARIES, program, *words]
        elif _may_iterate(asked) and os.access(_BY_LINES[0], os.X_OK):
            # The client is found there, so that it is called by its mere name, as in its messages.
            environment["PATH"] = f"{os.path.dirname(program)}:{environment.get('PATH', os.defpath)}"
            program, command = _BY_LINES[0], [*_BY_LINES, *command]
        return run(program, command, environment, feed, output)


def _may_iterate(asked: Asked) -> bool:
    """Whether one of its options may be `-i` or `--iterate`, short or shortened."""
    return asked.client in _ITERATE and any(word.startswith("-") and "i" in word for word in asked.words[1:])


def _program(client: str, search_path: str) -> str:
    for directory in search_path.split(":"):
        if os.access(path := os.path.join(directory, client), os.X_OK):
            return path
    raise RefusedError(f"{client} is not installed on this front")


def _enter(asked: Asked) -> tuple[str, bytes]:
    """Enter the request's directory; returns that directory if this host has none, and the message for that case."""
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
    """Arguments and standard input of sbatch; a script that lies in the VM only is written to where sbatch finds it."""
    if asked.script is None:
        return sbatch_words(asked, script="", directory=directory), b""
    if not asked.operand:
        return sbatch_words(asked, script="", directory=directory), asked.script
    named = asked.words[asked.operand]
    if not directory and _same(named, asked.script):
        return sbatch_words(asked, script="", directory=directory), b""
    import tempfile  # Only this function needs it, and it is expensive.

    place = stack.enter_context(tempfile.TemporaryDirectory(prefix="rmsplugin-sbatch-"))
    # The file has the script's own name, from which sbatch takes the name of the job.
    script = os.path.join(place, os.path.basename(named) or _SCRIPT)
    with open(script, "wb") as file:
        file.write(asked.script)
    return sbatch_words(asked, script=script, directory=directory), b""


def _same(path: str, content: bytes) -> bool:
    """Whether the same script lies on this host."""
    try:
        # A name such as /dev/stdin means another file here.
        if path.startswith(("/dev/", "/proc/")) or os.path.getsize(path) != len(content):
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


def run(program: str, command: list[str], environment: dict[str, str], feed: bytes, output: Output) -> int:
    """Run a program, and return its exit code; it is ended if it prints more than the guest can be given."""
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
    # If this process is asked to end, as when nobody waits for the answer, the client is asked to end and its last
    # output is passed on.
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    _pass_on(child, output)
    code = child.wait()
    if output.too_large():
        raise RefusedError(f"the output was cut off after {_WHOLE_BYTES >> 20} MiB")
    return 128 - code if code < 0 else code


def _pass_on(child: subprocess.Popen[bytes], output: Output) -> None:
    """Send a program's output of both streams, until it has ended, or is ended for printing too much."""
    assert child.stdout and child.stderr
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ, output.print)
        selector.register(child.stderr, selectors.EVENT_READ, output.complain)
        while selector.get_map():
            for key, _ in selector.select(output.due_s()):
                if data := os.read(key.fd, _CHUNK_BYTES):
                    key.data(data)
                else:
                    selector.unregister(key.fileobj)
            if output.too_large():
                child.kill()
                return
            if output.due_s() == 0.0:
                output.send()


def _script_written(act: Callable[[], int], path: str, output: Output) -> int:
    """Have scontrol write a job's script, to a file or (``-``) to its output: as the job's user wrote it."""
    from rmsplugin.wrapper.carry_out import own_line

    if path == "-":
        output.beginning = own_line.without
        return act()
    code = act()
    if code == 0:
        with contextlib.suppress(OSError):  # scontrol has told the error
            own_line.mend_file(path)
    return code


def _carry_out_told(asked: Asked, argv: list[str], output: Output) -> int:
    """Carry out, and tell the engine what it has to know."""
    act = partial(carry_out, asked, argv[1], output)
    if asked.client != "scontrol":
        return act()
    from rmsplugin.wrapper.carry_out import own_line, own_requeue  # only this function needs them, and their imports

    if path := own_line.written_to(asked.words):
        return _script_written(act, path, output)
    if not own_requeue.names_own_job(asked.words, os.environ):
        return act()
    return own_requeue.carried_out(act, argv[3:], os.environ)


def main(argv: list[str]) -> None:
    """Print the answer: the client's, or the reason why it was not started."""
    process.die_with_parent()
    client = ""
    output = Output(in_parts=argv[2] == "parts")
    try:
        with open(0, "rb") as source:
            asked = read(source)
        client = asked.client
        code = _carry_out_told(asked, argv, output)
    except (RmspluginError, OSError) as error:
        output.complain(f"{client or 'rmsplugin'}: error: {error}\n".encode("utf-8", "surrogateescape"))
        code = 1
    # From here on the answer stands, even if it was `scancel` of this job, by which Slurm ends all processes here.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    output.end(code)
    os._exit(0)
