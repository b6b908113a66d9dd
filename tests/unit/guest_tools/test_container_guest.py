"""The first process of a guest that is a container, in a root of its own: what it makes of its configuration."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from lifetime import ENDS_WITH_US
from patience import PATIENCE_S
from unit import guestbox
from unit.guest_tools.test_image_guest import HOST_KEY, IDENTITY, KEY, TOOLS

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

CONFIG = "usr/lib/rmsplugin/config"
#: In the place of busybox's init: says that it is process 1, and how it was called.
_INIT = '#!/busybox sh\necho "$$ $0 $*"\n'


def start(root: Path, lines: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run it as process 1, without a privilege to mount, or to change a name or a network."""
    for name in ("etc", "root", "run", "sbin", "usr/lib/rmsplugin"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / CONFIG).write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    (root / "usr/lib/rmsplugin/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    shutil.copy(TOOLS, root / "container")
    shutil.copy(shutil.which("busybox") or "busybox", root / "busybox")
    (root / "sbin/init").write_text(_INIT)
    (root / "sbin/init").chmod(0o755)
    needless = "--bounding-set=-sys_admin,-net_admin,-sys_time"
    return subprocess.run(
        [
            *ENDS_WITH_US,
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "setpriv",
            needless,
            "chroot",
            root,
            "/container",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def test_a_container_takes_its_keys_and_becomes_init_without_any_privilege_of_its_node(tmp_path: Path) -> None:
    ended = start(tmp_path, IDENTITY)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1 /sbin/init \n", "")
    for path, content in ((HOST_KEY, KEY), ("root/.ssh/authorized_keys", b"ssh-ed25519 AAAA= engine\n")):
        assert (tmp_path / path).read_bytes() == content
        assert (tmp_path / path).stat().st_mode == 0o100600
    assert (tmp_path / "etc/hosts").read_text() == "127.0.0.1 localhost\n10.9.8.7 vjob7-0\n"
    assert (tmp_path / "run/rmsplugin/image/passwd").read_text() == "root:x:0:0:root:/root:/bin/sh\n"


@pytest.mark.parametrize("key", ["", "AAA", "QUJ$"])
def test_a_container_that_nobody_could_come_into_ends_at_once(tmp_path: Path, key: str) -> None:
    ended = start(tmp_path, {**IDENTITY, "dropbear_host_key": key})
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "rmsplugin-guest: /usr/lib/rmsplugin/config has no host key\n"
    assert not (tmp_path / HOST_KEY).exists()


def test_no_value_of_a_containers_configuration_is_evaluated(tmp_path: Path) -> None:
    evil = "$(touch /evil);`touch /evil`%s%n"
    ended = start(tmp_path, {**IDENTITY, "hostname": evil, "root_authorized_key": evil})
    assert ended.returncode == 0
    assert (tmp_path / "root/.ssh/authorized_keys").read_text() == f"{evil}\n"
    assert not (tmp_path / "evil").exists()
