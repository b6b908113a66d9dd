"""The contract of hypervisors and nodes: the node agents, which the states go through."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.steps import (
    at_most,
    boot,
    have_up,
    power,
    run_on_libvirt,
    run_on_podman,
    saved,
    the_other_half,
)
from contract.hypervisor.worlds import (
    SLACK_S,
    VM,
    A,
    B,
    World,
    eventually,
    only_libvirt,
    spec,
)

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.errors import (
    CorruptStateError,
    NoSpaceError,
    NotFoundError,
    OperationFailedError,
    UnavailableError,
)


@pytest.mark.needs("suspend")
def test_node_agent_tells_what_is_wrong(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.nodes.seal(A, VM)
    with pytest.raises(NotFoundError):
        world.nodes.verify(A, VM, Digest(1, "0" * 128), timeout_s=20)
    boot(world)
    digest = saved(world)
    assert world.nodes.stat(A, VM).final_bytes == digest.size_bytes
    assert world.nodes.list_files(A).states == {VM}
    with pytest.raises(CorruptStateError):
        world.nodes.verify(A, VM, Digest(digest.size_bytes, "0" * 128), timeout_s=20)
    world.damage(A, world.state_path(VM), "garbage")
    with pytest.raises(CorruptStateError):
        world.nodes.send(A, B, VM, digest, timeout_s=20)
    assert world.nodes.list_files(B).states == frozenset()
    world.nodes.drop_state(A, VM)
    world.nodes.drop_state(A, VM)
    assert world.nodes.stat(A, VM).final_bytes is None


@pytest.mark.needs("suspend")
def test_seal_asked_again_says_the_same(world: World) -> None:
    boot(world)
    world.hypervisor.save(A, VM, world.state_path(VM) + ".partial", timeout_s=60)
    steps: list[tuple[int, int]] = []
    digest = world.nodes.seal(A, VM, progress=lambda *step: steps.append(step))
    assert steps[-1] == (digest.size_bytes, digest.size_bytes)
    assert world.nodes.seal(A, VM) == digest
    assert not world.exists(A, world.state_path(VM) + ".partial")
    world.nodes.verify(A, VM, digest, timeout_s=20)


@pytest.mark.needs("suspend")
def test_newer_save_is_sealed_over_an_older_state(world: World) -> None:
    boot(world)
    older = saved(world)
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    newer = saved(world)
    assert newer != older
    world.nodes.verify(A, VM, newer, timeout_s=20)


@pytest.mark.needs("suspend")
def test_copy_replaces_an_older_state(world: World) -> None:
    boot(world)
    world.nodes.send(A, B, VM, saved(world), timeout_s=60)
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    newer = saved(world)
    with pytest.raises(OperationFailedError, match="another state"):
        world.nodes.send(A, B, VM, newer, timeout_s=60, replaces=False)
    world.nodes.send(A, B, VM, newer, timeout_s=60)
    world.nodes.send(A, B, VM, newer, timeout_s=60, replaces=False)
    world.nodes.verify(B, VM, newer, timeout_s=20)
    world.nodes.verify(A, VM, newer, timeout_s=20)


@pytest.mark.needs("suspend")
@only_libvirt
def test_node_without_the_program_is_refused_and_loses_nothing(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    have_up(world)
    program = f"/usr/bin/{world.nodes.check(A).save_format}"
    digest = saved(world)
    refused = pytest.raises(OperationFailedError, match="cannot be restored on this node, which has no program")
    with world.without(B, program), refused:
        world.nodes.send(A, B, VM, digest, timeout_s=60)
    with world.without(A, program):
        with refused:
            world.nodes.verify(A, VM, digest, timeout_s=60)
        with pytest.raises(OperationFailedError) as refusal:
            world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
        assert "state" not in type(refusal.value).__name__.lower(), "what cannot be loaded here is not lost"
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    with world.without(A, program):
        with pytest.raises(OperationFailedError):
            world.hypervisor.save(A, VM, world.state_path(VM) + ".partial", timeout_s=60)
        assert power(world, A) is VMPower.RUNNING
        assert not world.exists(A, world.state_path(VM) + ".partial")


@pytest.mark.needs("suspend")
@only_libvirt
def test_key_of_a_node_brings_copies_and_nothing_else(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    boot(world)
    digest = saved(world)
    reach = world.nodes.reach(B, A)
    assert (reach.agent, reach.platform_open, reach.unrestricted) == ("", False, False)
    ssh = [
        "ssh",
        "-F",
        "/dev/null",
        "-i",
        "/etc/rmsplugin/node_key",
        "-o",
        "UserKnownHostsFile=/etc/rmsplugin/known_hosts",
    ]
    for words in (f"drop-state {VM}", f"send {VM} {B} {digest.size_bytes} {digest.blake2b}", "list"):
        done = world.on(B, *ssh, f"root@{A}", words)
        assert done.returncode == 1 and "not for the key of a node" in done.stdout
    world.nodes.verify(A, VM, digest, timeout_s=20)
    assert world.nodes.list_files(B).states == frozenset()


@pytest.mark.needs("suspend")
def test_send_to_a_full_node(world: World) -> None:
    have_up(world)
    digest = saved(world)
    with world.leave_room(B, 1), pytest.raises(NoSpaceError):
        world.nodes.send(A, B, VM, digest, timeout_s=20)
    world.nodes.verify(A, VM, digest, timeout_s=20)


@only_libvirt
def test_node_with_another_host_key_is_refused(world: World, tmp_path: Path) -> None:
    assert isinstance(world, LibvirtWorld)
    known = Path(world.nodes.known_hosts_path).read_text().splitlines()
    keys = [line.partition(" ")[2] for line in known]
    swapped = tmp_path / "known_hosts"
    swapped.write_text(f"{A} {keys[1]}\n")
    agents = NodeAgents("root", world.nodes.key_path, str(swapped), connect_timeout_s=5)
    with pytest.raises(UnavailableError):
        agents.space(A)
    with pytest.raises(UnavailableError):
        agents.space(B)


@only_libvirt
def test_node_agent_is_reached_again_after_its_sshd_was_restarted(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    assert world.nodes.space(A).free_bytes > 0
    assert world.minicluster("kill", A, "sshd").returncode == 0
    # Of this node alone: it has a PID namespace of its own. Since OpenSSH 9.8 a connection has a program of its own.
    sessions = world.on(A, "pgrep", "-x", "sshd|sshd-session").stdout.split()
    assert world.on(A, "kill", "-KILL", *sessions).returncode == 0
    with at_most(SLACK_S), pytest.raises(UnavailableError):
        world.nodes.space(A)
    assert world.minicluster("restart", A, "sshd").returncode == 0
    eventually(lambda: world.nodes.space(A).free_bytes > 0)


@only_libvirt
def test_silent_node_agent_is_given_up_in_time(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    agents = NodeAgents("root", world.nodes.key_path, world.nodes.known_hosts_path, connect_timeout_s=2)
    assert world.minicluster("kill", A, "sshd", "--signal", "STOP").returncode == 0
    try:
        with at_most(SLACK_S), pytest.raises(UnavailableError):
            agents.space(A)
    finally:
        assert world.minicluster("kill", A, "sshd", "--signal", "CONT").returncode == 0
    assert agents.space(A).free_bytes > 0
    agents.close()


# The other half.


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1600)
@the_other_half
def test_on_libvirt(request: pytest.FixtureRequest) -> None:
    run_on_libvirt(request, __file__)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1600)
@the_other_half
def test_on_podman(request: pytest.FixtureRequest) -> None:
    run_on_podman(request, __file__)
