"""The node agent, run as sshd runs it: a program of its own, its words in SSH_ORIGINAL_COMMAND."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from others import open_directory
from patience import PATIENCE_S

from rmsplugin.adapters.platform.libvirt.on_node import formats
from rmsplugin.adapters.platform.libvirt.on_node.formats import STATE_MAGIC
from rmsplugin.node_agent import calls, digests, files, transfer
from rmsplugin.node_agent.values import VMName

VM = "vjob12-0"
MARKER = "0123456789abcdef" * 2
AGENT = [sys.executable, "-m", "rmsplugin.node_agent.main"]
CONTENT = STATE_MAGIC + bytes(range(256)) * 20_000
DIGEST = hashlib.blake2b(CONTENT).hexdigest()
SEALED = {"bytes": len(CONTENT), "blake2b": DIGEST}


#: For a shell: sets up a store that was mounted on $1.
MARK = f'echo {MARKER} >"$1"/.rmsplugin-store'


class Node:
    """The directories of one node, and calls to its agent."""

    def __init__(self, root: Path, extra: str = "", *, stores: bool = True, agent: Sequence[str] = AGENT) -> None:
        """``stores``: they are set up. ``agent``: the program and its first words."""
        self.root, self.agent = root, agent
        self.store, self.vm_dir, self.shared = root / "lib/store", root / "lib/vm", root / "shared"
        self.filters = root / "filters"
        root.mkdir(exist_ok=True)
        self.config = root / "rmsplugin.toml"
        self.config.write_text(
            f'[nodes]\nstore = "{self.store}"\nvm_dir = "{self.vm_dir}"\nshared_store = "{self.shared}"\n'
            f'node_key = "/etc/key"\nknown_hosts = "/etc/known"\n[network]\nfilter_dir = "{self.filters}"\n{extra}'
        )

        for store in (self.store, self.shared) if stores else ():
            store.mkdir(parents=True, mode=0o700)
            (store / ".rmsplugin-store").write_text(f"{MARKER}\n")

    def start(
        self, words: str, prefix: list[str] | None = None, flags: tuple[str, ...] = (), **environment: str
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*(prefix or []), *self.agent, *flags, "--config", str(self.config)],
            env={**os.environ, "SSH_ORIGINAL_COMMAND": words, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def call(
        self,
        words: str,
        content: bytes = b"",
        prefix: list[str] | None = None,
        flags: tuple[str, ...] = (),
        **environment: str,
    ) -> dict[str, Any]:
        with self.start(words, prefix, flags, **environment) as process:
            output, errors = process.communicate(content, timeout=PATIENCE_S)
        assert errors == b""
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        assert process.returncode == (1 if "error" in answer else 0)
        return answer

    def put_partial(self, content: bytes = CONTENT, vm: str = VM) -> Path:
        """As libvirt leaves it."""
        path = self.store / f"{vm}.state.partial"
        path.write_bytes(content)
        return path

    @property
    def final(self) -> Path:
        return self.store / f"{VM}.state"

    @property
    def partial(self) -> Path:
        return self.store / f"{VM}.state.partial"

    def files(self) -> list[str]:
        """Everything below the root but the settings and the locks."""
        return sorted(
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_file() and path != self.config and path.name not in (".lock", ".rmsplugin-store")
        )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "n1")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Configuration files.


def test_put_and_drop_config(node: Node) -> None:
    assert node.call(f"put-config {VM}", b"secret\n") == {"bytes": 7}
    config = node.vm_dir / f"{VM}.config"
    assert config.read_bytes() == b"secret\n"
    assert node.call(f"put-config {VM}", b"other\n") == {"bytes": 6}
    assert config.read_bytes() == b"other\n"
    assert mode(config) == 0o600
    assert mode(node.vm_dir / f"{VM}.console") == 0o600
    assert mode(node.vm_dir) == 0o711
    node.call("put-config vjob12-01", b"another VM's")
    (node.vm_dir / f"{VM}.console.0").write_bytes(b"rotated")
    assert node.call(f"drop-config {VM}") == {}
    assert node.call(f"drop-config {VM}") == {}
    assert node.files() == ["lib/vm/vjob12-01.config", "lib/vm/vjob12-01.console"]


GUARD = "--guard 52:54:00:00:00:01 10.0.0.2"
#: A network of its own, to filter in.
ALONE = ["unshare", "--net"]
needs_nft = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")


def test_directories_above_a_private_one_are_for_all_to_enter_under_any_umask(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        files.make_private(tmp_path / "a/b/vm", 0o711)
    finally:
        os.umask(mask)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/vm")] == [0o755, 0o755, 0o711]


@needs_nft
def test_a_vm_whose_interface_is_pinned_is_known_until_its_configuration_goes(node: Node) -> None:
    assert node.call(f"put-config {VM} {GUARD}", b"a", ALONE) == {"bytes": 1}
    assert all(word in (node.filters / f"{VM}.nft").read_text() for word in GUARD.split()[1:])
    assert mode(node.filters) == 0o700
    assert node.call(f"drop-config {VM}", prefix=ALONE) == {}
    assert node.files() == []


@needs_nft
def test_nodes_that_share_their_configurations_filter_each_by_itself(tmp_path: Path) -> None:
    nodes = [Node(tmp_path / name) for name in ("n1", "n2")]
    for each in nodes:
        each.config.write_text(each.config.read_text().replace(str(each.vm_dir), str(tmp_path / "vm")))
        each.call(f"put-config {VM} {GUARD}", b"a", ALONE)
    for each in nodes:  # the second one still knows of its own, though the configuration is gone
        assert each.files() == [f"filters/{VM}.nft"]
        assert each.call(f"drop-config {VM}", prefix=ALONE) == {}
        assert each.files() == []


def test_a_node_that_cannot_filter_gets_no_configuration(node: Node) -> None:
    # Without rights on its network, which is as good as without nft.
    answer = node.call(f"put-config {VM} {GUARD}", b"a", ["setpriv", "--bounding-set", "-net_admin"])
    assert answer["kind"] == "failed" and f"the interface of {VM} cannot be filtered" in answer["error"]
    assert not (node.vm_dir / f"{VM}.config").exists()


def test_put_config_keeps_the_console_log(node: Node) -> None:
    node.call(f"put-config {VM}", b"a")
    (node.vm_dir / f"{VM}.console").write_bytes(b"boot messages")
    node.call(f"put-config {VM}", b"b")
    assert (node.vm_dir / f"{VM}.console").read_bytes() == b"boot messages"


@pytest.mark.parametrize(("verb", "limit"), [("put-config", 64 << 10), ("put-seed", 4 << 20)])
def test_size_is_limited(node: Node, verb: str, limit: int) -> None:
    assert node.call(f"{verb} {VM}", bytes(limit)) == {"bytes": limit}
    assert node.call(f"{verb} {VM}", bytes(limit + 1))["kind"] == "failed"
    assert node.call(f"{verb} {VM}", b"")["kind"] == "failed"
    name = f"{VM}.config" if verb == "put-config" else f"{VM}.iso"
    assert (node.vm_dir / name).stat().st_size == limit


def test_overlay(tmp_path: Path) -> None:
    base = tmp_path / "base.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(base), "10M"], check=True)
    node = Node(tmp_path / "n1", f'[image.disk]\nkind = "qcow2"\nbase = "{base}"\n')
    assert node.call(f"make-overlay {VM} {base}") == {}
    overlay = node.vm_dir / f"{VM}.qcow2"
    described = json.loads(subprocess.check_output(["qemu-img", "info", "--output=json", str(overlay)]))
    assert (described["backing-filename"], described["backing-filename-format"]) == (str(base), "qcow2")
    assert mode(overlay) == 0o600
    inode = overlay.stat().st_ino
    assert node.call(f"make-overlay {VM} {base}") == {}
    assert overlay.stat().st_ino == inode, "the disk of a VM that may be running was replaced"
    assert node.call(f"make-overlay {VM} /etc/shadow")["kind"] == "failed"


# Words.


@pytest.mark.parametrize(
    "words",
    [
        "",
        "put-config",
        "put-config ../../etc/passwd",
        "put-config vjob12-0/../x",
        "put-config /etc/passwd",
        f"put-config {VM} extra",
        f"put-config {VM}; rm -rf /",
        f"put-config {VM}\nspace",
        f"put-config {VM}\n",
        f"put-config '{VM}\n'",
        "put-config $(id)",
        "put-config vjob12-0.",
        "put-config vjob12-٣",
        f"put-config {VM} --shared",
        f"put-config '{VM}",
        f"put-config {VM} --guard 52:54:00:00:00:01 10.0.0",
        f"put-config {VM} --guard 52:54:00:00:00:01 '10.0.0.2 accept'",
        f"put-config {VM} --guard '52:54:00:00:00:01;' 10.0.0.2",
        f"stat {VM} {GUARD}",
        f"PUT-CONFIG {VM}",
        "sh -c id",
        f"stat {VM} --shared --shared",
        f"seal {VM} {DIGEST}",
        f"digest {VM}",
        f"verify {VM} -1 {DIGEST}",
        f"send {VM} -oProxyCommand=id 5 {DIGEST}",
        f"send {VM} n1;id 5 {DIGEST}",
        f"send {VM} root@n1 5 {DIGEST}",
        f"receive {VM} 5 {DIGEST} --shared",
        f"make-overlay {VM} /etc/passwd",
        "space " + "x" * 5000,
    ],
)
def test_hostile_words_are_refused_and_leave_nothing(node: Node, words: str) -> None:
    answer = node.call(words, b"x")
    assert answer["kind"] == "failed"
    assert node.files() == []


def test_words_come_from_ssh_alone(node: Node) -> None:
    done = subprocess.run(
        [*AGENT, "--config", str(node.config), "put-config", VM],
        env={**os.environ, "SSH_ORIGINAL_COMMAND": "space"},
        input=b"x",
        capture_output=True,
    )
    assert json.loads(done.stdout)["kind"] == "failed"
    assert node.files() == []


def test_settings_that_cannot_be_read(tmp_path: Path, node: Node) -> None:
    node.config.write_text("[nodes\n")
    assert "rmsplugin.toml" in node.call("space")["error"]
    node.config.write_text('[nodes]\nstore = "relative"\n')
    assert "not an absolute path" in node.call("space")["error"]
    node.config.unlink()
    assert node.call("space")["kind"] == "failed"


# States.


def test_life_of_a_state(node: Node) -> None:
    assert node.call(f"stat {VM}")["final"] is None
    node.put_partial()
    found = node.call(f"stat {VM}")
    assert (found["final"], found["partial"]) == (None, {"bytes": len(CONTENT), "complete": True})
    assert found["free_bytes"] > 0
    assert node.call(f"seal {VM}") == SEALED
    assert node.call(f"seal {VM}") == SEALED, "asked again, since nobody heard the answer"
    assert node.files() == [f"lib/store/{VM}.state"]
    assert node.call(f"verify {VM} {len(CONTENT)} {DIGEST}") == {}
    assert node.call("list") == {"states": [VM], "partials": [], "configs": []}
    assert node.call(f"drop-state {VM}") == {}
    assert node.call(f"drop-state {VM}") == {}
    assert node.files() == []
    assert mode(node.store) == 0o700


def test_shared_store_is_another_one(node: Node) -> None:
    (node.shared / f"{VM}.state").write_bytes(CONTENT)
    assert node.call(f"stat {VM} --shared")["final"] == {"bytes": len(CONTENT)}
    assert node.call(f"stat {VM}")["final"] is None
    node.config.write_text(node.config.read_text().replace("shared_store", "#"))
    assert node.call(f"stat {VM} --shared")["kind"] == "failed"


def test_incomplete_state_is_not_sealed(node: Node) -> None:
    node.put_partial(b"LibvirtQemudPart" + CONTENT[16:])
    assert node.call(f"stat {VM}")["partial"]["complete"] is False
    assert node.call(f"seal {VM}")["kind"] == "corrupt"
    assert not node.final.exists()


def test_seal_of_nothing(node: Node) -> None:
    assert node.call(f"seal {VM}")["kind"] == "not_found"


def test_seal_replaces_an_older_state(node: Node) -> None:
    node.put_partial()
    node.final.write_bytes(STATE_MAGIC + b"of an earlier suspend")
    assert node.call(f"seal {VM}") == SEALED
    assert node.final.read_bytes() == CONTENT


def bytes_read() -> int:
    """Bytes that this process and its ended children have read so far."""
    return int(re.findall(r"^rchar: ([0-9]+)$", Path("/proc/self/io").read_text(), re.M)[0])


def test_seal_reads_the_state_once(node: Node) -> None:
    size = 64 << 20
    os.truncate(node.put_partial(), size)
    before = bytes_read()
    assert node.call(f"seal {VM}")["bytes"] == size
    assert size <= bytes_read() - before < 1.5 * size


def test_seal_says_how_much_there_is_to_do_before_it_does_it(node: Node) -> None:
    node.put_partial()
    with node.start(f"seal {VM}") as process:
        output, _ = process.communicate()
    assert json.loads(output.splitlines()[0]) == {"bytes_done": 0, "bytes_total": len(CONTENT)}


def test_seal_is_left_undone_when_nobody_listens_any_more(node: Node) -> None:
    node.put_partial()
    with node.start(f"seal {VM}") as process:
        assert process.stdout
        process.stdout.close()
        assert process.wait(timeout=PATIENCE_S) == 1
    assert node.files() == [f"lib/store/{VM}.state.partial"]


def test_sync_that_takes_long_is_not_taken_for_silence(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = node.put_partial()
    beats: list[int] = []
    released = threading.Event()

    def slow(descriptor: int) -> None:
        assert released.wait(PATIENCE_S)

    def beat(done: int) -> None:
        beats.append(done)
        if beats.count(len(CONTENT)) >= 4:
            released.set()

    monkeypatch.setattr(os, "fsync", slow)
    assert digests.sync_and_digest(partial, beat) == (len(CONTENT), DIGEST)
    assert beats.count(len(CONTENT)) >= 4


def test_sync_that_fails_is_no_seal(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = node.put_partial()

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="broken disk"):
        digests.sync_and_digest(partial, lambda _: None)


@pytest.mark.parametrize(
    "damage",
    [CONTENT[:-1], CONTENT + b"x", b"X" + CONTENT[1:], CONTENT[:-1] + b"\0", b""],
    ids=[
        "shorter",
        "longer",
        "first byte",
        "last byte",
        "empty",
    ],  # pytest 8.0 would put the bytes into the environment
)
def test_verify_notices_every_change(node: Node, damage: bytes) -> None:
    words = f"verify {VM} {len(CONTENT)} {DIGEST}"
    assert node.call(words)["kind"] == "not_found"
    node.final.write_bytes(damage)
    assert node.call(words)["kind"] == "corrupt"


def test_list(node: Node) -> None:
    node.put_partial()
    node.put_partial(vm="vjob7-1")
    (node.store / "vjob7-1.state").write_bytes(CONTENT)
    (node.store / "notes.txt").write_text("of the operator")
    node.call("put-config vjob3-0", b"x")
    assert node.call("list") == {"states": ["vjob7-1"], "partials": [VM, "vjob7-1"], "configs": ["vjob3-0"]}


def test_store_that_others_own_is_refused(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    os.chown(node.store, 65534, 65534)
    assert "belongs to uid 65534" in node.call(f"stat {VM}")["error"]


def test_store_that_others_may_read_is_closed(node: Node) -> None:
    node.store.chmod(0o755)
    node.call(f"stat {VM}")
    assert mode(node.store) == 0o700


def test_file_servers_are_asked_by_a_verb_of_their_own(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1", stores=False)
    with node.config.open("a") as file:
        file.write('[[guest.mounts]]\nsource = "127.0.0.1:/home"\ntarget = "/home"\noptions = "port=1"\n')
    assert "platform" not in node.call("check"), "the engine asks that, too, and waits for no server"
    assert node.call("look-at-mounts") == {"file_servers": {"127.0.0.1:1": "Connection refused"}}


def test_check_describes_and_changes_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1", stores=False)
    kernel = tmp_path / "vmlinuz"
    kernel.write_bytes(b"")
    with node.config.open("a") as file:
        file.write(f'[image.default]\nkind = "kernel"\nkernel = "{kernel}"\ninitrd = "/nowhere/initrd"\n')
    answer = node.call("check")
    assert answer["images"] == {str(kernel): True, "/nowhere/initrd": False}
    assert answer["store"] == {"path": str(node.store), "exists": False}
    assert answer["writable_images"] == [str(kernel)]
    assert not node.store.exists()
    node.call(f"init-store {MARKER} -")
    assert node.call("check")["store"]["mode"] == "0700"
    assert answer["version"]


@pytest.mark.parametrize(("mode", "passed"), [(0o755, True), (0o711, True), (0o750, False), (0o700, False)])
def test_check_says_what_keeps_qemus_account_from_vms_files(mode: int, passed: bool) -> None:
    with open_directory() as place:
        node = Node(place / "n1", stores=False)
        node.vm_dir.mkdir(parents=True)
        node.vm_dir.chmod(0o711)
        node.vm_dir.parent.chmod(mode)
        assert node.call("check")["hidden_vm_dir"] == ("" if passed else str(node.vm_dir.parent))


# Stores.


def test_a_store_is_set_up_once(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1", stores=False)
    assert node.call("space")["marker"] is None
    assert node.call(f"init-store {MARKER} -") == {"marker": MARKER}
    assert node.call(f"init-store {'f' * 32} -") == {"marker": MARKER}
    assert node.call("space")["marker"] == MARKER
    assert mode(node.store) == 0o700
    assert [path.name for path in node.store.iterdir()] == [".rmsplugin-store"]


def test_many_who_set_up_one_store_agree_on_its_marker(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1", stores=False)
    calls = [node.start(f"init-store {digit * 32} -") for digit in "0123456789abcdef"]
    answers = {json.loads(call.communicate(timeout=PATIENCE_S)[0])["marker"] for call in calls}
    assert answers == {(node.store / ".rmsplugin-store").read_text().strip()}


def test_a_shared_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1", stores=False)
    for words in (
        f"init-store {MARKER} - --shared",
        f"stat {VM} --shared",
        "list --shared",
        f"drop-state {VM} --shared",
    ):
        assert node.call(words)["kind"] == "no_store"
    assert node.call("space --shared")["marker"] is None
    assert not node.shared.exists()


@pytest.mark.parametrize(
    "words",
    [
        f"stat {VM}",
        f"seal {VM}",
        f"verify {VM} {len(CONTENT)} {DIGEST}",
        f"send {VM} n2 {len(CONTENT)} {DIGEST}",
        f"receive {VM} {len(CONTENT)} {DIGEST}",
        f"drop-state {VM}",
        f"put-aside {VM} 7",
        f"take-back {VM} 7",
        f"drop-aside {VM} 7",
        f"verify-aside {VM} 7 {len(CONTENT)} {DIGEST}",
        f"use-checkpoint {VM} 7",
        f"drop-state {VM} --checkpoint 7",
        "list",
    ],
)
def test_a_store_without_its_marker_answers_nothing_about_states(node: Node, words: str) -> None:
    (node.store / ".rmsplugin-store").unlink()
    node.final.write_bytes(CONTENT)
    assert node.call(words)["kind"] == "no_store"
    assert [path.name for path in node.store.iterdir()] == [node.final.name]


def test_a_store_that_lacks_the_state_which_it_should_have_is_not_set_up(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1", stores=False)
    node.store.mkdir(parents=True)
    assert node.call(f"init-store {MARKER} {VM}")["kind"] == "no_store"
    assert list(node.store.iterdir()) == []
    node.final.write_bytes(CONTENT)
    assert node.call(f"init-store {MARKER} {VM}") == {"marker": MARKER}


def test_a_state_is_put_aside_with_its_disk_and_taken_back(node: Node) -> None:
    verify = f"{VM} {len(CONTENT)} {DIGEST}"
    node.call(f"put-config {VM}", b"a")
    node.final.write_bytes(CONTENT)
    disk = node.vm_dir / f"{VM}.qcow2"
    disk.write_bytes(b"disk")
    for _ in range(2):
        assert node.call(f"put-aside {VM} 7") == {"state": True}
    assert node.call(f"drop-state {VM}") == node.call(f"drop-config {VM}") == {}
    assert node.files() == [f"lib/store/aside-7.{VM}.state", f"lib/vm/aside-7.{VM}.qcow2"]
    assert node.call("list") == {"states": [], "partials": [], "configs": []}
    assert node.call(f"verify-aside {VM} 7 {len(CONTENT)} {DIGEST}") == {}
    assert node.call(f"verify-aside {VM} 7 {len(CONTENT)} {DIGEST[::-1]}")["kind"] == "corrupt"
    assert node.call(f"verify-aside {VM} 8 {len(CONTENT)} {DIGEST}")["kind"] == "not_found"
    for _ in range(2):
        assert node.call(f"take-back {VM} 7") == {"state": True}
    assert node.call(f"verify {verify}") == {}
    assert disk.read_bytes() == b"disk"
    assert node.call(f"take-back {VM} 8") == {"state": True}, "it is there, whatever it is called"


def test_nothing_is_put_in_the_place_of_a_state(node: Node) -> None:
    node.final.write_bytes(CONTENT)
    node.call(f"put-aside {VM} 7")
    node.final.write_bytes(b"a newer one")
    for verb in ("take-back", "put-aside"):
        assert node.call(f"{verb} {VM} 7")["kind"] == "failed"
    assert node.final.read_bytes() == b"a newer one"
    assert node.call(f"drop-aside {VM} 7") == node.call(f"drop-aside {VM} 7") == {}
    assert node.files() == [f"lib/store/{VM}.state"]
    assert node.call(f"put-aside {VM} 9") == {"state": True}
    assert node.call("put-aside vjob13-0 9")["kind"] == "not_found"


# Copies.


def receive(size: int = len(CONTENT), digest: str = DIGEST) -> str:
    return f"receive {VM} {size} {digest}"


def test_receive(node: Node) -> None:
    assert node.call(receive(), CONTENT) == {"bytes": len(CONTENT)}
    assert node.final.read_bytes() == CONTENT
    assert mode(node.final) == 0o600
    assert node.files() == [f"lib/store/{VM}.state"]
    inode = node.final.stat().st_ino
    assert node.call(receive(), CONTENT) == {"bytes": len(CONTENT)}
    assert node.final.stat().st_ino == inode, "what is there already was copied again"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (CONTENT[:-1], "failed"),
        (CONTENT[:5], "failed"),
        (b"", "failed"),
        (CONTENT + b"x", "failed"),
        (CONTENT[:-1] + b"\0", "corrupt"),
        (b"x" + CONTENT[1:], "corrupt"),
    ],
    ids=["shorter", "five bytes", "empty", "longer", "last byte", "first byte"],
)
def test_receive_of_something_else_leaves_nothing(node: Node, content: bytes, kind: str) -> None:
    assert node.call(receive(), content)["kind"] == kind
    assert node.files() == []


def test_receive_takes_nothing_away(node: Node) -> None:
    other = STATE_MAGIC + b"another state of the VM"
    node.put_partial(other)
    node.final.write_bytes(other)
    assert node.call(receive(), CONTENT)["kind"] == "exists"
    node.final.unlink()
    assert node.call(receive(), CONTENT) == {"bytes": len(CONTENT)}
    assert (node.final.read_bytes(), node.partial.read_bytes()) == (CONTENT, other)


def test_killed_receive_leaves_nothing_that_could_be_sealed(node: Node) -> None:
    incoming = node.store / f"{VM}.state.incoming"
    with node.start(receive()) as process:
        assert process.stdin
        process.stdin.write(CONTENT[: 2 << 20])
        process.stdin.flush()
        wait_for(lambda: incoming.exists() and incoming.stat().st_size >= 1 << 20)
        process.send_signal(signal.SIGKILL)
    assert node.files() == [f"lib/store/{VM}.state.incoming"]
    assert node.call("list")["partials"] == [VM]
    assert node.call(f"stat {VM}")["partial"] is None
    assert node.call(f"seal {VM}")["kind"] == "not_found"
    assert node.call(receive(), CONTENT) == {"bytes": len(CONTENT)}
    assert node.files() == [f"lib/store/{VM}.state"]


def test_drop_state_removes_what_a_copy_has_left(node: Node) -> None:
    (node.store / f"{VM}.state.incoming").write_bytes(CONTENT[:100])
    assert node.call(f"drop-state {VM}") == {}
    assert node.files() == []


PEER = ("--peer",)


@pytest.mark.parametrize(
    "words",
    [
        f"put-config {VM}",
        f"put-seed {VM}",
        f"make-overlay {VM} /base",
        f"drop-config {VM}",
        f"stat {VM}",
        f"seal {VM}",
        f"verify {VM} {len(CONTENT)} {DIGEST}",
        f"send {VM} n2 {len(CONTENT)} {DIGEST}",
        f"drop-state {VM}",
        f"init-store {MARKER} -",
        f"put-aside {VM} 7",
        f"take-back {VM} 7",
        f"drop-aside {VM} 7",
        f"verify-aside {VM} 7 {len(CONTENT)} {DIGEST}",
        f"use-checkpoint {VM} 7",
        f"drop-state {VM} --checkpoint 7",
        "list",
        "check",
        "look-at-mounts",
        "obey",
        "platform",
        "look-at-platform",
        "reach n2",
        "bound-memory 4096",
        "end-room 12",
        f"use-template vjob12-0 {'0' * 32} default 00000000-0000-4000-8000-000000000000 52:54:00:00:00:00 9",
        f"await-guest vjob12-0 {'0' * 32} default 1",
        f"keep-disk vjob12-0 {'0' * 32} default",
        f"settle-template vjob12-0 {'0' * 32} default",
        f"refuse-template vjob12-0 {'0' * 32} default",
        "space --shared",
        "space --group left",
        "adopt --group left --shared",
        f"lend {VM} right 1 --group left --shared",
        "vm-host",
        "vm-list",
        f"vm-has {VM}",
        "vm-statistics",
        f"vm-boot {VM} 1000",
        f"vm-restore {VM} 1000 /x/{VM}.state",
        f"vm-stop {VM} 1000",
        f"vm-save {VM} 1000 /x/{VM}.state.partial",
        f"vm-checkpoint {VM} 1000 /x/checkpoint-1.{VM}.state.partial",
        f"vm-pause {VM} 1000",
        f"vm-unpause {VM} 1000",
        f"vm-memory {VM} 1000 64",
        f"vm-used {VM}",
        f"vm-cpus {VM} 1000 1",
        f"vm-abort {VM}",
        "",
    ],
)
def test_key_of_a_node_is_for_copies_only(node: Node, words: str) -> None:
    node.put_partial()
    before = node.files()
    answer = node.call(words, flags=PEER)
    assert (answer["kind"], "not for the key of a node" in answer["error"]) == ("failed", True)
    assert node.files() == before


def test_key_of_a_node_may_bring_a_copy(node: Node) -> None:
    assert node.call("space", flags=PEER)["free_bytes"] > 0
    assert node.call(receive(), CONTENT, flags=PEER) == {"bytes": len(CONTENT)}
    assert node.final.read_bytes() == CONTENT


def test_every_verb_is_named_in_the_test_of_a_nodes_key() -> None:
    marks = test_key_of_a_node_is_for_copies_only.pytestmark  # type: ignore[attr-defined]
    refused = {words.partition(" ")[0] for words in marks[0].args[1]} - {"", "space"}
    assert refused | {"receive", "space"} == {verb for verb, _ in calls._CALLS}


# Compression.


def compressed(number: int) -> bytes:
    """The beginning of a state as libvirt writes it through a program."""
    return struct.pack("=16s4I", STATE_MAGIC, 2, 1000, 1, number) + bytes(1000)


def test_state_that_cannot_be_restored_here_is_refused_with_a_sentence(node: Node, tmp_path: Path) -> None:
    state = compressed(4)
    size, digest = len(state), hashlib.blake2b(state).hexdigest()
    empty = tmp_path / "bin"
    empty.mkdir()
    answer = node.call(receive(size, digest), state, PATH=str(empty))
    assert (answer["kind"], "no program lzop" in answer["error"]) == ("failed", True)
    assert node.files() == []
    (empty / "lzop").write_text("#!/bin/sh\n")
    (empty / "lzop").chmod(0o755)
    assert node.call(receive(size, digest), state, PATH=str(empty)) == {"bytes": size}
    assert node.call(f"verify {VM} {size} {digest}", PATH=str(empty)) == {}
    (empty / "lzop").unlink()
    assert "no program lzop" in node.call(f"verify {VM} {size} {digest}", PATH=str(empty))["error"]
    assert node.final.exists()


@pytest.mark.parametrize(
    "state", [compressed(0), compressed(6), compressed(77), STATE_MAGIC], ids=["raw", "sparse", "unknown", "no header"]
)
def test_state_of_a_format_without_a_program_is_left_to_libvirt(node: Node, state: bytes) -> None:
    assert node.call(receive(len(state), hashlib.blake2b(state).hexdigest()), state) == {"bytes": len(state)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "raw"),
        ('#save_image_format = "lzop"\n', "raw"),
        ('user = "root"\nsave_image_format = "lzop"\n', "lzop"),
        ("  save_image_format='zstd' # fast\n", "zstd"),
        ('save_image_format_x = "xz"\n', "raw"),
        ('save_image_format = "lzop"\nsave_image_format = "raw"\n', "lzop"),
    ],
)
def test_format_of_saved_states_is_read_from_qemu_conf(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "qemu.conf"
    assert formats.configured_format("save", file) == "raw"
    file.write_text(text)
    assert formats.configured_format("save", file) == expected
    file.write_text(text.replace("save", "snapshot"))
    assert (formats.configured_format("save", file), formats.configured_format("snapshot", file)) == (
        "raw",
        expected,
    )


def test_check_tells_the_formats_that_can_be_restored(node: Node, tmp_path: Path) -> None:
    for name in ("zstd", "xz"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert node.call("check", PATH=str(tmp_path))["restorable_formats"] == ["raw", "xz", "zstd"]


def test_copy_of_a_checkpoint_and_a_state_of_the_vm_do_not_wait_for_each_other(node: Node) -> None:
    assert node.call(f"{receive()} --checkpoint 7", CONTENT, flags=PEER) == {"bytes": len(CONTENT)}
    assert (node.store / f"checkpoint-7.{VM}.state").read_bytes() == CONTENT
    with node.start(f"{receive()} --checkpoint 8") as copying:
        assert copying.stdin
        copying.stdin.write(CONTENT[: 2 << 20])
        copying.stdin.flush()
        wait_for((node.store / f"checkpoint-8.{VM}.state.incoming").exists)
        assert node.call(receive(), CONTENT) == {"bytes": len(CONTENT)}
        assert copying.poll() is None
        copying.stdin.write(CONTENT[2 << 20 :])
        copying.stdin.close()
        assert copying.stdout and json.loads(copying.stdout.read()) == {"bytes": len(CONTENT)}


def test_copy_that_breaks_off_keeps_nobody_off_the_checkpoint_before(node: Node) -> None:
    state = struct.pack("=16s5I", STATE_MAGIC, 2, 0, 1, 0, 0) + bytes(100)
    digest = hashlib.blake2b(state).hexdigest()
    assert node.call(f"{receive(len(state), digest)} --checkpoint 7", state) == {"bytes": len(state)}
    with node.start(f"{receive()} --checkpoint 8") as silent:
        assert silent.stdin
        silent.stdin.write(CONTENT[: 2 << 20])
        silent.stdin.flush()
        wait_for((node.store / f"checkpoint-8.{VM}.state.incoming").exists)
        assert node.call(f"verify {VM} {len(state)} {digest} --checkpoint 7") == {}
        assert node.call(f"use-checkpoint {VM} 7") == {}
        assert silent.poll() is None
        silent.kill()


@pytest.mark.parametrize(
    "words",
    [
        f"stat {VM} --checkpoint 1000000000000",
        f"stat {VM} --checkpoint",
        f"stat {VM} --checkpoint 0",
        f"stat {VM} --checkpoint ../x",
        f"stat {VM} --shared --checkpoint 7",
        f"put-aside {VM} 7 --checkpoint 7",
        f"use-checkpoint {VM} 0",
        f"use-checkpoint {VM} x",
    ],
)
def test_a_checkpoint_is_named_by_its_number_where_there_can_be_one(node: Node, words: str) -> None:
    assert node.call(words)["kind"] == "failed"
    assert node.files() == []


def test_calls_for_one_vm_wait_for_each_other_and_others_do_not(node: Node) -> None:
    with node.start(receive()) as first:
        assert first.stdin
        first.stdin.write(CONTENT[: 2 << 20])
        first.stdin.flush()
        wait_for((node.store / f"{VM}.state.incoming").exists)
        with node.start(receive()) as second:
            time.sleep(0.5)
            assert second.poll() is None, "two copies are written at once"
            assert node.call("drop-state vjob12-1") == {}
            assert node.call(f"stat {VM}")["final"] is None
            first.stdin.write(CONTENT[2 << 20 :])
            first.stdin.close()
            output = second.communicate(CONTENT, timeout=PATIENCE_S)[0]
        assert first.stdout and json.loads(first.stdout.read()) == {"bytes": len(CONTENT)}
    assert json.loads(output) == {"bytes": len(CONTENT)}
    assert node.final.read_bytes() == CONTENT


FAKE_SSH = """#!/bin/sh
# Takes ssh's words apart as sshd would: the last one is the command, the one before it the host.
printf '%s\\n' "$@" >"{log}"
for word; do host=$command; command=$word; done
[ "$host" = n2 ] || { echo "ssh: no route to $host" >&2; exit 255; }
SSH_ORIGINAL_COMMAND=$command exec {agent} --config "{config}"
"""


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Node, Node, dict[str, str]]:
    """Two nodes, and an environment in which `ssh` leads from the first to the second."""
    source, destination = Node(tmp_path / "n1"), Node(tmp_path / "n2")
    script = tmp_path / "bin/ssh"
    script.parent.mkdir()
    text = FAKE_SSH.replace("{log}", str(tmp_path / "ssh-words")).replace("{agent}", " ".join(AGENT))
    script.write_text(text.replace("{config}", str(destination.config)))
    script.chmod(0o755)
    source.put_partial()
    source.call(f"seal {VM}")
    return source, destination, {"PATH": f"{script.parent}:{os.environ['PATH']}"}


def send(node: str = "n2", size: int = len(CONTENT), digest: str = DIGEST) -> str:
    return f"send {VM} {node} {size} {digest}"


def test_send(pair: tuple[Node, Node, dict[str, str]], tmp_path: Path) -> None:
    source, destination, path = pair
    assert source.call(send(), **path) == {}
    assert destination.final.read_bytes() == CONTENT
    assert source.final.read_bytes() == CONTENT
    assert source.call(send(), **path) == {}
    words = (tmp_path / "ssh-words").read_text().splitlines()
    for option in ("StrictHostKeyChecking=yes", "UserKnownHostsFile=/etc/known", "BatchMode=yes", "/etc/key"):
        assert option in words
    assert words[-5:] == ["-l", "root", "--", "n2", f"receive {VM} {len(CONTENT)} {DIGEST}"]


def test_send_of_a_damaged_state(pair: tuple[Node, Node, dict[str, str]]) -> None:
    source, destination, path = pair
    source.final.write_bytes(CONTENT[:-1] + b"\0")
    assert source.call(send(), **path)["kind"] == "corrupt"
    source.final.write_bytes(CONTENT[:-1])
    assert source.call(send(), **path)["kind"] == "corrupt"
    source.final.unlink()
    assert source.call(send(), **path)["kind"] == "not_found"
    assert destination.files() == []


def test_send_to_a_node_that_cannot_be_reached(pair: tuple[Node, Node, dict[str, str]]) -> None:
    source, _, path = pair
    answer = source.call(send("n3"), **path)
    assert (answer["kind"], "no route to n3" in answer["error"]) == ("failed", True)


@pytest.mark.parametrize("node", ["n2", "n3"])
def test_a_copy_waits_for_nothing_that_ssh_says(
    pair: tuple[Node, Node, dict[str, str]], tmp_path: Path, node: str
) -> None:
    """More than fits into a pipe, as ssh with a verbose configuration says, or a server's banner."""
    source, destination, path = pair
    script = tmp_path / "bin/ssh"
    banner = "\nhead -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2\n"
    script.write_text(script.read_text().replace("\n", banner, 1))
    answer = source.call(send(node), **path)
    assert answer == {} if node == "n2" else answer["error"] == "no copy to n3: ssh: no route to n3"
    assert destination.final.exists() == (node == "n2")


