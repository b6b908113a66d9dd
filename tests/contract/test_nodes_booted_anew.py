"""A node that is booted anew does nothing before an engine has shown there that it leads: real agents, real stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from contract import engine_at_new_node
from contract.test_nodes import NODE, VM, LocalAgents
from patience import PATIENCE_S

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.adapters.nodes.answers import UnownedError
from rmsplugin.errors import DeposedError
from rmsplugin.node_agent import owner
from rmsplugin.node_agent.errors import AgentError

OLD, NEW = 4, 5
#: Long enough for a call on a loaded machine; the tests in which a session ends wait for it.
SESSION_S = 8.0


@contextmanager
def deposed() -> Iterator[float | None]:
    raise DeposedError("its lease has ended")
    yield None


@contextmanager
def until_now() -> Iterator[float | None]:
    """A lease that ends before any message arrives."""
    yield steady_s()


class Machine:
    """A node of a site with several engines."""

    def __init__(self, directory: Path) -> None:
        self.vm_dir = directory / "vm"
        self.config = directory / "rmsplugin.toml"
        self.config.write_text(
            f'[nodes]\nstore = "{directory / "store"}"\nvm_dir = "{self.vm_dir}"\n'
            '[cluster]\ncoordination = "zookeeper"\nservers = ["c1:2181"]\n'
        )

    def engine(self, epoch: int, permit: Permit = nullcontext) -> LocalAgents:
        return LocalAgents(self.config, epoch, permit=permit)

    def configs(self) -> list[str]:
        return sorted(path.name for path in self.vm_dir.glob("*.config"))

    def boot_without_memory(self) -> None:
        """As a node without disks is."""
        for path in self.vm_dir.iterdir():
            path.unlink()

    def boot_with_disk(self) -> None:
        """What was written in another boot has its id."""
        for path in self.vm_dir.glob(".owned-*"):
            path.write_text("00000000-0000-4000-8000-000000000000\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("boot", [Machine.boot_without_memory, Machine.boot_with_disk])
def test_a_node_that_is_booted_anew_obeys_the_one_that_leads_and_nobody_before(
    machine: Machine, boot: Callable[[Machine], None]
) -> None:
    """The second boot is what an epoch alone does not show: the deposed engine is the first that comes."""
    before = machine.engine(OLD)
    before.put_config(NODE, VM, b"of the engine that led")
    boot(machine)
    before._claims._permit = deposed
    with pytest.raises(DeposedError, match="its lease has ended"):
        before.drop_config(NODE, VM)
    machine.engine(NEW).put_config(NODE, VM, b"of the one that leads")
    before._claims._permit = nullcontext
    with pytest.raises(DeposedError, match=rf"turn of this engine \(epoch {OLD}\) is over"):
        before.drop_config(NODE, VM)
    assert machine.configs() == [f"{VM}.config"]


def test_one_word_of_an_engine_that_leads_is_enough_until_the_next_boot(machine: Machine) -> None:
    machine.engine(OLD).obey(NODE)
    for epoch in (OLD, NEW):
        machine.engine(epoch, deposed).put_config(NODE, VM, b"nobody is asked for its lease")
    machine.boot_with_disk()
    with pytest.raises(DeposedError, match="its lease has ended"):
        machine.engine(NEW, deposed).obey(NODE)


def test_a_word_that_comes_after_the_end_of_the_lease_is_not_believed(machine: Machine) -> None:
    engine = machine.engine(OLD, until_now)
    with pytest.raises(UnownedError, match="came after the end of its lease"):
        engine.put_config(NODE, VM, b"a=b")
    assert machine.configs() == []


@pytest.mark.parametrize("boot", ["", "00000000-0000-4000-8000-000000000000"], ids=["this boot", "another boot"])
def test_a_word_that_was_in_time_when_it_came_and_is_late_when_it_is_written_changes_nothing(
    machine: Machine, boot: str
) -> None:
    machine.engine(NEW).obey(NODE)
    (file,) = machine.vm_dir.glob(".owned-*")
    before = f"{boot or owner.boot_id()}\n"
    file.write_text(before)
    with pytest.raises(AgentError, match="came after the end of its lease"):
        owner.keep(machine.vm_dir, owner.Claim(owner.boot_id(), owner.now_ms()))
    assert file.read_text() == before


def test_a_word_that_is_late_once_it_is_written_is_taken_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.engine(NEW).obey(NODE)
    machine.boot_with_disk()
    times = iter([9, 10, 10])  # milliseconds: at the first look, at the second, for the answer
    monkeypatch.setattr(owner, "now_ms", lambda: next(times))
    with pytest.raises(AgentError, match="came after the end of its lease"):
        owner.keep(machine.vm_dir, owner.Claim(owner.boot_id(), 10))
    assert not owner.is_known(machine.vm_dir)


def test_nobody_acts_on_a_word_before_it_is_known_to_be_in_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.vm_dir.mkdir()
    call: list[subprocess.Popen[str]] = []

    def second_look() -> int:
        call.append(begin(machine, "drop-config", VM))
        wait_until(lambda: call[0].poll() is not None or is_waited_for(machine.vm_dir))
        return 10

    times = iter([lambda: 9, second_look])
    monkeypatch.setattr(owner, "now_ms", lambda: next(times, lambda: 10)())
    with pytest.raises(AgentError, match="came after the end of its lease"):
        owner.keep(machine.vm_dir, owner.Claim(owner.boot_id(), 10))
    said, _ = call[0].communicate(timeout=PATIENCE_S)
    assert json.loads(said)["kind"] == "unowned"


def begin(machine: Machine, *words: str) -> subprocess.Popen[str]:
    """A call of the node's agent that goes on meanwhile."""
    command = [sys.executable, "-m", "rmsplugin.node_agent.main", "--config", str(machine.config), *words]
    environment = {name: value for name, value in os.environ.items() if name != "SSH_ORIGINAL_COMMAND"}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_waited_for(vm_dir: Path) -> bool:
    """Whether a process waits for the lock of the node's word. To open it here would end the lock of this process."""
    (file,) = vm_dir.glob(".owned-*")
    inode = f":{file.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_word_for_the_boot_before_is_not_believed(machine: Machine) -> None:
    engine = machine.engine(OLD)
    said = engine._answer_once(NODE, ["obey"])
    assert said["kind"] == "unowned"
    refused = engine._answer_once(NODE, ["obey", "00000000-0000-4000-8000-000000000000", "-"])
    assert (refused["kind"], refused["boot"]) == ("unowned", said["boot"])
    assert "booted anew meanwhile" in refused["error"]
    assert engine._answer_once(NODE, ["obey", said["boot"], str(said["now_ms"] + 60_000)]) == {}


