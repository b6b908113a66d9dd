"""An agent that serves: the real program behind a socket, and the engine's side of the channel."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from socket_channel import SocketChannel, served_by

from rmsplugin.adapters.nodes import served
from rmsplugin.adapters.nodes.served import NotServedError, Served
from rmsplugin.adapters.nodes.ssh_link import Patience
from rmsplugin.errors import OperationFailedError, TimedOutError, UnavailableError


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def open_files(process: int) -> dict[int, str]:
    found = {}
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # another thread, or one that starts, may close it meanwhile
            found[int(entry.name)] = os.readlink(entry)
    return found


PACKAGE = Path(served.__file__).parents[2]
MARKER = "0" * 32


class Node:
    """A node with an agent that serves."""

    def __init__(self, directory: Path, *flags: str, package: Path = PACKAGE, changed: str = "pass") -> None:
        """``changed``: what is run before the agent begins."""
        self.vms = directory / "vm"
        self.settings = directory / "rmsplugin.toml"
        self.settings.write_text(f'[nodes]\nstore = "{directory}/store"\nvm_dir = "{self.vms}"\n')
        program = f"import sys; from rmsplugin.node_agent import calls, main, serving; {changed}; sys.exit(main.main())"
        command = [sys.executable, "-c", program, *flags, "--config", str(self.settings), "serve"]
        environment = {name: value for name, value in os.environ.items() if name != "SSH_ORIGINAL_COMMAND"}
        environment["PYTHONPATH"] = str(package.parent)
        self.process, self.channel = served_by(
            command, PATIENCE_S, environment=environment, stderr=subprocess.PIPE, cwd=directory
        )
        self._command, self._environment, self._directory = command, environment, directory
        self.agent = Served(self.channel, "agent")

    def call(self, *words: str, content: bytes = b"", timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        return self.agent.call(list(words), content, Patience(timeout_s), words[0])

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in found.split()]

    def listens_to(self, child: int) -> bool:
        """Whether the agent has the other end of what the process of a call says."""
        output = os.readlink(f"/proc/{child}/fd/1")
        return output in open_files(self.process.pid).values()

    @contextlib.contextmanager
    def held(
        self, vm: str, pool: ThreadPoolExecutor, timeout_s: float = PATIENCE_S
    ) -> Iterator[Future[dict[str, Any]]]:
        """A call about the VM that waits until the block ends."""
        with self.locked(vm):
            waiting = pool.submit(self.call, "put-config", vm, content=b"second", timeout_s=timeout_s)
            wait_until(lambda: len(self.children()) == 1)
            yield waiting

    @contextlib.contextmanager
    def locked(self, vm: str) -> Iterator[None]:
        """Another process than the agent's has the locks of all VMs; this VM has a configuration."""
        self.call("put-config", vm, content=b"first")
        with (self.vms / ".lock").open("r+b") as locks:
            fcntl.lockf(locks, fcntl.LOCK_EX)
            yield

    def by_itself(self, *words: str, content: bytes) -> subprocess.Popen[bytes]:
        """The same call in a process of its own."""
        own = subprocess.Popen(
            [*self._command[:-1], *words],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._directory,
        )
        assert own.stdin is not None
        own.stdin.write(content)
        own.stdin.close()
        own.stdin = None
        return own

    def close(self) -> None:
        self.agent.close()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as made:
        yield made


def test_each_of_many_calls_at_once_has_its_own_answer(node: Node, pool: ThreadPoolExecutor) -> None:
    sizes = range(1, 41)
    calls = [pool.submit(node.call, "put-config", f"vjob{size}-0", content=b"x" * size) for size in sizes]
    assert [call.result()["bytes"] for call in calls] == list(sizes)
    assert {(node.vms / f"vjob{size}-0.config").stat().st_size for size in sizes} == set(sizes)


def test_what_is_refused_is_answered_and_the_next_call_is_done(node: Node) -> None:
    assert node.call("put-config", "../evil", content=b"x")["kind"] == "failed"
    assert "not a command" in node.call("bogus")["error"]
    assert "not a command" in node.call("serve")["error"]
    assert node.call("put-config", "vjob1-0", content=b"x") == {"bytes": 1}


def test_content_is_the_standard_input_of_its_call_alone(node: Node) -> None:
    assert "standard input is empty" in node.call("put-config", "vjob1-0")["error"]
    assert node.call("drop-config", "vjob1-0", content=b'{"call": 9}\n') == node.call("drop-config", "vjob1-0")


