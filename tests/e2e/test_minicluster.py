"""The minicluster itself: two side by side, plain Slurm jobs, and that nothing of it is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from minicluster_lib import control_groups, requirements, teardown
from minicluster_lib.layout import QEMU_ACCOUNT, RefusedError
from minicluster_lib.namespaces import HeldNamespaces
from patience import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MINICLUSTER = str(REPOSITORY / "contrib/minicluster")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
pytestmark = [pytest.mark.e2e]


def owned() -> tuple[str, str]:
    """The options with which a cluster goes down when these tests are killed, and when they are interrupted in `up`."""
    return "--owner", str(os.getpid())


def minicluster(
    directory: Path, command: str, *arguments: str, check: bool = True, timeout_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [MINICLUSTER, command, "--dir", str(directory), *(owned() if command == "up" else ()), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert not check or result.returncode == 0, f"{command} {arguments}: {result.stdout}{result.stderr}"
    return result


def run_on(directory: Path, host: str, *command: str, user: str = "root", check: bool = True) -> str:
    return minicluster(directory, "exec", host, "--user", user, "--", *command, check=check).stdout.strip()


def status_of(directory: Path) -> dict[str, Any]:
    return dict(json.loads(minicluster(directory, "status", "--json", check=False).stdout))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def traces_on_the_machine() -> dict[str, list[str]]:
    """Mounts, network interfaces and named network namespaces that this process sees."""

    def lines(*command: str) -> list[str]:
        return sorted(subprocess.run(command, capture_output=True, text=True).stdout.splitlines())

    return {
        "mounts": sorted(line.split(" ", 3)[3] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "links": lines("ip", "-o", "-br", "link"),
        "namespaces": lines("ip", "netns", "list"),
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("*/*slurm*")),
    }


def processes_in(held: HeldNamespaces) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        # An ended process that nobody has waited for yet still shows its namespaces.
        if not entry.name.isdigit() or teardown.is_zombie(int(entry.name)) or not held.has(int(entry.name)):
            continue
        with contextlib.suppress(OSError):
            found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
    return found


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Path, Path]]:
    """Two miniclusters of one node each, at the same time; they must leave nothing."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    before = traces_on_the_machine()
    with tempfile.TemporaryDirectory(prefix="rmsplugin-test-") as base, HeldNamespaces() as held:
        # One has a path that is too long for the address of a Unix socket.
        first, second = Path(base) / "one", Path(base) / ("two-" + "x" * 100)
        try:
            ups = [
                threading.Thread(target=minicluster, args=(directory, "up", "--nodes", "1", "--no-engine"))
                for directory in (first, second)
            ]
            for thread in ups:
                thread.start()
            for thread in ups:
                thread.join()
            assert status_of(first)["up"] and status_of(second)["up"]
            for directory in (first, second):
                teardown.members(directory, held)
            assert len(held) == 8  # 2 clusters, 2 hosts, 2 kinds
            assert bool(control_groups.hierarchies()) == bool(control_groups.of(first) and control_groups.of(second))
            yield first, second
        finally:
            for directory in (first, second):
                minicluster(directory, "down")
        assert list(Path(base).iterdir()) == []
        assert processes_in(held) == []
    assert not teardown.members(first) and not teardown.members(second)
    assert not control_groups.of(first) and not control_groups.of(second)
    assert traces_on_the_machine() == before


@needs_root
def test_a_plain_job_of_an_ordinary_user(pair: tuple[Path, Path]) -> None:
    for directory in pair:
        job = run_on(directory, "head", "sbatch", "--parsable", "--wrap", "id -un; hostname; exit 3", user="alice")

        def ended(directory: Path = directory, job: str = job) -> bool:
            state = run_on(directory, "head", "sacct", "-nPX", "-j", job, "-o", "user,partition,state,exitcode")
            return state == "alice|plain|FAILED|3:0"

        wait_for(ended)
        assert run_on(directory, "n1", "cat", f"/home/alice/slurm-{job}.out", user="alice") == "alice\nn1"


@needs_root
def test_the_clusters_do_not_see_each_other(pair: tuple[Path, Path]) -> None:
    first, second = pair
    run_on(first, "head", "touch", "/home/alice/mine", user="alice")
    assert "mine" not in run_on(second, "head", "ls", "/home/alice")
    certificates = {run_on(directory, "n1", "cat", "/etc/pki/CA/cacert.pem") for directory in pair}
    assert len(certificates) == 2