def test_a_copy_to_whose_report_nobody_listens_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer.files, "PULSE_S", 0.0)
    (tmp_path / "state").write_bytes(CONTENT)

    def report(_progress: object) -> None:
        raise BrokenPipeError

    pipe = (tmp_path / "pipe").open("wb")
    with pytest.raises(BrokenPipeError):
        transfer._pour(tmp_path / "state", pipe, report)
    assert pipe.closed, "the other side would wait for more"


# No space.


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Node, list[str]]:
    """A node whose store is a file system of 1 MiB, and the words to run its agent there."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    node = Node(tmp_path / "n1")
    node.vm_dir.mkdir(parents=True)
    mount = 'mount -t tmpfs -o size=1m,mode=700 none "$1" && mount -t tmpfs -o size=4k,nr_inodes=4,mode=711 none "$2"'
    shell = [
        "unshare",
        "-m",
        "sh",
        "-c",
        f'{mount} && {MARK} && shift 2 && "$@"',
        "sh",
        str(node.store),
        str(node.vm_dir),
    ]
    return node, shell


def test_no_space(tiny: tuple[Node, list[str]]) -> None:
    node, prefix = tiny
    assert node.call(receive(), CONTENT, prefix)["kind"] == "no_space"
    assert node.call(f"put-config {VM}", bytes(60_000), prefix)["kind"] == "no_space"
    assert 0 < node.call("space", prefix=prefix)["free_bytes"] <= 1 << 20


def test_send_tells_that_the_other_side_is_full(pair: tuple[Node, Node, dict[str, str]]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    source, destination, path = pair
    mount = 'mount -t tmpfs -o size=1m,mode=700 none "$1"'
    shell = ["unshare", "-m", "sh", "-c", f'{mount} && {MARK} && shift && exec "$@"', "sh"]
    answer = source.call(send(), prefix=[*shell, str(destination.store)], **path)
    assert answer["kind"] == "no_space"
    assert source.final.exists()


# Speed.


def test_imports_nothing_that_takes_long() -> None:
    """Each call is a process of its own, of which a context switch makes hundreds."""
    said = "import sys, rmsplugin.node_agent.calls; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.split()
    slow = {"aiohttp", "asyncio", "http", "libvirt", "ortools", "paramiko", "pydantic", "sqlite3", "unittest"}
    assert "rmsplugin.node_agent.verbs" in modules
    assert not slow & set(modules)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_verb_is_known_to_change_something_or_nothing() -> None:
    """A verb that is new is an act, unless it is said to be a look: an engine whose turn is over must not call it."""
    acts = {"put-config", "put-seed", "make-overlay", "drop-config", "seal", "send", "receive", "init-store"}
    acts |= {"put-aside", "take-back", "drop-aside", "drop-state", "use-checkpoint", "bound-memory", "use-template"}
    acts |= {"keep-disk", "settle-template", "refuse-template", "obey", "platform", "adopt", "lend", "end-room"}
    acts |= {f"vm-{verb}" for verb in ("boot", "restore", "stop", "save", "checkpoint", "pause", "unpause", "abort")}
    acts |= {"vm-memory", "vm-cpus"}
    assert {verb for verb, _ in calls._CALLS} == acts | calls._LOOKS
    assert not acts & calls._LOOKS


def test_the_highest_epoch_outlives_the_agent_and_is_no_vm(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert "error" not in node.call(f"put-config {VM}", b"a=b")
    assert not (node.vm_dir / ".epoch").exists(), "nothing is noted of a single engine"
    assert node.call("check")["epoch"] == 1
    assert "error" not in node.call(f"drop-config {VM} --epoch 12")
    assert (node.vm_dir / ".epoch").read_text() == "12\n"
    assert node.call("check")["epoch"] == 12
    assert node.call(f"put-config {VM} --epoch 11", b"a=b") == {
        "error": "the turn of this engine (epoch 11) is over: an engine of epoch 12 has acted here",
        "kind": "deposed",
    }
    assert node.call("list")["configs"] == []
    assert "error" not in node.call("list --epoch 1 --shared")
    assert "error" not in node.call(f"put-config {VM} --epoch 12", b"a=b")


def test_who_only_reads_states_needs_no_right_to_write_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is mounted read-only; others that read there, and those that write elsewhere, are met by the lock."""
    vm = VMName(VM).identity
    with files.lock(tmp_path, vm, still=files.require_listener, shared=True):
        assert (tmp_path / ".lock").exists(), "where none was there, one is made"
    whole = os.open

    def only_reads(path: Path, flags: int, *more: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return whole(path, flags, *more)

    monkeypatch.setattr(os, "open", only_reads)
    with files.lock(tmp_path, vm, still=files.require_listener, shared=True):
        writes = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        refused = subprocess.run([sys.executable, "-c", writes, tmp_path / ".lock"], capture_output=True, text=True)
    assert refused.returncode == 1 and "BlockingIOError" in refused.stderr


@pytest.mark.parametrize("shared", ["", " --shared"])
def test_a_call_that_waits_while_an_engine_takes_over_does_nothing(node: Node, shared: str) -> None:
    """An engine that is stopped keeps its channels: somebody seems to listen."""
    store = node.shared if shared else node.store
    state = store / f"{VM}.state"
    state.write_bytes(CONTENT)
    with files.lock(store, VMName(VM).identity, still=files.require_listener):
        waiting = node.start(f"drop-state {VM} --epoch 4{shared}")
        last = node.shared / ".rmsplugin-epoch" if shared else node.vm_dir / ".epoch"
        wait_for(lambda: last.exists() and last.read_text() == "4\n")
        assert "error" not in node.call("obey --epoch 5")
    output, _ = waiting.communicate(timeout=PATIENCE_S)
    assert json.loads(output)["kind"] == "deposed"
    assert state.exists()


@pytest.mark.parametrize(
    "words",
    [
        "list --group .. --shared",
        "list --group . --shared",
        "list --group a/b --shared",
        f"list --group {'x' * 65} --shared",
        "list --group '' --shared",
        "list --group left",
        f"drop-state {VM} --group left",
        "list --shared --group left",
        "adopt --shared",
        "adopt --group left",
        "adopt",
        f"lend {VM} right 1",
        f"lend {VM} right 1 --shared",
        f"lend {VM} right 1 --group left",
        f"lend {VM} .. 1 --group left --shared",
        f"lend {VM} ../right 1 --group left --shared",
        f"lend ../{VM} right 1 --group left --shared",
    ],
)
def test_a_part_of_a_shared_store_is_named_by_a_group_where_there_can_be_one(node: Node, words: str) -> None:
    before = node.files()
    answer = node.call(words, f"{VM}\n".encode())
    assert answer["kind"] == "failed" and answer["error"].startswith("not "), answer
    assert node.files() == before and not (node.shared / "groups").exists()


def test_no_file_of_another_name_is_adopted(node: Node) -> None:
    assert "error" not in node.call(f"init-store {MARKER} - --group left --shared")
    others = (f"x{VM}.state", f"a.b.{VM}.state", f"{VM}.other", f"{VM}", ".lock")
    for name in (f"{VM}.state", *others):
        (node.shared / name).touch()
    assert node.call("adopt --group left --shared", b"../x\n")["kind"] == "failed"
    assert node.call("adopt --group left --shared", f"{VM}\n".encode()) == {"adopted": 1}
    part = node.shared / "groups" / "left"
    assert [path.name for path in part.iterdir() if not path.name.startswith(".")] == [f"{VM}.state"]
    assert all((node.shared / name).exists() for name in (*others, ".rmsplugin-store"))
    assert mode(part) == mode(part.parent) == mode(node.shared) == 0o700


def test_a_call_for_a_group_that_waits_for_a_lock_does_nothing_once_the_next_engine_of_the_group_has_begun(
    node: Node,
) -> None:
    words = "--group left --shared"
    assert "error" not in node.call(f"init-store {MARKER} - --epoch 3 {words}")
    state = node.shared / "groups" / "left" / f"{VM}.state"
    state.write_bytes(CONTENT)
    far = Node(node.root / "far")
    far.config.write_text(far.config.read_text().replace(str(far.shared), str(node.shared)))
    with files.lock(state.parent, VMName(VM).identity, still=files.require_listener):
        call = node.start(f"drop-state {VM} --epoch 4 {words}")
        last = state.with_name(".rmsplugin-epoch")
        wait_for(lambda: last.exists() and last.read_text() == "4\n")
        assert "error" not in far.call("obey --epoch 9 --group right")
        assert "error" not in far.call("obey --epoch 10 --group left")
    answer = json.loads(call.communicate(timeout=PATIENCE_S)[0].splitlines()[-1])
    assert answer["kind"] == "deposed" and state.exists()


def test_a_store_that_is_not_mounted_gets_no_epoch(tmp_path: Path) -> None:
    node = Node(tmp_path, stores=False)
    node.shared.mkdir()
    assert "error" not in node.call("obey --epoch 5")
    assert node.files() == ["lib/vm/.epoch"]


def test_engines_of_many_epochs_at_once_leave_the_highest(node: Node) -> None:
    calls = [node.start(f"obey --epoch {epoch}") for epoch in (8, 9, 10, 11, 12)]
    for each in calls:
        each.communicate(timeout=PATIENCE_S)
    assert (node.vm_dir / ".epoch").read_text() == "12\n"
    assert (node.shared / ".rmsplugin-epoch").read_text() == "12\n"


def test_an_epoch_that_is_none_is_refused(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for word in ("0", "-1", "x", "1e3", "9" * 19):
        answer = node.call(f"drop-config {VM} --epoch {word}")
        assert (answer["kind"], answer["error"]) == ("failed", f"not an epoch: {word!r}")
    (node.vm_dir).mkdir(parents=True)
    (node.vm_dir / ".epoch").write_text("what?\n")
    assert "holds no epoch: 'what?'" in node.call(f"drop-config {VM}")["error"]


def test_another_node_neither_says_an_epoch_nor_is_asked_for_one(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert "error" not in node.call(f"drop-config {VM} --epoch 12")
    receive = f"receive {VM} {len(CONTENT)} {DIGEST}"
    assert "not for the key of a node" in node.call(f"{receive} --epoch 99", CONTENT, flags=("--peer",))["error"]
    assert "error" not in node.call(receive, CONTENT, flags=("--peer",))
    assert "error" not in node.call(f"drop-state {VM} --epoch 12")