def test_looks_are_open_to_all_on_a_node_that_knows_nobody(machine: Machine) -> None:
    assert machine.engine(OLD, deposed).check(NODE).epoch == 1


@pytest.mark.parametrize("known", [False, True], ids=["unheard", "heard"])
@pytest.mark.parametrize("message", [1, 2, 3])
def test_an_engine_that_is_stopped_on_the_way_does_nothing_when_it_has_lost(
    machine: Machine, message: int, known: bool
) -> None:
    """It is stopped before the call, between its look at the lease and its word, or before the call's repetition.

    ``unheard``: the node has not heard of the next engine, and the one that was stopped is the first that it hears.
    Once the node has believed it, the next one has to reach the node, as every node (``heard``).
    """
    if message == 3 and not known:
        pytest.skip("a node that has believed an engine in time obeys it until it hears of the next one")
    engine = subprocess.Popen(
        [sys.executable, engine_at_new_node.__file__, machine.config, str(OLD), str(SESSION_S), str(message)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        _, status = os.waitpid(engine.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), "it was stopped"
        time.sleep(SESSION_S)
        if known:
            machine.engine(NEW).obey(NODE)
        engine.send_signal(signal.SIGCONT)
        said, _ = engine.communicate(timeout=PATIENCE_S)
    finally:
        engine.kill()
        engine.wait()
    assert said.startswith("DeposedError: "), said
    assert machine.configs() == []
    if not known:
        asked = machine.engine(OLD)._answer_once(NODE, ["obey"])
        assert asked.get("kind") == "unowned", "it has not believed the one that had lost"