def test_a_call_whose_process_is_killed_is_told_and_the_others_go_on(node: Node, pool: ThreadPoolExecutor) -> None:
    with node.held("vjob1-0", pool) as waiting:
        os.kill(node.children()[0], signal.SIGKILL)
        with pytest.raises(OperationFailedError, match="ended without an answer: -9"):
            waiting.result(PATIENCE_S)
        assert node.call("stat", "vjob1-0", timeout_s=PATIENCE_S) is not None


def test_a_call_that_waits_is_not_done_when_the_engine_has_hung_up(node: Node, pool: ThreadPoolExecutor) -> None:
    with node.held("vjob1-0", pool) as waiting:
        (child,) = node.children()
        node.agent.close()
        with pytest.raises(UnavailableError):
            waiting.result(PATIENCE_S)
        assert node.process.wait(PATIENCE_S) == 0, "nobody is served any more"
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    assert (node.vms / "vjob1-0.config").read_bytes() == b"first"


def test_a_call_that_was_given_up_while_it_waited_is_not_done(node: Node, pool: ThreadPoolExecutor) -> None:
    with node.held("vjob1-0", pool, timeout_s=0.1) as waiting:
        (child,) = node.children()
        with pytest.raises(TimedOutError):
            waiting.result(PATIENCE_S)
        wait_until(lambda: not node.listens_to(child))
    wait_until(lambda: Path(f"/proc/{child}/stat").read_text().split()[2] == "Z")
    node.channel.sendall(b'{"call": 99, "words": ["stat", "vjob1-0"], "bytes": 0}\n')
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    assert (node.vms / "vjob1-0.config").read_bytes() == b"first"


def test_a_call_that_was_given_up_before_a_stopped_agent_read_it_is_not_done(
    node: Node, pool: ThreadPoolExecutor
) -> None:
    node.process.send_signal(signal.SIGSTOP)
    with pytest.raises(TimedOutError):
        node.call("put-config", "vjob1-0", content=b"x", timeout_s=0.1)
    node.process.send_signal(signal.SIGCONT)
    node.agent.close()
    node.process.wait(PATIENCE_S)
    assert not (node.vms / "vjob1-0.config").exists()


def test_a_call_that_waits_is_not_done_when_the_agent_that_serves_is_killed(
    node: Node, pool: ThreadPoolExecutor
) -> None:
    with node.held("vjob1-0", pool) as waiting:
        (child,) = node.children()
        node.process.kill()
        with pytest.raises(UnavailableError):
            waiting.result(PATIENCE_S)
        with pytest.raises(NotServedError):
            node.call("stat", "vjob1-0")
    wait_until(lambda: not is_alive(child))
    assert (node.vms / "vjob1-0.config").read_bytes() == b"first"


def test_a_call_that_prints_something_else_has_no_answer_and_the_others_go_on(tmp_path: Path) -> None:
    nonsense = "do = calls._answer; calls._answer = lambda *of: do(*of) if of[2][0] != 'space' else print('what?') or 0"
    node = Node(tmp_path, changed=nonsense)
    with pytest.raises(OperationFailedError, match="space: the agent ended without an answer: 0"):
        node.call("space")
    assert node.call("put-config", "vjob1-0", content=b"x") == {"bytes": 1}
    node.close()


def test_what_is_no_request_ends_the_agent_without_a_traceback(node: Node) -> None:
    node.channel.sendall(b"GET / HTTP/1.1\r\n")
    _, said = node.process.communicate(timeout=PATIENCE_S)
    assert node.process.returncode == 1
    assert b"Traceback" not in said


def test_the_key_of_a_node_has_nothing_served(tmp_path: Path) -> None:
    node = Node(tmp_path, "--peer")
    assert "not for the key of a node" in node.agent.greeting["error"]
    with pytest.raises(NotServedError):
        node.call("stat", "vjob1-0")
    node.close()


@pytest.mark.parametrize("name", ["__init__.py", "node_agent/verbs.py"])
def test_no_call_is_begun_by_a_release_that_has_been_replaced(tmp_path: Path, name: str) -> None:
    package = tmp_path / "site/rmsplugin"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "native"))
    node = Node(tmp_path, package=package)
    assert node.call("put-config", "vjob1-0", content=b"x") == {"bytes": 1}
    shutil.copy2(package / name, tmp_path / "new")  # of the same time, as in packages that are built alike
    os.replace(tmp_path / "new", package / name)
    with pytest.raises(NotServedError):
        node.call("drop-config", "vjob1-0")
    assert (node.vms / "vjob1-0.config").exists()
    assert not node.agent.is_open
    node.close()


