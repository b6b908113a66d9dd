"""What a guest of contrib/guest-image does with its configuration: `identity`, in namespaces and a root of its own.

Its /proc and /sys are files of the test's: nothing of this machine's is changed, not even its clock.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from lifetime import ENDS_WITH_US
from patience import PATIENCE_S
from unit import guestbox

TOOLS = Path(__file__).parents[3] / "rmsplugin/guest_tools/vjob-tools"

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

CONFIG = "sys/firmware/qemu_fw_cfg/by_name/opt/org.rmsplugin/config/raw"
HOST_KEY = "etc/dropbear/dropbear_ed25519_host_key"
NOTIFY = "proc/sys/net/ipv4/conf/eth0/arp_notify"
KEY = bytes(range(7, 90))
IDENTITY = {
    "hostname": "vjob7-0",
    "address": "10.9.8.7/20",
    "gateway": "10.9.0.1",
    "mac": "52:54:00:12:34:56",
    "seed": base64.b64encode(bytes(range(64))).decode(),
    "root_authorized_key": "ssh-ed25519 AAAA= engine",
    "host_key": "other/form=",
    "dropbear_host_key": base64.b64encode(KEY).decode(),
}
LISTENS = (
    "  0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n"
)

#: $1: the guest's root, $2: its generator of random numbers. Prints what the program left behind.
_SCRIPT = """
set -e
mount --make-rprivate /
mount --bind "$2" "$1/dev/urandom"
ip link add eth0 type veth peer name peer0
ip link set peer0 up
hostname template
code=0
chroot "$1" /identity || code=$?
echo "[$code, \\"$(hostname)\\"]"
ip -4 -j address show dev eth0
ip -4 -j route
ip -j link show dev eth0
"""


def told(identity: Mapping[str, str] = IDENTITY) -> str:
    return "".join(f"{key}={value}\n" for key, value in identity.items()) + "end=\n....hostname=evil\n"


@dataclass
class Guest:
    """The root, what it says on its console, and the end of the pipe at which an ssh server waits."""

    root: Path
    console: int
    server: int

    def tell(self, content: str) -> None:
        new = (self.root / CONFIG).with_name("new")
        new.write_text(content)
        new.rename(self.root / CONFIG)

    def wait_said(self, line: str) -> None:
        said = b""
        deadline = time.monotonic() + PATIENCE_S
        while said != f"rmsplugin-guest: {line}\n".encode():
            assert time.monotonic() < deadline, f"it says {said!r}"
            try:
                said += os.read(self.console, 4096)
            except BlockingIOError:
                time.sleep(0.01)

    def wait_key(self) -> bytes:
        """What an ssh server is given for a key: all of it."""
        found = b""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                data = os.read(self.server, 4096)
            except BlockingIOError:  # nobody writes yet
                data = b""
            found += data
            if (found or not (self.root / HOST_KEY).exists()) and not data:
                return found
            time.sleep(0.01)
        raise AssertionError("no key came")

    def listen(self) -> None:
        (self.root / "proc/net/tcp").write_text(LISTENS)


@contextmanager
def guest(root: Path, content: str, generator: str = "/dev/urandom") -> Iterator[tuple[Guest, subprocess.Popen[str]]]:
    """A guest with that configuration, and the program in it that runs."""
    for name in ("dev", "etc/dropbear", "root/.ssh", "sys/class/net/eth0", "proc/net", "proc/sys/vm"):
        (root / name).mkdir(parents=True)
    for name in (CONFIG, NOTIFY):
        (root / name).parent.mkdir(parents=True)
    for name in ("dev/urandom", "proc/net/tcp", NOTIFY):
        (root / name).touch()
    (root / CONFIG).write_text(content)
    shutil.copy(TOOLS, root / "identity")
    os.mkfifo(root / "dev/console")
    os.mkfifo(root / HOST_KEY)
    console = os.open(root / "dev/console", os.O_RDWR | os.O_NONBLOCK)
    server = os.open(root / HOST_KEY, os.O_RDONLY | os.O_NONBLOCK)
    namespaces = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child"]
    process = subprocess.Popen(
        [*ENDS_WITH_US, *namespaces, "sh", "-c", _SCRIPT, "sh", str(root), generator],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Guest(root, console, server), process
    finally:
        process.kill()
        process.communicate()
        os.close(console)
        os.close(server)


def seen(process: subprocess.Popen[str]) -> list[object]:
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_a_guest_becomes_the_vm_of_its_configuration_and_keeps_nothing_else_of_it(tmp_path: Path) -> None:
    with guest(tmp_path, told()) as (made, process):
        assert made.wait_key() == KEY
        made.listen()
        made.wait_said("ready")
        (code, name), (address,), routes, (link,) = seen(process)  # type: ignore[misc]
    assert (code, name) == (0, "vjob7-0")
    (inet,) = address["addr_info"]
    assert (inet["local"], inet["prefixlen"], inet["broadcast"]) == ("10.9.8.7", 20, "10.9.15.255")
    assert link["address"] == IDENTITY["mac"]
    assert "UP" in link["flags"]
    assert {route["dst"]: route.get("gateway", "") for route in routes} == {"10.9.0.0/20": "", "default": "10.9.0.1"}
    assert (tmp_path / NOTIFY).read_text() == "1\n"
    assert (tmp_path / "etc/hostname").read_text() == "vjob7-0\n"
    assert (tmp_path / "etc/hosts").read_text() == "127.0.0.1 localhost\n10.9.8.7 vjob7-0\n"
    for path, content in ((HOST_KEY, KEY), ("root/.ssh/authorized_keys", b"ssh-ed25519 AAAA= engine\n")):
        assert (tmp_path / path).read_bytes() == content
        assert (tmp_path / path).stat().st_mode == 0o100600
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("identity", "raw")]
    assert [path for path in files if KEY in path.read_bytes()] == [tmp_path / HOST_KEY]


def test_a_guest_that_is_told_to_wait_has_nothing_of_its_own_until_it_is_told_more(tmp_path: Path) -> None:
    with guest(tmp_path, "wait\nend=\n") as (made, process):
        made.wait_said("waiting")
        assert process.poll() is None
        assert not (tmp_path / "etc/hostname").exists()
        assert (tmp_path / HOST_KEY).is_fifo()
        made.tell(told())
        assert made.wait_key() == KEY
        made.listen()
        made.wait_said("ready")
        assert seen(process)[0] == [0, "vjob7-0"]


@pytest.mark.parametrize("lines", ["end=\n....hostname=evil\n", "", f"other={'x' * 2000}\nend=\nhostname=evil\n"])
def test_a_configuration_ends_where_it_says_so_or_with_the_file(tmp_path: Path, lines: str) -> None:
    text = "".join(f"{key}={value}\n" for key, value in IDENTITY.items()) + lines
    with guest(tmp_path, text) as (made, process):
        assert made.wait_key() == KEY
        made.listen()
        made.wait_said("ready")
        assert seen(process)[0] == [0, "vjob7-0"]


def test_no_value_of_the_configuration_is_evaluated(tmp_path: Path) -> None:
    evil = "$(touch /evil);`touch /evil`%s%n"
    with guest(tmp_path, told({"hostname": evil, "root_authorized_key": evil})) as (made, process):
        made.wait_said("ready, without a host key: no ssh")
        assert seen(process)[0] == [0, evil]
    assert (tmp_path / "root/.ssh/authorized_keys").read_text() == f"{evil}\n"
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("key", ["", "AAA", "AA==AAAA", "A" * 4000, "QUJ$"])
def test_without_a_host_key_of_its_own_a_guest_has_no_ssh_server(tmp_path: Path, key: str) -> None:
    with guest(tmp_path, told({**IDENTITY, "dropbear_host_key": key})) as (made, process):
        assert made.wait_key() == b""
        made.wait_said("ready, without a host key: no ssh")
        assert seen(process)[0] == [0, "vjob7-0"]
    assert not (tmp_path / HOST_KEY).exists()


@pytest.mark.parametrize(
    ("host_key", "loaded"), [(IDENTITY["dropbear_host_key"], "nfsv4\n"), ("", "")], ids=["ssh", "no ssh"]
)
def test_a_guest_loads_nfs_once_it_is_ready_if_somebody_can_come_to_mount_it(
    tmp_path: Path, host_key: str, loaded: str
) -> None:
    shutil.copy(shutil.which("busybox") or "busybox", tmp_path / "busybox")
    modprobe = tmp_path / "bin/modprobe"
    modprobe.parent.mkdir()
    modprobe.write_text('#!/busybox sh\necho "$@" >>/loaded\n')
    modprobe.chmod(0o755)
    (tmp_path / "loaded").touch()
    with guest(tmp_path, told({**IDENTITY, "dropbear_host_key": host_key})) as (made, process):
        made.wait_key()
        made.listen()
        seen(process)
    assert (tmp_path / "loaded").read_text() == loaded


@pytest.mark.parametrize(
    ("lines", "generator"),
    [({"seed": "not base64"}, "/dev/urandom"), ({}, "/dev/null"), ({"address": "10.9.8.7"}, "/dev/urandom")],
)
def test_a_guest_whose_random_numbers_or_address_would_be_wrong_has_no_network(
    tmp_path: Path, lines: dict[str, str], generator: str
) -> None:
    with guest(tmp_path, told({**IDENTITY, **lines}), generator) as (made, process):
        (code, name), addresses, _, (link,) = seen(process)  # type: ignore[misc]
        assert code == 1
        assert name == "template"
        assert not any(each.get("addr_info") for each in addresses)
        assert "UP" not in link["flags"]
        assert os.read(made.server, 4096) == (KEY if "address" in lines else b"")


@pytest.mark.parametrize("mac", ["52:54:00:12:34", "52:54:00:12:34:56:78", "nothing", "01:00:00:00:00:00"])
def test_a_guest_whose_card_keeps_the_address_of_the_template_is_powered_off(tmp_path: Path, mac: str) -> None:
    with guest(tmp_path, told({**IDENTITY, "mac": mac})) as (_, process):
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode != 0
        assert out == "", "the namespace has ended, as a machine would have"
    assert not (tmp_path / "etc/hostname").exists()