@needs_root
def test_up_on_a_running_cluster_says_so(pair: tuple[Path, Path]) -> None:
    assert "already up" in minicluster(pair[0], "up").stderr


@needs_root
def test_libvirt_is_reached_with_a_client_certificate_only(pair: tuple[Path, Path]) -> None:
    directory = pair[0]

    def virsh(uri: str, user: str) -> subprocess.CompletedProcess[str]:
        return minicluster(directory, "exec", "head", "--user", user, "--", "virsh", "-c", uri, "list", check=False)

    uri = "qemu+tls://n1/system?pkipath="
    assert virsh(f"{uri}/etc/rmsplugin/pki", "slurm").returncode == 0
    assert virsh(f"{uri}/etc/rmsplugin/pki", "alice").returncode != 0
    without = "mkdir /tmp/ca && cp /etc/rmsplugin/pki/cacert.pem /tmp/ca/ && chmod -R a+rX /tmp/ca"
    run_on(directory, "head", "sh", "-c", without)
    assert virsh(f"{uri}/tmp/ca", "slurm").returncode != 0
    assert virsh("qemu+tcp://n1/system", "slurm").returncode != 0


@needs_root
def test_no_secret_is_readable_by_others(pair: tuple[Path, Path]) -> None:
    directory = pair[0]
    secrets = []
    for path in directory.rglob("*"):
        if path.is_symlink() or not path.is_file():
            continue
        if path.name in ("munge.key", "slurmdbd.conf") or b"PRIVATE KEY-----" in path.read_bytes()[:200]:
            secrets.append(path.name)
            mine = path.parent.name == "qemu" and path.group() == QEMU_ACCOUNT  # its group has nobody else
            assert path.stat().st_mode & (0o037 if mine else 0o077) == 0, path
    assert {"munge.key", "agent_key", "node_key", "clientkey.pem", "server-key.pem"} <= set(secrets)


@needs_root
def test_a_daemon_is_killed_and_started(pair: tuple[Path, Path]) -> None:
    directory = pair[0]
    minicluster(directory, "kill", "n1", "slurmd")
    state = status_of(directory)
    assert not state["up"]
    assert state["hosts"]["n1"]["daemons"]["slurmd"]["status"] == -9
    minicluster(directory, "start", "n1", "slurmd")
    state = status_of(directory)
    assert state["up"]
    pid = state["hosts"]["n1"]["daemons"]["slurmd"]["pid"]
    assert Path(f"/proc/{pid}/comm").read_text().strip() == "slurmd"
    minicluster(directory, "restart", "head", "slurmctld")
    wait_for(lambda: run_on(directory, "head", "sinfo", "-h", "-p", "plain", "-o", "%T", check=False) == "idle")
    assert minicluster(directory, "kill", "n1", "nonsense", check=False).returncode == 1
    assert minicluster(directory, "exec", "n7", "--", "true", check=False).returncode == 2


@needs_root
def test_a_hosts_programs_get_no_huge_pages(pair: tuple[Path, Path]) -> None:
    of_libvirt = "grep -h THP_enabled $(dirname $(grep -lx libvirtd /proc/[0-9]*/comm))/status"
    assert run_on(pair[0], "n1", "sh", "-c", of_libvirt).split() == ["THP_enabled:", "0"]


