"""Serving: one agent that waits for many calls of the engine, and does each in a process of its own.

A call by itself has a Python to start, which takes longer than all that most verbs do. Here a process that has loaded
everything is forked for each call, and does what one that was started for it would have done: the same words, standard
input and lines of output. Its output is a pipe that breaks when nobody waits for the answer any more, so it does not
begin then (``files.require_listener``). Nothing that a call does stays in the memory of the one that serves.

Requests and answers are frames on standard input and output (docs/protocols.md section 4).
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import rmsplugin
from rmsplugin.adapters.platform.node_factory import HALVES, platform_on_node
from rmsplugin.node_agent.errors import AgentError

#: The seconds without a request after which nobody is expected any more; the engine hangs up much sooner.
_IDLE_S = 600.0
#: The seconds for which an agent serves. What a process keeps from its start, and a node may change meanwhile (its
#: libraries, limits, environment), is at most this old.
_SERVES_S = 600.0
_HEADER_MAX = 8192
_CONTENT_MAX = 1 << 20
_CHUNK = 1 << 16


class Request(NamedTuple):
    """One call, or the end of the wait for one."""

    call: int  # its number, which all frames of its answer have
    words: list[str]  # empty: nobody waits any more
    content: bytes  # its standard input


class Requests:
    """The requests in what has been read: a line of JSON each, then as many bytes as it says."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Request]:
        """Take what has been read, and give out the requests that are whole. Raises AgentError for anything else."""
        self._data += data
        while (end := self._data.find(b"\n")) >= 0:
            call, words, size = _header(bytes(self._data[:end]))
            whole = end + 1 + size
            if len(self._data) < whole:
                return
            content = bytes(self._data[end + 1 : whole])
            del self._data[:whole]
            yield Request(call, words, content)
        if len(self._data) > _HEADER_MAX:
            raise AgentError("failed", "not a request to a serving node agent")


def _header(line: bytes) -> tuple[int, list[str], int]:
    try:
        header = json.loads(line)
        call, words, size = header["call"], header["words"], header["bytes"]
        sound = isinstance(call, int) and isinstance(size, int) and 0 <= size <= _CONTENT_MAX
        sound = sound and len(line) <= _HEADER_MAX and isinstance(words, list)
        if sound and all(isinstance(word, str) and word.isprintable() for word in words):
            return call, words, size
    except (ValueError, KeyError, TypeError):
        pass
    raise AgentError("failed", "not a request to a serving node agent")


@dataclass
class _Call:
    """A call whose process has not ended."""

    number: int
    process: int
    said: bytearray = field(default_factory=bytearray)  # the beginning of a line


class Server:
    """Forks for each request, and passes on what the processes of the calls say."""

    def __init__(self, answer: Callable[[list[str]], int]) -> None:
        """``answer`` does a call by its words: it reads standard input, prints lines of JSON, returns the status."""
        self._answer = answer
        self._calls: dict[int, _Call] = {}  # by the reading end of its output
        self._given_up: set[int] = set()  # the processes of calls for which nobody waits any more
        self._loaded = _release()
        self._until = time.monotonic() + _SERVES_S

    def serve(self) -> None:
        """Do all requests until the engine hangs up.

        Raises:
            AgentError: something is read that is no request.
            BrokenPipeError: the engine has hung up.
        """
        gc.freeze()  # what is loaded is shared with the processes of the calls
        _say({"serving": 1})
        requests = Requests()
        while True:
            ready, _, _ = select.select([0, *self._calls], [], [], _IDLE_S)
            if not ready and not self._calls:
                return
            for output in self._calls.keys() & set(ready):
                self._pass_on(output)
            if 0 in ready:
                data = _all_there_is()
                if data is None:
                    return
                self._begin(list(requests.feed(data)))

    def _begin(self, requests: list[Request]) -> None:
        """Begin the calls for which, by all that has been read, somebody still waits."""
        given_up = {request.call for request in requests if not request.words}
        for output in [output for output, call in self._calls.items() if call.number in given_up]:
            os.close(output)
            self._given_up.add(self._calls.pop(output).process)
        self._given_up -= {process for process in self._given_up if os.waitpid(process, os.WNOHANG)[0]}
        for request in requests:
            if request.words and request.call not in given_up:
                self._begin_one(request)

    def _begin_one(self, request: Request) -> None:
        if time.monotonic() >= self._until or _release() != self._loaded:
            _say({"call": request.call, "again": True})
            return
        reads, writes = os.pipe2(os.O_CLOEXEC)
        process = os.fork()
        if process == 0:
            for output in (reads, *self._calls):  # a pipe breaks only when all its readers are gone
                os.close(output)
            self._do(request, writes)
        os.close(writes)
        self._calls[reads] = _Call(request.call, process)

    def _do(self, request: Request, writes: int) -> NoReturn:
        """In the process of a call: do it, and end."""
        status = 2
        try:
            content = os.memfd_create("content")
            os.write(content, request.content)
            os.lseek(content, 0, os.SEEK_SET)
            os.dup2(content, 0)
            os.dup2(writes, 1)
            os.close(content)
            os.close(writes)
            status = self._answer(request.words)
        except BrokenPipeError:
            pass  # nobody listens any more: changes stay
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    def _pass_on(self, output: int) -> None:
        call = self._calls[output]
        data = os.read(output, _CHUNK)
        *lines, rest = (bytes(call.said) + data).split(b"\n")
        call.said = bytearray(rest)
        for line in lines:
            _say({"call": call.number, "line": _object(line)})
        if not data:
            os.close(output)
            del self._calls[output]
            _, status = os.waitpid(call.process, 0)
            _say({"call": call.number, "end": True, "status": os.waitstatus_to_exitcode(status)})


def _all_there_is() -> bytes | None:
    """All that can be read at once; None if the engine has hung up: then what came before it is not done either."""
    data = bytearray()
    while select.select([0], [], [], 0)[0]:
        chunk = os.read(0, _CHUNK)
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _say(frame: dict[str, Any]) -> None:
    data = f"{json.dumps(frame)}\n".encode()
    while data:
        data = data[os.write(1, data) :]


def _object(line: bytes) -> Any:
    """What a line says; None if it is no JSON. Only the call that prints such a line is to suffer from it."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _release() -> list[tuple[int, int] | None]:
    """What changes when another release is installed, or another Python: of each file that was loaded."""
    loaded = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == rmsplugin.__name__]
    return [_stamp(path) for path in (sys.executable, *loaded) if path]


def _stamp(path: str) -> tuple[int, int] | None:
    """What changes when a file is replaced, written or only put back with its old time; None if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def load_everything() -> None:
    """Load what the short verbs need: a call in a process of its own loads only what it needs itself."""
    from rmsplugin.node_agent import control_group, guards, guest_filter, templates, vm_verbs  # noqa: F401

    for name in HALVES:
        platform_on_node(name)