def test_an_agent_does_not_serve_for_ever(tmp_path: Path) -> None:
    node = Node(tmp_path, changed="serving._SERVES_S = 0")
    with pytest.raises(NotServedError):
        node.call("put-config", "vjob1-0", content=b"x")
    assert not (node.vms / "vjob1-0.config").exists()
    assert not node.agent.is_open
    node.close()


# What the process of a call has from the one that serves.


def facts(process: int) -> dict[str, object]:
    """What may make a process behave in another way than its program says."""
    directory = Path(f"/proc/{process}")
    status = dict(line.split(":", 1) for line in (directory / "status").read_text().splitlines())
    names = "Umask Uid Gid Groups Threads SigPnd SigBlk SigIgn SigCgt CapInh CapPrm CapEff CapBnd NoNewPrivs Seccomp"
    files = ("limits", "oom_score_adj", "cgroup", "cmdline", "environ")
    return {
        "cwd": os.readlink(directory / "cwd"),
        "root": os.readlink(directory / "root"),
        **{name: status[name].split() for name in names.split()},
        **{name: (directory / name).read_bytes() for name in files},
    }


def test_the_process_of_a_call_is_as_one_that_was_started_for_it(node: Node, pool: ThreadPoolExecutor) -> None:
    with node.locked("vjob1-0"):
        calls = [pool.submit(node.call, "put-config", "vjob1-0", content=b"x") for _ in range(2)]
        wait_until(lambda: len(node.children()) == 2)
        served_one, served_two = node.children()
        own = node.by_itself("put-config", "vjob1-0", content=b"x")
        for process in (own.pid, served_one, served_two):
            wait_until(lambda process=process: any(path.endswith("/.lock") for path in open_files(process).values()))
        differing = {name for name, fact in facts(own.pid).items() if fact != facts(served_one)[name]}
        assert differing == {"cmdline"}
        files = [open_files(process) for process in (served_one, served_two)]
        assert [sorted(each) for each in files] == [sorted(open_files(own.pid))] * 2
        assert not any(path.startswith("socket:") for each in files for path in each.values()), "the engine's channel"
        assert files[0][1] != files[1][1], "each has a pipe of its own for its answer"
        assert not any(path.endswith("/.lock") for path in open_files(node.process.pid).values())
    own.communicate(timeout=PATIENCE_S)
    for call in calls:
        assert call.result(PATIENCE_S) == {"bytes": 1}
    wait_until(lambda: sorted(open_files(node.process.pid)) == [0, 1, 2])


def test_the_one_that_serves_has_one_thread_and_no_library_of_the_hypervisor(node: Node) -> None:
    node.call("check")
    assert len(list(Path(f"/proc/{node.process.pid}/task").iterdir())) == 1, "a process of many threads must not fork"
    assert "libvirt" not in Path(f"/proc/{node.process.pid}/maps").read_text(), "none of its connections is shared"


