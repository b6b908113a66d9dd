"""What only containers can get wrong: moments between restore and resume, the node's half that dies, what is left."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from contract.hypervisor.on_podman import PodmanWorld
from contract.hypervisor.steps import (
    boot,
    checkpoint,
    checkpoint_path,
    have_up,
    power,
    run_on_podman,
    saved,
    the_other_half,
)
from contract.hypervisor.worlds import VM, A, B, World, eventually, only_podman, spec
from patience import PATIENCE_S

from rmsplugin.adapters.nodes.base import Guard
from rmsplugin.adapters.platform.base import NODE_FILTER, ContainerImage, Platform, VMPower
from rmsplugin.errors import DeposedError, NotFoundError, OperationFailedError, RmspluginError

_COUNTS = "i=0; while :; do i=$((i+1)); echo $i >/tmp/new; mv /tmp/new /tmp/count; done"
_PORT = 7000


def here(world: World) -> PodmanWorld:
    assert isinstance(world, PodmanWorld)
    return world


def have_counter(world: PodmanWorld) -> None:
    """Have a VM on A that counts in a file as fast as it can."""
    boot(world)
    world.begin(A, VM, _COUNTS)
    eventually(lambda: world.file_of(A, VM, "/tmp/count") != "")


@only_podman
def test_a_restored_vm_has_not_lived_a_moment_before_it_is_let_go_on(world: World) -> None:
    world = here(world)
    have_counter(world)
    world.hypervisor.pause(A, VM, timeout_s=20)
    count = world.file_of(A, VM, "/tmp/count")
    saved(world)
    for _ in range(3):
        world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
        assert world.file_of(A, VM, "/tmp/count") == count
        time.sleep(0.5)
        assert (power(world, A), world.file_of(A, VM, "/tmp/count")) == (VMPower.PAUSED, count)
        world.hypervisor.stop(A, VM, timeout_s=20)
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    eventually(lambda: int(world.file_of(A, VM, "/tmp/count") or 0) > int(count) + 100)


@only_podman
def test_a_restored_vm_is_ended_where_the_node_cannot_stop_it(world: World) -> None:
    """The hook fails at the stage before: CRIU gives up, and no process has gone on."""
    world = here(world)
    boot(world)
    saved(world)
    with world.replaced(A, "/etc/criu/rmsplugin", "/bin/false"), pytest.raises(OperationFailedError):
        world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    assert world.hypervisor.list_vms(A) == {}
    with (
        world.replaced(A, "/etc/criu/rmsplugin", "/bin/true"),
        pytest.raises(OperationFailedError, match="stand still"),
    ):
        world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    assert world.hypervisor.list_vms(A) == {}
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)


@only_podman
@pytest.mark.parametrize("where", [A, B])
def test_connections_go_on_where_the_vm_is_restored(world: World, where: str) -> None:
    world = here(world)
    boot(world)
    world.begin(A, VM, f"nc -ll -p {_PORT} -e cat")

    def says_again(connection: socket.socket, what: bytes) -> bool:
        connection.sendall(what)
        return connection.recv(100) == what

    connection: socket.socket | None = None

    def connected() -> bool:
        nonlocal connection
        with contextlib.suppress(OSError):
            connection = socket.create_connection((spec().address, _PORT), timeout=PATIENCE_S)
        return connection is not None

    eventually(connected)
    assert connection is not None
    with connection:
        assert says_again(connection, b"before\n")
        digest = saved(world)
        if where != A:
            world.nodes.send(A, where, VM, digest, timeout_s=60)
        world.hypervisor.restore(where, spec(), world.state_path(VM), timeout_s=60)
        world.hypervisor.unpause(where, VM, timeout_s=20)
        assert says_again(connection, b"after\n")
    world.hypervisor.stop(where, VM, timeout_s=20)


@only_podman
def test_nobody_answers_for_a_vm_that_stands_still(world: World) -> None:
    """Not even the kernel: what it acknowledged would be in no state that is written, and is lost then."""
    world = here(world)
    boot(world)
    world.begin(A, VM, f"nc -ll -p {_PORT} -e cat")

    def answers(timeout_s: float) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((spec().address, _PORT), timeout=timeout_s):
            return True
        return False

    eventually(lambda: answers(5))
    world.hypervisor.pause(A, VM, timeout_s=20)
    assert not answers(1)
    checkpoint(world, 1)
    assert not answers(1)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    assert answers(PATIENCE_S)
    checkpoint(world, 2)
    assert answers(PATIENCE_S)
    saved(world)
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    assert not answers(1)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    assert answers(PATIENCE_S)
    for number in (1, 2):
        world.nodes.drop_state(A, VM, checkpoint=number)


@only_podman
@pytest.mark.parametrize("first", [0, 1])
def test_what_two_vms_say_to_each_other_arrives_whole_whoever_is_restored_first(world: World, first: int) -> None:
    world = here(world)
    server, client = vms = [spec("vjob9006-0"), spec("vjob9006-1")]
    places = [A, B]
    for node, vm in zip(places, vms, strict=True):
        boot(world, node, vm)
    world.begin(A, server.name, f"nc -ll -p {_PORT} -e cat")
    numbers = "i=0; while :; do i=$((i+1)); echo $i; usleep 20000; done"
    world.begin(B, client.name, f"until ({numbers}) | nc {server.address} {_PORT} >>/tmp/echo; do sleep 1; done")

    def heard() -> list[int]:
        return [int(line) for line in world.file_of(B, client.name, "/tmp/echo").split()]

    def hears(more: int) -> None:
        then = len(heard()) + more
        eventually(lambda: len(heard()) > then)

    hears(20)
    for _ in range(2):
        for act in (world.hypervisor.pause, world.hypervisor.unpause, world.hypervisor.pause):
            for node, vm in zip(places, vms, strict=True):
                act(node, vm.name, timeout_s=20)
        for node, vm in zip(places, vms, strict=True):
            saved(world, node, vm.name)
        for number in (first, 1 - first):
            node, vm = places[number], vms[number]
            world.hypervisor.restore(node, vm, world.state_path(vm.name), timeout_s=60)
            world.hypervisor.unpause(node, vm.name, timeout_s=20)
            time.sleep(1)  # the one that goes on speaks to nobody
        hears(50)
        said = heard()
        assert said[:-1] == list(range(1, len(said)))


@only_podman
def test_a_deposed_engine_does_nothing_with_containers_and_may_look(world: World) -> None:
    world = here(world)
    boot(world)
    saved(world)
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    path, other = world.state_path(VM), spec("vjob9002-0")
    world.nodes.put_config(A, other.name, world.config(other))
    with world.of_epoch(4) as (old, _), world.of_epoch(5) as (_, agents):
        agents.obey(A)
        acts: list[Callable[[], object]] = [
            lambda: old.boot(A, other, timeout_s=20),
            lambda: old.stop(A, VM, timeout_s=20),
            lambda: old.save(A, VM, f"{path}.partial", timeout_s=20),
            lambda: old.checkpoint(A, VM, checkpoint_path(world, 1), timeout_s=20),
            lambda: old.restore(A, other, path, timeout_s=20),
            lambda: old.pause(A, VM, timeout_s=20),
            lambda: old.unpause(A, VM, timeout_s=20),
            lambda: old.abort_job(A, VM),
        ]
        for act in acts:
            with pytest.raises(DeposedError):
                act()
        assert {name: vm.power for name, vm in old.list_vms(A).items()} == {VM: VMPower.PAUSED}
        assert old.has_vm(A, VM) and old.statistics(A) and old.host_info(A)


@only_podman
def test_an_engine_that_is_deposed_while_it_waits_for_a_restore_gets_no_vm(world: World) -> None:
    """The next engine has looked meanwhile, and has not seen a VM that may go on."""
    world = here(world)
    have_up(world)
    saved(world)
    failures: list[Exception] = []

    def restore() -> None:
        try:
            old.restore(A, spec(), world.state_path(VM), timeout_s=60)
        except RmspluginError as error:
            failures.append(error)

    with world.of_epoch(4) as (old, _), world.of_epoch(5) as (_, agents):
        with world.slow_save(A, VM):  # CRIU takes its time at a restore, too
            thread = threading.Thread(target=restore)
            thread.start()
            eventually(lambda: world.on(A, "pgrep", "-f", "runc .* restore").returncode == 0)
            agents.obey(A)
            thread.join(PATIENCE_S)
        assert [type(error) for error in failures] == [DeposedError]
        eventually(lambda: world.hypervisor.list_vms(A) == {})
    assert world.exists(A, world.state_path(VM))


@only_podman
@pytest.mark.parametrize("act", ["boot", "restore", "save", "checkpoint", "stop"])
def test_what_an_agent_leaves_that_is_killed_in_an_act_can_be_gone_on_with(world: World, act: str) -> None:
    world = here(world)
    path, state = world.state_path(VM) + ".partial", world.state_path(VM)
    acts: dict[str, Callable[[Platform], None]] = {
        "boot": lambda platform: platform.boot(A, spec(), timeout_s=60),
        "restore": lambda platform: platform.restore(A, spec(), state, timeout_s=60),
        "save": lambda platform: platform.save(A, VM, path, timeout_s=60),
        "checkpoint": lambda platform: platform.checkpoint(A, VM, path, timeout_s=60),
        "stop": lambda platform: platform.stop(A, VM, timeout_s=60),
    }
    outcomes = []
    for tenths in range(0, 16, 3):
        world.nodes.drop_state(A, VM)
        world.nodes.put_config(A, VM, world.config(spec()))
        if act != "boot":
            world.hypervisor.boot(A, spec(), timeout_s=60)
        if act == "restore":
            saved(world)
        world.kills_agents(A, lambda: acts[act](world.hypervisor), after_s=tenths / 10)
        eventually(lambda: world.on(A, "pgrep", "-x", "podman|criu").returncode == 1)
        found = power(world, A)
        partial = world.nodes.stat(A, VM).partial
        outcomes.append((tenths, found, partial.complete if partial else None))
        # No moment without the VM and without its state.
        assert found is not None or act in ("boot", "restore", "stop") or (partial is not None and partial.complete)
        assert act != "restore" or found in (None, VMPower.PAUSED)
        # An engine goes on.
        if found is None and act == "save":
            world.nodes.seal(A, VM)
        if found is None and act in ("save", "restore"):
            world.hypervisor.restore(A, spec(), state, timeout_s=60)
        world.hypervisor.boot(A, spec(), timeout_s=60)
        world.hypervisor.unpause(A, VM, timeout_s=20)
        assert power(world, A) is VMPower.RUNNING
        world.nodes.drop_state(A, VM)
        saved(world)
        assert world.hypervisor.list_vms(A) == {}
    print(act, outcomes)


@only_podman
def test_a_process_that_is_stopped_keeps_its_vm_from_being_saved_and_from_nothing_else(world: World) -> None:
    """CRIU would wait for it without end, where control groups are of version 1."""
    world = here(world)
    boot(world)
    world.begin(A, VM, "echo $$ >/tmp/pid; kill -STOP $$; touch /tmp/went-on")
    eventually(lambda: "T" in world.inside(A, VM, "awk '{print $3}' /proc/$(cat /tmp/pid)/stat"))
    path = world.state_path(VM) + ".partial"
    for act in (world.hypervisor.save, world.hypervisor.checkpoint):
        with pytest.raises(OperationFailedError, match="is stopped"):
            act(A, VM, path, timeout_s=60)
        assert power(world, A) is VMPower.RUNNING
        assert not world.exists(A, path)
    world.inside(A, VM, "kill -CONT $(cat /tmp/pid); until test -e /tmp/went-on; do usleep 10000; done")
    saved(world)


@only_podman
def test_a_configuration_that_is_written_anew_while_the_vm_runs_keeps_it_from_nothing(world: World) -> None:
    """The engine writes it before each start that it tries, also of a VM that is there by then."""
    world = here(world)
    boot(world)
    for _ in range(2):
        world.nodes.put_config(A, VM, world.config(spec()))
        saved(world)
        world.nodes.put_config(A, VM, world.config(spec()))
        world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
        world.hypervisor.unpause(A, VM, timeout_s=20)
        assert f"hostname={VM}" in world.inside(A, VM, "cat /usr/lib/rmsplugin/config")


@only_podman
def test_nothing_is_left_of_a_vm_that_has_ended_however_it_did(world: World) -> None:
    world = here(world)
    before = world.left(A)
    boot(world)
    saved(world)
    boot(world)
    world.kill(A, VM)
    eventually(lambda: not world.hypervisor.has_vm(A, VM))
    world.nodes.drop_state(A, VM)
    world.nodes.drop_config(A, VM)
    eventually(lambda: world.left(A) == before)


@only_podman
def test_the_nodes_own_settings_say_which_images_and_directories_there_are(world: World) -> None:
    world = here(world)
    image = spec().image
    assert isinstance(image, ContainerImage)
    world.nodes.put_config(A, VM, world.config(spec()))
    for other, what in (
        (replace(image, reference="localhost/other:1"), "no image of this node's settings"),
        (replace(image, mounts=(("/etc", True),)), "no mount of this node's settings"),
        (replace(image, mounts=(("/home/../etc", False),)), "no mount of this node's settings"),
    ):
        with pytest.raises(OperationFailedError, match=what):
            world.hypervisor.boot(A, spec(image=other), timeout_s=30)
        assert world.hypervisor.list_vms(A) == {}
    world.hypervisor.boot(A, spec(image=replace(image, mounts=(("/home", True),))), timeout_s=30)
    assert "alice" in world.inside(A, VM, "ls /home")


@only_podman
def test_a_vm_that_is_to_be_filtered_does_not_start_without_its_filter(world: World) -> None:
    world = here(world)
    filtered = spec(network_filter=NODE_FILTER)
    world.nodes.put_config(A, VM, world.config(filtered))
    with pytest.raises(OperationFailedError, match="to be filtered here, and is not"):
        world.hypervisor.boot(A, filtered, timeout_s=30)
    assert world.hypervisor.list_vms(A) == {}
    world.nodes.put_config(A, VM, world.config(filtered), Guard(filtered.mac, filtered.address))
    world.hypervisor.boot(A, filtered, timeout_s=30)
    assert power(world, A) is VMPower.RUNNING


@only_podman
def test_root_in_a_container_has_few_rights_and_no_new_ones(world: World) -> None:
    world = here(world)
    boot(world)
    said = dict(line.split(":\t", 1) for line in world.inside(A, VM, "cat /proc/self/status").splitlines())
    # CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE
    assert int(said["CapBnd"], 16) & ~0x4FB == 0
    assert (said["NoNewPrivs"].strip(), said["Seccomp"].strip()) == ("1", "2")
    assert world.inside(A, VM, "ip link add x type dummy 2>/dev/null || echo refused").strip() == "refused"


@only_podman
def test_states_are_only_written_and_read_in_stores(world: World) -> None:
    world = here(world)
    boot(world)
    for path in (f"/etc/{VM}.state", "/var/lib/rmsplugin/store/vjob1-0.state", "/var/lib/rmsplugin/store/../x"):
        with pytest.raises(OperationFailedError, match="not "):
            world.hypervisor.save(A, VM, path, timeout_s=20)
    with pytest.raises(NotFoundError):
        world.hypervisor.restore(A, spec("vjob9002-0"), world.state_path("vjob9002-0"), timeout_s=20)
    assert power(world, A) is VMPower.RUNNING


# The other half.


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1600)
@the_other_half
def test_on_podman(request: pytest.FixtureRequest) -> None:
    run_on_podman(request, __file__)
