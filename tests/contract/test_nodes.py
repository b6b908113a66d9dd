"""The contract of ``adapters.nodes.base.Nodes`` on stores: simulated, and the real agent, once a call and serving."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from socket_channel import served_by

from rmsplugin.adapters.bounded import Permit
from rmsplugin.adapters.nodes.base import Digest, Nodes, Template
from rmsplugin.adapters.nodes.served import SERVED, NotServedError, Served
from rmsplugin.adapters.nodes.ssh import NodeAgents
from rmsplugin.adapters.nodes.ssh_link import Patience
from rmsplugin.adapters.platform.libvirt.on_node.formats import STATE_MAGIC
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles, SimulatedState
from rmsplugin.adapters.simulated.nodes.agents import SimulatedNodes
from rmsplugin.errors import (
    CorruptStateError,
    DeposedError,
    NoStoreError,
    NotFoundError,
    OperationFailedError,
    TimedOutError,
)
from rmsplugin.model.epochs import FIRST_EPOCH

NODE, FAR, VM = "n1", "n2", "vjob12-0"
MARKER, OTHER = "0" * 32, "1" * 32
WRONG = Digest(5, "0" * 128)


class LocalAgents(NodeAgents):
    """The agent of a node as a process of ours; sshd does no more than start it."""

    def __init__(self, config: Path, epoch: int = FIRST_EPOCH, group: str = "", permit: Permit = nullcontext) -> None:
        super().__init__("root", "", "", epoch=epoch, group=group, permit=permit)
        self._config = config
        self.within_s = PATIENCE_S  # the bound of a call

    def _answer_once(self, node: str, words: list[str], *, shared: bool = False, **more: Any) -> dict[str, Any]:
        command = [sys.executable, "-m", "rmsplugin.node_agent.main", "--config", str(self._config)]
        words = self._in_full(words, shared)
        environment = {name: value for name, value in os.environ.items() if name != "SSH_ORIGINAL_COMMAND"}
        content = more.get("content", b"")
        try:
            done = subprocess.run(
                [*command, *words], env=environment, capture_output=True, input=content, timeout=self.within_s
            )
        except subprocess.TimeoutExpired:
            raise TimedOutError(f"{words[0]} on {node} did not end in time") from None
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])  # before it there may be progress
        return answer


class ServedAgents(LocalAgents):
    """An agent that serves, on a socket of ours; another one when it was let go."""

    def __init__(self, config: Path, epoch: int = FIRST_EPOCH, group: str = "") -> None:
        super().__init__(config, epoch, group)
        self._begin()

    def _begin(self) -> None:
        command = [sys.executable, "-m", "rmsplugin.node_agent.main", "--config", str(self._config), "serve"]
        environment = {name: value for name, value in os.environ.items() if name != "SSH_ORIGINAL_COMMAND"}
        self._agent, channel = served_by(command, PATIENCE_S, environment=environment)
        self._served = Served(channel, "agent")

    def _answer_once(self, node: str, words: list[str], *, shared: bool = False, **more: Any) -> dict[str, Any]:
        if words[0] not in SERVED:
            return super()._answer_once(node, words, shared=shared, **more)
        words, content = self._in_full(words, shared), more.get("content", b"")
        try:
            return self._served.call(words, content, Patience(self.within_s), words[0])
        except NotServedError:  # on a slow machine it may have had no call for long
            self.close()
            self._begin()
            return self._served.call(words, content, Patience(self.within_s), words[0])

    def close(self) -> None:
        """Hang up."""
        self._served.close()
        assert self._agent.wait(PATIENCE_S) == 0


class World:
    """Nodes, and what libvirt and disks do behind their back."""

    def __init__(
        self,
        nodes: Nodes,
        save: Callable[[str, bytes], None],
        wipe: Callable[[bool], None],
        of_epoch: Callable[[int], Nodes],
        far: Callable[[int], Nodes],
        of_group: Callable[[str, str, int], Nodes],
        save_shared: Callable[[str, bytes], None],
        hanging: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.nodes = nodes
        self.of_epoch = of_epoch  # the nodes as an engine of this epoch sees them
        self.far = far  # the agents of FAR, likewise: a node that has the shared store, and nothing else of NODE's
        self.of_group = of_group  # a node as the engine of a group sees it, of this epoch
        self.save_shared = save_shared  # as `save`, in the shared store
        self.save = save  # a sealed or partial state of this name, of this content
        self.wipe = wipe  # a store loses its marker
        self.hanging = hanging  # what the store lies on answers nothing; it has a marker

    def saved(self, content: bytes = b"a") -> Digest:
        """Save and seal."""
        self.save(f"{VM}.state.partial", content)
        return self.nodes.seal(NODE, VM)


@pytest.fixture(params=["simulated", "agent", "served"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "simulated":
        files = SimulatedFiles()

        def simulate(name: str, content: bytes) -> None:
            files.put(NODE, f"/store/{name}", SimulatedState(VM, len(content), content[0]))

        nodes = SimulatedNodes(files)

        def simulate_shared(name: str, content: bytes) -> None:
            files.put(NODE, f"/shared/{name}", SimulatedState(VM, len(content), content[0]))

        def simulated_group(node: str, group: str, epoch: int) -> Nodes:
            return nodes.of_group(group).of_epoch(epoch)

        @contextmanager
        def simulated_hanging() -> Iterator[None]:
            nodes.set_hanging(NODE, True)
            yield
            nodes.set_hanging(NODE, False)

        of_epoch = nodes.of_epoch
        wipe_simulated: Callable[[bool], None] = lambda shared: files._markers.clear()  # noqa: E731
        return World(
            nodes, simulate, wipe_simulated, of_epoch, of_epoch, simulated_group, simulate_shared, simulated_hanging
        )
    stores = {False: tmp_path / "store", True: tmp_path / "shared"}
    stores[True].mkdir()
    config, far = tmp_path / "rmsplugin.toml", tmp_path / "far.toml"
    for path, own in ((config, tmp_path), (far, tmp_path / "far")):
        path.write_text(
            f'[nodes]\nstore = "{own / "store"}"\nshared_store = "{stores[True]}"\nvm_dir = "{own / "vm"}"\n'
        )

    def save(name: str, content: bytes) -> None:
        (stores[False] / name).write_bytes(STATE_MAGIC + content)

    def wipe(shared: bool) -> None:
        (stores[shared] / ".rmsplugin-store").unlink()

    def save_shared(name: str, content: bytes) -> None:
        (stores[True] / name).write_bytes(STATE_MAGIC + content)

    def agents(epoch: int = FIRST_EPOCH, node: Path = config, group: str = "") -> Nodes:
        made = (ServedAgents if request.param == "served" else LocalAgents)(node, epoch, group)
        request.addfinalizer(made.close)
        return made

    def of_group(node: str, group: str, epoch: int) -> Nodes:
        return agents(epoch, {NODE: config, FAR: far}[node], group)

    asked = agents()

    @contextmanager
    def hanging() -> Iterator[None]:
        """Who opens a pipe waits for the one that writes into it, as for a file server that hangs."""
        marker, kept = stores[False] / ".rmsplugin-store", stores[False] / "kept"
        marker.rename(kept)
        os.mkfifo(marker)
        asked.within_s = 2.0
        yield
        asked.within_s = PATIENCE_S
        pipe = os.open(marker, os.O_RDWR)  # waits for no reader
        kept.rename(marker)
        os.close(pipe)  # whoever still waits goes on

    return World(asked, save, wipe, agents, lambda epoch: agents(epoch, far), of_group, save_shared, hanging)


@pytest.mark.parametrize("shared", [False, True])
def test_a_store_keeps_the_marker_that_it_was_given_first(world: World, shared: bool) -> None:
    assert world.nodes.space(NODE, shared=shared).marker is None
    assert world.nodes.init_store(NODE, MARKER, shared=shared) == MARKER
    assert world.nodes.init_store(NODE, OTHER, shared=shared) == MARKER
    assert world.nodes.space(NODE, shared=shared).marker == MARKER
    assert world.nodes.space(NODE, shared=not shared).marker is None


def test_a_store_that_hangs_answers_nothing_and_other_requests_are_answered(world: World) -> None:
    nodes = world.nodes
    nodes.init_store(NODE, MARKER)
    digest = world.saved()
    with world.hanging():
        looks: list[Callable[[], object]] = [
            lambda: nodes.space(NODE).marker,
            lambda: nodes.stat(NODE, VM),
            lambda: nodes.verify(NODE, VM, digest, timeout_s=1),
        ]
        for look in looks:
            with pytest.raises(TimedOutError, match="did not end in time"):
                look()
    nodes.put_config(NODE, VM, b"<domain/>")
    assert nodes.space(NODE).marker == MARKER
    nodes.verify(NODE, VM, digest, timeout_s=10)


def test_a_store_without_a_marker_says_nothing_of_states(world: World) -> None:
    world.nodes.init_store(NODE, MARKER)
    digest = world.saved()
    world.wipe(False)
    verbs: list[Callable[[], object]] = [
        lambda: world.nodes.stat(NODE, VM),
        lambda: world.nodes.seal(NODE, VM),
        lambda: world.nodes.verify(NODE, VM, digest, timeout_s=10),
        lambda: world.nodes.send(NODE, "n2", VM, digest, timeout_s=10),
        lambda: world.nodes.drop_state(NODE, VM),
        lambda: world.nodes.put_aside(NODE, VM, 7),
        lambda: world.nodes.take_back(NODE, VM, 7),
        lambda: world.nodes.drop_aside(NODE, VM, 7),
        lambda: world.nodes.verify_aside(NODE, VM, 7, digest, timeout_s=10),
        lambda: world.nodes.list_files(NODE),
    ]
    for verb in verbs:
        with pytest.raises(NoStoreError):
            verb()
    with pytest.raises(NoStoreError):
        world.nodes.init_store(NODE, OTHER, expected="vjob13-0")
    assert world.nodes.init_store(NODE, OTHER, expected=VM) == OTHER
    world.nodes.verify(NODE, VM, digest, timeout_s=10)


def test_a_state_is_put_aside_and_taken_back(world: World) -> None:
    nodes = world.nodes
    nodes.init_store(NODE, MARKER)
    digest = world.saved()
    assert [nodes.put_aside(NODE, VM, 7), nodes.put_aside(NODE, VM, 7)] == [True, True]
    nodes.drop_state(NODE, VM)
    with pytest.raises(NotFoundError):
        nodes.verify(NODE, VM, digest, timeout_s=10)
    assert nodes.list_files(NODE).states == frozenset()
    nodes.verify_aside(NODE, VM, 7, digest, timeout_s=10)
    with pytest.raises(CorruptStateError):
        nodes.verify_aside(NODE, VM, 7, WRONG, timeout_s=10)
    for number, name in ((8, VM), (7, "vjob13-0")):
        with pytest.raises(NotFoundError):
            nodes.verify_aside(NODE, name, number, digest, timeout_s=10)
    assert [nodes.take_back(NODE, VM, 7), nodes.take_back(NODE, VM, 7)] == [True, True]
    nodes.verify(NODE, VM, digest, timeout_s=10)
    with pytest.raises(NotFoundError):
        nodes.put_aside(NODE, "vjob13-0", 7)


def test_no_state_is_put_in_the_place_of_another(world: World) -> None:
    world.nodes.init_store(NODE, MARKER)
    older = world.saved(b"a")
    world.nodes.put_aside(NODE, VM, 7)
    newer = world.saved(b"bb")
    for verb in (world.nodes.put_aside, world.nodes.take_back):
        with pytest.raises(OperationFailedError):
            verb(NODE, VM, 7)
    world.nodes.verify(NODE, VM, newer, timeout_s=10)
    world.nodes.verify_aside(NODE, VM, 7, older, timeout_s=10)
    world.nodes.drop_aside(NODE, VM, 7)
    world.nodes.drop_aside(NODE, VM, 7)
    with pytest.raises(NotFoundError):
        world.nodes.verify_aside(NODE, VM, 7, older, timeout_s=10)
    world.nodes.verify(NODE, VM, newer, timeout_s=10)


def test_a_checkpoint_has_files_of_its_own_and_becomes_the_state_without_going_away(world: World) -> None:
    nodes = world.nodes
    nodes.init_store(NODE, MARKER)
    world.save(f"checkpoint-7.{VM}.state.partial", b"c")
    stat = nodes.stat(NODE, VM, checkpoint=7)
    assert stat.final_bytes is None and stat.partial is not None and stat.partial.complete
    digest = nodes.seal(NODE, VM, checkpoint=7)
    assert nodes.stat(NODE, VM, checkpoint=7).final_bytes == digest.size_bytes
    assert nodes.list_files(NODE).states == nodes.list_files(NODE).partials == frozenset()
    with pytest.raises(NotFoundError):
        nodes.verify(NODE, VM, digest, timeout_s=10)
    with pytest.raises(NotFoundError):
        nodes.use_checkpoint(NODE, VM, 8)
    nodes.use_checkpoint(NODE, VM, 7)
    nodes.use_checkpoint(NODE, VM, 7)
    nodes.verify(NODE, VM, digest, timeout_s=10)
    nodes.drop_state(NODE, VM)
    nodes.verify(NODE, VM, digest, timeout_s=10, checkpoint=7)
    nodes.drop_state(NODE, VM, checkpoint=7)
    nodes.drop_state(NODE, VM, checkpoint=7)
    with pytest.raises(NotFoundError):
        nodes.verify(NODE, VM, digest, timeout_s=10, checkpoint=7)


def test_a_checkpoint_takes_no_other_states_place(world: World) -> None:
    world.nodes.init_store(NODE, MARKER)
    state = world.saved(b"a")
    world.save(f"checkpoint-7.{VM}.state", b"cc")
    with pytest.raises(OperationFailedError):
        world.nodes.use_checkpoint(NODE, VM, 7)
    world.nodes.verify(NODE, VM, state, timeout_s=10)


def acts(nodes: Nodes, digest: Digest) -> list[Callable[[], object]]:
    """All that changes something on a node."""
    template = Template("0" * 32, "default")
    return [
        lambda: nodes.put_config(NODE, VM, b"key=value"),
        lambda: nodes.put_seed(NODE, VM, b"seed"),
        lambda: nodes.make_overlay(NODE, VM, "/base"),
        lambda: nodes.drop_config(NODE, VM),
        lambda: nodes.seal(NODE, VM),
        lambda: nodes.send(NODE, "n2", VM, digest, timeout_s=10),
        lambda: nodes.drop_state(NODE, VM),
        lambda: nodes.drop_state(NODE, VM, shared=True),
        lambda: nodes.use_checkpoint(NODE, VM, 1),
        lambda: nodes.put_aside(NODE, VM, 7),
        lambda: nodes.take_back(NODE, VM, 7),
        lambda: nodes.drop_aside(NODE, VM, 7),
        lambda: nodes.init_store(NODE, OTHER),
        lambda: nodes.bound_memory(NODE, 512),
        lambda: nodes.use_template(NODE, VM, template, f"{'0' * 8}{'-0000' * 3}-{'0' * 12}", "52:54:00:00:00:01", b"a"),
        lambda: nodes.keep_disk(NODE, VM, template),
        lambda: nodes.settle_template(NODE, VM, template),
        lambda: nodes.refuse_template(NODE, VM, template),
        lambda: nodes.end_room(NODE, 12),
        lambda: nodes.obey(NODE),
    ]


def test_an_engine_whose_turn_is_over_does_nothing_and_may_look(world: World) -> None:
    world.nodes.init_store(NODE, MARKER)
    digest = world.saved()
    world.of_epoch(3).put_config(NODE, VM, b"of the third")
    for epoch in (FIRST_EPOCH, 2):
        deposed = world.of_epoch(epoch)
        for act in acts(deposed, digest):
            with pytest.raises(DeposedError, match=rf"turn of this engine \(epoch {epoch}\) is over"):
                act()
        assert deposed.stat(NODE, VM).final_bytes is not None
        deposed.verify(NODE, VM, digest, timeout_s=10)
        assert deposed.space(NODE).marker == MARKER
        assert deposed.list_files(NODE).configs == {VM}
    world.of_epoch(3).drop_state(NODE, VM)
    assert world.nodes.stat(NODE, VM).final_bytes is None


def test_an_engine_that_says_no_epoch_is_of_the_first(world: World) -> None:
    world.of_epoch(FIRST_EPOCH).init_store(NODE, MARKER)
    world.nodes.put_config(NODE, VM, b"a")
    world.of_epoch(2).drop_config(NODE, VM)
    with pytest.raises(DeposedError):
        world.nodes.put_config(NODE, VM, b"a")


def test_a_node_that_is_told_to_obey_an_engine_obeys_none_before_it(world: World) -> None:
    world.nodes.init_store(NODE, MARKER)
    world.of_epoch(5).obey(NODE)
    world.of_epoch(5).obey(NODE)
    with pytest.raises(DeposedError):
        world.of_epoch(4).put_config(NODE, VM, b"a")
    assert world.nodes.list_files(NODE).configs == set()


def acts_on_shared(nodes: Nodes, node: str) -> list[Callable[[], object]]:
    """All that changes something in a shared store."""
    return [
        lambda: nodes.drop_state(node, VM, shared=True),
        lambda: nodes.drop_state(node, VM, shared=True, checkpoint=1),
        lambda: nodes.put_aside(node, VM, 7, shared=True),
        lambda: nodes.take_back(node, VM, 7, shared=True),
        lambda: nodes.drop_aside(node, VM, 7, shared=True),
        lambda: nodes.use_checkpoint(node, VM, 1, shared=True),
        lambda: nodes.seal(node, VM, shared=True),
        lambda: nodes.init_store(node, OTHER, shared=True),
    ]


def test_a_node_that_has_not_heard_of_an_engine_takes_nothing_from_the_shared_store_for_one_before_it(
    world: World,
) -> None:
    world.of_epoch(4).init_store(NODE, MARKER, shared=True)
    deposed = world.far(4)
    deposed.drop_state(FAR, VM, shared=True)
    world.of_epoch(5).obey(NODE)
    for act in acts_on_shared(deposed, FAR):
        with pytest.raises(DeposedError, match=r"turn of this engine \(epoch 4\) is over"):
            act()
    assert deposed.list_files(FAR, shared=True).states == set()
    deposed.put_config(FAR, VM, b"the node itself has not heard")
    world.far(5).drop_state(FAR, VM, shared=True)


def test_the_deposed_engine_of_a_group_takes_nothing_from_the_shared_store_on_a_node_that_has_not_heard(
    world: World,
) -> None:
    world.save_shared(f"{VM}.state", b"a")
    deposed, present = world.of_group(FAR, "left", 4), world.of_group(NODE, "left", 6)
    deposed.init_store(FAR, MARKER, expected=VM, shared=True)
    deposed.adopt(FAR, [VM])
    digest = deposed.seal(FAR, VM, shared=True)
    present.obey(NODE)
    of_groups = [lambda: deposed.adopt(FAR, [VM]), lambda: deposed.lend(FAR, VM, "right", digest)]
    for act in (*acts_on_shared(deposed, FAR), *of_groups):
        with pytest.raises(DeposedError, match=r"turn of this engine \(epoch 4\) is over"):
            act()
    assert deposed.list_files(FAR, shared=True).states == {VM}
    deposed.put_config(FAR, VM, b"the node itself has not heard")
    present.verify(NODE, VM, digest, timeout_s=10, shared=True)


def test_groups_with_one_store_refuse_nothing_of_each_other_whatever_their_epochs(world: World) -> None:
    left, right = world.of_group(NODE, "left", 4), world.of_group(FAR, "right", 9)
    for node, nodes in ((FAR, right), (NODE, left)):
        assert nodes.space(node, shared=True).marker is None
        nodes.init_store(node, MARKER, shared=True)
        nodes.obey(node)
    for node, nodes in ((FAR, right), (NODE, left)):
        nodes.drop_state(node, VM, shared=True)
        assert nodes.space(node, shared=True).marker == MARKER
    assert world.nodes.space(NODE, shared=True).marker is None, "the whole store is another one"


def test_an_engine_of_all_groups_takes_nothing_away_once_a_groups_has_begun(world: World) -> None:
    before = world.of_epoch(3)
    before.init_store(NODE, MARKER, shared=True)
    world.save_shared(f"{VM}.state", b"a")
    digest = before.seal(NODE, VM, shared=True)
    world.of_group(FAR, "right", 9).obey(FAR)
    with pytest.raises(DeposedError):
        before.drop_state(NODE, VM, shared=True)
    left = world.of_group(NODE, "left", 4)
    left.init_store(NODE, MARKER, expected=VM, shared=True)
    left.adopt(NODE, [VM, "vjob13-0"])
    left.adopt(NODE, [VM])
    left.verify(NODE, VM, digest, timeout_s=10, shared=True)
    assert before.list_files(NODE, shared=True).states == set()


def test_a_group_has_all_states_of_its_vms_that_the_engine_before_has_left_and_no_others(world: World) -> None:
    world.nodes.init_store(NODE, MARKER, shared=True)
    for name in (f"{VM}.state", f"checkpoint-7.{VM}.state", f"aside-8.{VM}.state", "vjob12-1.state", "vjob2-0.state"):
        world.save_shared(name, b"a")
    digest = world.nodes.seal(NODE, VM, shared=True)
    left = world.of_group(NODE, "left", 4)
    with pytest.raises(NoStoreError):
        left.adopt(NODE, [VM])
    with pytest.raises(NoStoreError):
        left.init_store(NODE, OTHER, expected="vjob99-0", shared=True)
    left.init_store(NODE, OTHER, expected=VM, shared=True)
    left.adopt(NODE, [VM])
    left.verify(NODE, VM, digest, timeout_s=10, shared=True)
    left.verify(NODE, VM, digest, timeout_s=10, shared=True, checkpoint=7)
    left.verify_aside(NODE, VM, 8, digest, timeout_s=10, shared=True)
    assert left.list_files(NODE, shared=True).states == {VM}
    assert world.nodes.list_files(NODE, shared=True).states == {"vjob12-1", "vjob2-0"}
    with pytest.raises(OperationFailedError):
        world.of_epoch(9).adopt(NODE, ["vjob2-0"])


def test_a_state_that_another_group_gets_is_one_file_which_each_drops_for_itself(world: World) -> None:
    left, right = world.of_group(NODE, "left", 4), world.of_group(FAR, "right", 9)
    left.init_store(NODE, MARKER, shared=True)
    world.save_shared(f"{VM}.state", b"a")
    left.adopt(NODE, [VM])
    digest = left.seal(NODE, VM, shared=True)
    with pytest.raises(OperationFailedError):
        left.lend(NODE, VM, "right", digest)  # it has not set up its store
    right.init_store(FAR, MARKER, shared=True)
    for wrong in (lambda: left.lend(NODE, VM, "left", digest), lambda: left.lend(NODE, VM, "right", WRONG)):
        with pytest.raises((OperationFailedError, CorruptStateError)):
            wrong()
    with pytest.raises(NotFoundError):
        left.lend(NODE, "vjob13-0", "right", digest)
    left.lend(NODE, VM, "right", digest)
    left.lend(NODE, VM, "right", digest)
    left.drop_state(NODE, VM, shared=True)
    right.verify(FAR, VM, digest, timeout_s=10, shared=True)
    right.lend(FAR, VM, "left", digest)
    right.drop_state(FAR, VM, shared=True)
    left.verify(NODE, VM, digest, timeout_s=10, shared=True)


def test_a_state_that_another_group_gets_takes_no_other_ones_place(world: World) -> None:
    left, right = world.of_group(NODE, "left", 4), world.of_group(FAR, "right", 9)
    for content, node, nodes in ((b"a", FAR, right), (b"b", NODE, left)):
        nodes.init_store(node, MARKER, shared=True)
        world.save_shared(f"{VM}.state", content)
        nodes.adopt(node, [VM])
    digest = left.seal(NODE, VM, shared=True)
    with pytest.raises(OperationFailedError):
        left.lend(NODE, VM, "right", digest)
    with pytest.raises(CorruptStateError):
        right.verify(FAR, VM, digest, timeout_s=10, shared=True)


def test_a_look_is_no_turn(world: World) -> None:
    world.nodes.init_store(NODE, MARKER)
    world.of_epoch(9).list_files(NODE)
    world.of_epoch(9).space(NODE)
    world.nodes.put_config(NODE, VM, b"a")
