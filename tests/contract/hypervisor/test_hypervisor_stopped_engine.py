"""An engine is stopped in the middle of each call of libvirt, another one leads, and the first is let go on.

It is stopped in the middle of and after each message that it sends to a libvirtd through the agent. The same for the
drop of a saved state, which the agent does itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from contract.hypervisor import engine_in_call
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.steps import have_up, power, run_on_libvirt, the_other_half
from contract.hypervisor.worlds import VM, A, B, World, only_libvirt, spec
from journal.check import check
from journal.journal import Journal
from patience import PATIENCE_S

from rmsplugin.adapters.platform.base import Platform, VMPower

OLD, NEW = 4, 5
JOB = 9001
#: So many messages are tried, of a migration, which asks again and again how far it is. Other calls send fewer.
_MOST = 20
#: Nothing changes any more when nothing has for so long, in seconds.
_QUIET_S = 0.8

Seen = tuple[VMPower | None, VMPower | None, bool]


class Stopped:
    """An engine of its own process that stops itself in a call."""

    def __init__(self, world: LibvirtWorld, act: str, write: int, part: str, state: str) -> None:
        etc = world.directory / "hosts/head/etc/rmsplugin"
        words = [f"{etc}/agent_key", f"{etc}/known_hosts", str(OLD), act, str(write), part, state]
        self.process = subprocess.Popen(
            [sys.executable, engine_in_call.__file__, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def is_stopped(self) -> bool:
        """Wait until it has stopped, or ended."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return False

    def goes_on(self) -> str:
        """Let it go on; return what it says at last."""
        self.process.send_signal(signal.SIGCONT)
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        return said.strip()

    def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()


def seen(world: World, journal: Journal, state: str) -> Seen:
    """What there is of the VM; in the journal, too."""
    now = power(world, A), power(world, B)
    for node, is_there in zip((A, B), now, strict=True):
        runs = is_there is VMPower.RUNNING
        journal.vm(JOB, VM, node, "running" if runs else "standing" if is_there else "gone")
    return (*now, world.exists(A, state))


def settled(world: World, journal: Journal, state: str) -> Seen:
    """What there is when nothing changes any more."""
    deadline, last, since = time.monotonic() + PATIENCE_S, seen(world, journal, state), time.monotonic()
    while time.monotonic() - since < _QUIET_S:
        assert time.monotonic() < deadline, f"never settled: {last}"
        if last != (now := seen(world, journal, state)):
            last, since = now, time.monotonic()
        time.sleep(0.05)
    return last


def prepare(world: World, act: str, state: str) -> None:
    """Have the VM as the act finds it."""
    if act == "boot":
        for node in (A, B):
            world.nodes.put_config(node, VM, b"key=value\n")
        return
    have_up(world)
    if act in ("restore", "drop"):
        world.hypervisor.save(A, VM, state, timeout_s=60)
    elif act == "unpause":
        world.hypervisor.pause(A, VM, timeout_s=20)


def does_next(act: str, platform: Platform, found: Seen) -> None:
    """What the next engine does with what it finds: the opposite of what the old one is about to do, where it may."""
    if act == "boot" and found[:2] == (None, None):
        platform.boot(B, spec(epoch=NEW), timeout_s=60)
    elif act == "migrate" and found[0] is VMPower.RUNNING:
        platform.pause(A, VM, timeout_s=20)
        platform.unpause(A, VM, timeout_s=20)


@only_libvirt
@pytest.mark.parametrize("part", ["half", "all"])
@pytest.mark.parametrize("act", ["boot", "restore", "migrate", "save", "unpause", "stop", "drop"])
def test_an_engine_that_is_stopped_in_a_call_changes_nothing_when_it_goes_on(world: World, act: str, part: str) -> None:
    assert isinstance(world, LibvirtWorld)
    state = world.state_path(VM)
    outcomes = []
    with world.letting_through():
        for write in range(1, _MOST):
            prepare(world, act, state)
            said = try_at(world, act, write, part)
            for node in (A, B):
                world.hypervisor.stop(node, VM, timeout_s=20)
                world.nodes.drop_state(node, VM)
            if said is None:
                break
            outcomes.append(said)
    print(act, part, outcomes)
    assert outcomes, "it was stopped"
    assert not any("CorruptStateError" in said for said in outcomes), "what is refused is not lost"


def try_at(world: LibvirtWorld, act: str, write: int, part: str) -> str | None:
    """Stop an engine at this message of the call. Returns what it said at last; None if it has sent fewer."""
    state, journal = world.state_path(VM), Journal(time.monotonic)
    prepared = seen(world, journal, state)
    journal.lead("old", OLD, time.monotonic() + PATIENCE_S)
    asked = journal.act("old", OLD, "hypervisor", act, VM, JOB, [A])
    stopped = Stopped(world, act, write, part, state)
    try:
        with world.of_epoch(NEW) as (platform, agents):
            if not stopped.is_stopped():
                return None
            if settled(world, journal, state) != prepared:
                asked.accepted(time.monotonic())
                asked.ended(time.monotonic(), "done")
            journal.ends("old")
            journal.lead("new", NEW, time.monotonic() + PATIENCE_S)
            for node in (A, B):
                journal.act("new", NEW, "agent", "obey", VM, JOB, [node]).accepted(time.monotonic())
                agents.obey(node)
            does_next(act, platform, settled(world, journal, state))
            before = settled(world, journal, state)
            said = stopped.goes_on()
            after = settled(world, journal, state)
            if after != before:
                journal.act("old", OLD, "hypervisor", act, VM, JOB, [A]).accepted(time.monotonic())
            what = f"{act}, message {write}, {part}: {before} became {after}: {said}"
            assert after == before, [what, *check(journal.lines()).breaches]
            assert check(journal.lines()).breaches == [], what
            return said
    finally:
        stopped.end()


# The other half.


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1600)
@the_other_half
def test_on_libvirt(request: pytest.FixtureRequest) -> None:
    run_on_libvirt(request, __file__)