def test_two_engines_have_an_agent_each_and_the_same_locks(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    one, two = Node(tmp_path), Node(tmp_path)
    with one.locked("vjob1-0"):
        waiting = [pool.submit(each.call, "put-config", "vjob1-0", content=b"x") for each in (one, two)]
        wait_until(lambda: one.children() and two.children())
        assert not any(call.done() for call in waiting)
    for call in waiting:
        assert call.result(PATIENCE_S) == {"bytes": 1}
    assert two.call("put-config", "vjob1-0", "--epoch", "2", content=b"second") == {"bytes": 6}
    assert one.call("put-config", "vjob1-0", content=b"first")["kind"] == "deposed"
    assert (one.vms / "vjob1-0.config").read_bytes() == b"second"
    one.close()
    assert two.call("drop-config", "vjob1-0", "--epoch", "2") == {}
    two.close()


# The engine's side, with an agent of the test's.


class FakeAgent:
    """An agent that says what a test tells it to say."""

    def __init__(self, greeting: str = '{"serving": 1}') -> None:
        self.ours, engine = socket.socketpair()
        self.ours.settimeout(PATIENCE_S)
        self.say(greeting)
        self.reads = self.ours.makefile("rb")
        self.served = Served(SocketChannel(engine, PATIENCE_S), "agent")

    def say(self, line: str) -> None:
        self.ours.sendall(f"{line}\n".encode())

    def request(self) -> dict[str, Any]:
        header: dict[str, Any] = json.loads(self.reads.readline())
        self.reads.read(header["bytes"])
        return header

    def close(self) -> None:
        self.reads.close()
        self.ours.close()
        self.served.close()


@pytest.fixture
def fake() -> Iterator[FakeAgent]:
    made = FakeAgent()
    yield made
    made.close()


def asked(pool: ThreadPoolExecutor, fake: FakeAgent, timeout_s: float = PATIENCE_S) -> Future[dict[str, Any]]:
    return pool.submit(fake.served.call, ["stat", "vjob1-0"], b"", Patience(timeout_s), "stat on n1")


def test_an_agent_of_an_older_release_is_given_no_call() -> None:
    fake = FakeAgent('{"error": "not a command of the node agent: serve", "kind": "failed"}')
    assert not fake.served.serves
    with pytest.raises(NotServedError):
        fake.served.call(["stat", "vjob1-0"], b"", Patience(1), "stat")
    fake.close()


@pytest.mark.parametrize("last", ["", "nonsense", "[1]"])
def test_all_that_wait_are_told_when_the_channel_breaks(fake: FakeAgent, pool: ThreadPoolExecutor, last: str) -> None:
    waiting = [asked(pool, fake) for _ in range(3)]
    for _ in waiting:
        fake.request()
    if last:
        fake.say(last)
    fake.ours.shutdown(socket.SHUT_WR)
    for call in waiting:
        with pytest.raises(UnavailableError, match="stat on n1: the connection broke"):
            call.result(PATIENCE_S)
    with pytest.raises(NotServedError):
        asked(pool, fake).result(PATIENCE_S)


def test_an_agent_that_let_a_call_pass_its_time_gets_no_more_and_ends_the_others(
    fake: FakeAgent, pool: ThreadPoolExecutor
) -> None:
    patient = asked(pool, fake)
    number = fake.request()["call"]
    with pytest.raises(TimedOutError, match="stat on n1 did not end in time"):
        asked(pool, fake, timeout_s=0.05).result(PATIENCE_S)
    with pytest.raises(NotServedError):
        asked(pool, fake).result(PATIENCE_S)
    fake.say(json.dumps({"call": number, "line": {"bytes": 1}}))
    fake.say(json.dumps({"call": number, "end": True, "status": 0}))
    assert patient.result(PATIENCE_S) == {"bytes": 1}


def test_an_agent_without_calls_is_let_go(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_IDLE_S", 0.05)
    fake = FakeAgent()
    assert fake.reads.read() == b"", "the engine has hung up"
    assert not fake.served.is_open
    fake.close()


def test_an_agent_is_not_let_go_while_a_call_waits(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    idle_s = 0.05
    monkeypatch.setattr(served, "_IDLE_S", idle_s)

    def answer(fake: FakeAgent) -> None:
        with contextlib.suppress(ValueError):  # it was let go before the call
            number = fake.request()["call"]
            time.sleep(4 * idle_s)
            fake.say(json.dumps({"call": number, "line": {"bytes": 1}}))
            fake.say(json.dumps({"call": number, "end": True, "status": 0}))

    for _ in range(100):
        fake = FakeAgent()
        pool.submit(answer, fake)
        with contextlib.suppress(NotServedError):
            assert fake.served.call(["stat", "vjob1-0"], b"", Patience(PATIENCE_S), "stat") == {"bytes": 1}
            break
    else:
        raise AssertionError("it was let go before each call")
    fake.close()


@pytest.mark.parametrize("line", [b"[" * 4000, b'{"call": 1, "line": ' + b"[" * 4000, b"what?"])
def test_a_call_ends_when_the_agent_says_what_is_no_answer(line: bytes, pool: ThreadPoolExecutor) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b'{"serving": 1}\n')
        agent = Served(SocketChannel(ours, PATIENCE_S), "agent")
        waits = pool.submit(agent.call, ["list"], b"", Patience(PATIENCE_S), "list")
        assert theirs.recv(1 << 16)
        theirs.sendall(line + b"\n")
        with pytest.raises(UnavailableError):
            waits.result(PATIENCE_S)


def test_a_frame_of_no_call_does_not_end_the_others(pool: ThreadPoolExecutor) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(b'{"serving": 1}\n')
        agent = Served(SocketChannel(ours, PATIENCE_S), "agent")
        waits = pool.submit(agent.call, ["list"], b"", Patience(PATIENCE_S), "list")
        call = json.loads(theirs.recv(1 << 16).partition(b"\n")[0])["call"]
        for frame in ({"call": []}, {"call": {}}, {}, {"call": call, "line": {"vms": []}}):
            theirs.sendall(json.dumps(frame).encode() + b"\n")
        theirs.sendall(json.dumps({"call": call, "end": True, "status": 0}).encode() + b"\n")
        assert waits.result(PATIENCE_S) == {"vms": []}