@needs_root
def test_a_guest_of_96_mib_boots_and_takes_its_configuration(pair: tuple[Path, Path]) -> None:
    """Boot the image as libvirt would, and see it answer at its address."""
    directory = pair[0]
    host = directory / "hosts/n1"
    (host / "tmp/config").write_text(
        "hostname=$(touch /evil)\naddress=10.77.1.99/16\ngateway=10.77.0.1\nroot_authorized_key=ssh-ed25519 AAAA= x=\n"
    )
    images = "/var/lib/rmsplugin-images"
    script = (
        "ip tuntap add t0 mode tap && ip link set t0 master br0 up && exec qemu-system-x86_64 -nodefaults"
        " -display none -no-reboot -accel tcg -cpu qemu64 -machine pc -m 96 -serial file:/tmp/console"
        f" -kernel {images}/vmlinuz -initrd {images}/initrd.img -append 'console=ttyS0 quiet panic=-1'"
        " -netdev tap,id=n,ifname=t0,script=no,downscript=no -device virtio-net-pci,netdev=n"
        " -fw_cfg name=opt/org.rmsplugin/config,file=/tmp/config"
    )
    guest = subprocess.Popen(
        [MINICLUSTER, "exec", "--dir", str(directory), "n1", "--", "sh", "-c", script], stderr=subprocess.PIPE
    )
    try:
        console = host / "tmp/console"
        wait_for(lambda: console.exists() and b"rmsplugin-guest: ready" in console.read_bytes())
        ping = ("busybox", "ping", "-c1", "-W1", "10.77.1.99")
        wait_for(lambda: "1 packets received" in run_on(directory, "head", *ping, check=False))
    finally:
        # Left running on purpose: `down` has to find it. Only this side of it is given up.
        guest.kill()
        guest.wait()


@needs_root
@pytest.mark.parametrize("stage", ["hosts and network", "slurmdbd answers"])
def test_down_leaves_nothing_of_an_up_that_was_killed(tmp_path: Path, stage: str) -> None:
    directory = tmp_path / "cluster"
    before = traces_on_the_machine()
    process = subprocess.Popen(
        [MINICLUSTER, "up", "--dir", str(directory), *owned(), "--nodes", "1", "--no-engine"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if stage in line:
            break
    process.kill()
    process.wait()
    process.stderr.close()
    assert directory.exists()
    with HeldNamespaces() as held:
        teardown.members(directory, held)
        assert not status_of(directory)["up"]
        minicluster(directory, "down")
        assert not control_groups.of(directory)
        assert not directory.exists()
        assert processes_in(held) == []
    assert traces_on_the_machine() == before
    assert "no minicluster" in minicluster(directory, "down").stderr


@needs_root
def test_a_cluster_goes_down_when_its_owner_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    before = traces_on_the_machine()
    owner = subprocess.Popen(["sleep", "infinity"])
    with HeldNamespaces() as held:
        try:
            minicluster(directory, "up", "--owner", str(owner.pid), "--nodes", "1", "--no-engine", "--power-saving")
            teardown.members(directory, held)
            assert len(held) == 4  # 2 hosts, 2 kinds
            assert status_of(directory)["up"]
        finally:
            owner.kill()
            owner.wait()
            wait_for(lambda: not directory.exists())
        assert processes_in(held) == []
    assert not teardown.members(directory)
    assert not control_groups.of(directory)
    assert traces_on_the_machine() == before


@needs_root
def test_an_owner_that_has_cleaned_up_ends_and_nothing_comes_back(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    guardian = [sys.executable, "-m", "minicluster_lib.guardian", str(gone / "cluster"), "2147483647"]
    subprocess.run(guardian, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "contrib")}, check=True, timeout=60)
    assert not gone.exists()


@needs_root
def test_the_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    for command in ("up", "down"):
        result = minicluster(tmp_path, command, check=False)
        assert result.returncode == 2
        assert "left alone" in result.stderr
    assert (tmp_path / "precious").exists()


def test_what_the_machine_lacks_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RefusedError, match="root"):
        requirements.check()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "_check_namespaces", lambda: None)
    monkeypatch.setattr(requirements, "wanted_packages", lambda: ["bash", "no-such-package"])
    with pytest.raises(RefusedError, match=r"apt-get install .*no-such-package"):
        requirements.check()


@needs_root
def test_miniclusters_that_come_up_at_once_on_a_new_machine_make_one_database() -> None:
    """Three workers of pytest do so, where nothing is in the cache yet."""
    program = "from minicluster_lib import accounting; print(accounting.empty_database())"
    # Not in pytest's own directory: MariaDB works as a user of its own, who may not enter that.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rmsplugin-cache-") as cache:
        Path(cache).chmod(0o755)
        surroundings = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONPATH": str(REPOSITORY / "contrib")}
        outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        makers = [subprocess.Popen([sys.executable, "-c", program], env=surroundings, **outputs) for _ in range(3)]
        told = [maker.communicate(timeout=PATIENCE_S) for maker in makers]
        assert [maker.returncode for maker in makers] == [0, 0, 0], told
        [made] = {out for out, _ in told}
        assert (Path(made.strip()) / "ibdata1").exists()
