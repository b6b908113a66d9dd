"""contrib/ansible: real ansible-playbook over real ssh, on three throw-away roots over this machine.

The hosts are a controller, a front and a VM host. Their packages are built without the libraries of the package index,
which the checkout's virtual environment lends.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from packaged import throwaway
from packaged.playbook import PLAYBOOK, REPOSITORY, ROLE, play

SITE = f"/usr/lib/rmsplugin/lib/python{sysconfig.get_python_version()}/site-packages"
LINT = PLAYBOOK.with_name("ansible-lint")
_STRANGERS = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
HOSTS = {"ctl": "controller", "login": "front", "n1": "node"}

needs_roots = pytest.mark.skipif(
    not (PLAYBOOK.exists() and Path("/usr/bin/python3").exists() and throwaway.can_be_made()),
    reason="needs ansible-core (the extra lint), root and overlays",
)

#: Debian's module of libvirt may not be on this machine; the environment lends another.
_STAND_IN = """\
Package: python3-libvirt
Version: 99
Architecture: all
Maintainer: nobody <nobody@localhost>
Description: stands for Debian's
"""
_SSHD = """\
unset TMPDIR
sed -i /^slurm:/d /etc/passwd /etc/group /etc/shadow
rm -rf /root/.ssh /etc/rmsplugin /var/lib/rmsplugin /var/lib/rmsplugin-node
usermod -p '*' root
dpkg --force-unsafe-io -i /srv/given/python3-libvirt.deb >/dev/null
mkdir -p {site} /run/sshd
echo /srv/libraries >{site}/lent.pth
ssh-keygen -q -t ed25519 -N '' -f /run/host_key
exec /usr/sbin/sshd -D -e -f /dev/null -h /run/host_key -p {port} -o ListenAddress=127.0.0.1 -o StrictModes=no \
    -o UsePAM=no -o PidFile=none -o PermitRootLogin=yes -o AuthorizedKeysFile=/srv/given/key.pub \
    -o 'Subsystem=sftp internal-sftp'
"""


def _port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages and the settings of a site; a key to log in by."""
    made = tmp_path_factory.mktemp("given")
    build = [REPOSITORY / "contrib/build-packages", "--fast", "--without-libraries", "--output", made / "debs"]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made / "stand-in/DEBIAN").mkdir(parents=True)
    (made / "stand-in/DEBIAN/control").write_text(_STAND_IN)
    pack = ["dpkg-deb", "--root-owner-group", "-b", made / "stand-in", made / "python3-libvirt.deb"]
    subprocess.run(pack, check=True, capture_output=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", made / "key"], check=True)
    (made / "rmsplugin.toml").write_text(throwaway.SETTINGS)
    return made


@pytest.fixture(scope="module")
def inventory(given: Path) -> Iterator[Path]:
    """The inventory of hosts that answer."""
    with ExitStack() as stack:
        groups = {}
        for host, kind in HOSTS.items():
            port = _port()
            shown = {given: "/srv/given", Path(sysconfig.get_path("purelib")): "/srv/libraries"}
            script, own = _SSHD.format(site=SITE, port=port), {"TMPDIR": str(given)}  # it is killed, and leaves its own
            command, environment = throwaway.command_in(Path("/"), script, shown, variables=own)
            log = stack.enter_context((given / f"{host}.log").open("w"))
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            _await(port, process, given / f"{host}.log")
            groups[f"rmsplugin_{kind}"] = {"hosts": {host: {"ansible_host": "127.0.0.1", "ansible_port": port}}}
        variables = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(given / "key"),
            "ansible_ssh_common_args": " ".join((*_STRANGERS, "-o", "ControlPath=none")),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_become": False,
            "rmsplugin_debs": str(given / "debs"),
            "rmsplugin_settings": str(given / "rmsplugin.toml"),
        }
        file = given / "inventory.yml"
        file.write_text(yaml.safe_dump({"all": {"vars": variables, "children": groups}}))
        yield file


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until sshd answers there."""
    for _ in range(1200):
        assert process.poll() is None, log.read_text()
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def on(inventory: Path, host: str, command: str) -> str:
    """What a command says on a host."""
    groups = yaml.safe_load(inventory.read_text())["all"]["children"]
    port = groups[f"rmsplugin_{HOSTS[host]}"]["hosts"][host]["ansible_port"]
    ssh = ["ssh", "-i", inventory.with_name("key"), "-p", str(port), *_STRANGERS, "root@127.0.0.1", command]
    return subprocess.run(ssh, capture_output=True, text=True, check=True).stdout


@pytest.mark.long
@needs_roots
def test_the_role_sets_each_host_up_and_a_second_run_changes_nothing(inventory: Path) -> None:
    first = play(inventory)
    assert first.status == 0, first.said[-6000:]
    assert first.told.keys() == HOSTS.keys()
    assert all(each["changed"] > 0 and not each["failed"] for each in first.told.values())
    query = "dpkg-query -W -f '${db:Status-Status} ${Package}\\n' 'rmsplugin-*' | sed -n 's/^installed //p'"
    installed = {host: on(inventory, host, query).split() for host in HOSTS}
    assert installed == {
        "ctl": ["rmsplugin-common", "rmsplugin-controller"],
        "login": ["rmsplugin-common"],
        "n1": ["rmsplugin-common", "rmsplugin-node"],
    }
    # The VM host has what the controller has made for it, and lets the controller's engine in.
    key = on(inventory, "ctl", "ssh-keygen -y -f /etc/rmsplugin/agent_key").split()[1]
    assert key in on(inventory, "n1", "cat /root/.ssh/authorized_keys")
    authority = on(inventory, "ctl", "cat /etc/rmsplugin/ca/cacert.pem")
    assert authority == on(inventory, "n1", "cat /etc/pki/CA/cacert.pem")
    parcel = "stat -c %a /var/lib/rmsplugin-node/given.tar; sha256sum </var/lib/rmsplugin-node/given.tar"
    assert on(inventory, "n1", parcel).split()[0] == "600"
    assert on(inventory, "ctl", "sha256sum </etc/rmsplugin/nodes/n1.tar") in on(inventory, "n1", parcel)
    assert "left to do" in first.said and "PRIVATE KEY" not in first.said
    second = play(inventory)
    assert second.status == 0 and set(second.changed.values()) == {0}, second.said[-6000:]
    on(inventory, "n1", "rm /etc/libvirt/hooks/qemu.d/rmsplugin")
    dry = play(inventory, "--check")
    assert (dry.status, dry.changed["n1"], dry.changed["ctl"]) == (0, 1, 0), dry.said[-6000:]
    assert "to make  /etc/libvirt/hooks/qemu.d/rmsplugin" in dry.said


@pytest.mark.long
@needs_roots
def test_a_host_without_packages_for_it_is_refused(inventory: Path, tmp_path: Path) -> None:
    done = play(inventory, "-e", f"rmsplugin_debs={tmp_path}", "--limit", "login")
    assert done.status != 0 and f"{tmp_path} has to have each package once for Debian" in done.said


@pytest.mark.slow
@pytest.mark.skipif(not LINT.exists(), reason="needs ansible-lint (the extra lint)")
def test_ansible_lint_finds_nothing_by_the_rules_of_its_production_profile(tmp_path: Path) -> None:
    copy = shutil.copytree(ROLE, tmp_path / "ansible")  # it leaves a directory of its own beside what it reads
    environment = {"PATH": f"{LINT.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
    command = [LINT, "--offline", "--strict", "--profile", "production", "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
