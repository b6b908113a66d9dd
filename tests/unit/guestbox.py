"""Guests without VMs: real ssh servers, each in namespaces of its own, all on the loopback of one private network.

Two flavours: "busybox" (busybox ash and dropbear in a root of their own: nothing else can be used by mistake) and
"openssh" (this machine's dash and OpenSSH). Needs root; nothing is left behind, everything dies with its first process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lifetime import ENDS_WITH_US
from others import open_directory
from patience import PATIENCE_S

from rmsplugin.accounts import Account, Group, Person
from rmsplugin.adapters.guests.config import GuestConfig, GuestVM
from rmsplugin.adapters.guests.keys import KeyPair, generate_keypair
from rmsplugin.adapters.guests.ssh import SshGuests

USER, UID = "alice.b", 12345
ACCOUNT = Account(
    USER,
    UID,
    UID,
    "Alice B",
    f"/home/{USER}",
    "/bin/sh",
    groups=(Group("physics", UID), Group("domain users", 4001, ("bob",))),
    people=(Person("bob", 4100, 4100),),
)
CLONE_NEWNET = 0x40000000

FLAVOURS = ("busybox", "openssh")
_IN_BUSYBOX = ("busybox", "dropbear", "dbclient", "dropbearconvert")
_PROGRAMS = (*_IN_BUSYBOX, "sshd", "unshare", "nsenter", "setpriv", "ip")


def missing() -> str:
    """Why guests cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root (private network and mount namespaces)"
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        return "no namespaces can be made here"
    return ""


@dataclass
class Guest:
    """One running stand-in for a VM."""

    vm: GuestVM
    process: subprocess.Popen[bytes]

    def server_children(self) -> list[int]:
        """Process ids (as seen from here) of the ssh server's connections."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    name = (entry / "comm").read_text().strip()
                    same = os.readlink(entry / "ns/pid") == os.readlink(f"/proc/{self._inner()}/ns/pid")
                    # Since OpenSSH 9.8 a connection has a program of its own.
                    if same and name in ("dropbear", "sshd", "sshd-session"):
                        parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                        if Path(f"/proc/{parent}/comm").read_text().strip() == name.removesuffix("-session"):
                            found.append(int(entry.name))
        return found

    def signal_servers(self, number: signal.Signals) -> list[int]:
        """Send a signal to each of the ssh server's connections; return which ones.

        A connection may have ended by itself since it was found, and OpenSSH's two processes of one end together.
        """
        reached = []
        for pid in self.server_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                reached.append(pid)
        return reached

    def _inner(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def run(self, script: str, user: bool = False) -> str:
        """Run a script inside, as root or as the user; return its output."""
        command = ["nsenter", f"--target={self._inner()}", "--all", "--root", "--wd"]
        if user:
            command += [f"--setuid={UID}", f"--setgid={UID}"]
        result = subprocess.run([*command, "/bin/sh", "-c", script], capture_output=True, timeout=PATIENCE_S)
        assert result.returncode == 0, f"{script}: exit {result.returncode}: {result.stderr.decode()}"
        return result.stdout.decode()

    def stop(self) -> None:
        """End it with all its processes."""
        self.process.kill()
        self.process.wait()


class Guestbox:
    """A private network with guests on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.engine_key = generate_keypair()
        self._ssh = SshGuests(self.engine_key.private_openssh)
        self.key = generate_keypair()
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo && exec sleep 100000"], stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self.network = f"/proc/{self._holder.pid}/ns/net"
        self.guests: list[Guest] = []
        self._host_keys: list[KeyPair] = []

    def close(self) -> None:
        """End everything."""
        for guest in self.guests:
            guest.stop()
        self._holder.kill()
        self._holder.wait()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread make its sockets in the private network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as home, open(self.network) as there:
            assert libc.setns(there.fileno(), CLONE_NEWNET) == 0
            try:
                yield
            finally:
                assert libc.setns(home.fileno(), CLONE_NEWNET) == 0

    def boot(self, flavour: str, count: int) -> list[Guest]:
        """Start ``count`` guests."""
        for index in range(count):
            host_key = generate_keypair()
            address = f"127.0.0.{11 + index}"
            vm = GuestVM(f"vjob12-{index}", address, host_key.public)
            root = self.directory / vm.name
            root.mkdir()
            (root / "host_key").write_text(host_key.private_openssh)
            (root / "host_key").chmod(0o600)
            (root / "root_key").write_text(self.engine_key.public + "\n")
            script = _busybox_init(root, address) if flavour == "busybox" else _openssh_init(root, address)
            init = root / "start"
            init.write_text(script)
            log = (root / "log").open("wb")
            process = subprocess.Popen(
                [
                    *(*ENDS_WITH_US, "nsenter", f"--net={self.network}"),
                    *("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "sh", str(init)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            self.guests.append(Guest(vm, process))
        return self.guests

    def config(self, index: int = 0, **changes: object) -> GuestConfig:
        """Configuration of guest number ``index``."""
        facts: dict[str, object] = {
            "job_id": 12,
            "index": index,
            "vms": tuple(guest.vm for guest in self.guests),
            "cpus": 2,
            "memory_mib": 96,
            "ntasks": len(self.guests),
            "cpus_per_task": 1,
            "account": ACCOUNT,
            "key": self.key,
        }
        return GuestConfig(**{**facts, **changes})  # type: ignore[arg-type]

    def ssh(self) -> SshGuests:
        """The engine's adapter; call it inside ``entered``."""
        return self._ssh

    def configure(self, *all_cpus: int) -> None:
        """Do with all guests what the engine does after boot; ``all_cpus``: of each, if not two."""
        cpus = all_cpus or (2,) * len(self.guests)
        with self.entered():
            for index, guest in enumerate(self.guests):
                config = self.config(index, cpus=cpus[index], all_cpus=all_cpus, ntasks=sum(all_cpus) or len(cpus))
                self.ssh().wait_ready(guest.vm.address, guest.vm.host_key, timeout_s=PATIENCE_S)
                self.ssh().configure(guest.vm.address, guest.vm.host_key, config, timeout_s=PATIENCE_S)


@contextlib.contextmanager
def opened() -> Iterator[Guestbox]:
    """A box without guests, in a directory of its own; everything ends with it."""
    with open_directory() as place:
        box = Guestbox(place)
        try:
            yield box
        finally:
            box.close()


@contextlib.contextmanager
def ready(flavour: str, number: int, *all_cpus: int) -> Iterator[Guestbox]:
    """A box with so many guests that are configured, of two CPUs each, or of so many."""
    with opened() as box:
        box.boot(flavour, number)
        box.configure(*all_cpus)
        yield box


def wait_until(condition, what: str = "") -> None:  # type: ignore[no-untyped-def]
    """Poll until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.02)


def signalled(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal, tolerating that the process has just ended."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _busybox_init(root: Path, address: str) -> str:
    system = root / "root"
    for applet in subprocess.run(["busybox", "--list-full"], capture_output=True, text=True).stdout.split():
        link = system / applet
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to("/bin/busybox")
    for name in _IN_BUSYBOX:
        program = Path(shutil.which(name) or name)
        target = system / "bin" / name
        for link in (target, system / "usr/bin" / name):
            link.unlink(missing_ok=True)
        shutil.copy2(program, target)
        for word in subprocess.run(["ldd", program], capture_output=True, text=True).stdout.split():
            if word.startswith("/") and Path(word).exists():
                (system / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(word).resolve(), system / word[1:])
    for name in ("dev", "proc", "run", "tmp", "etc/dropbear", "root/.ssh", "home"):
        (system / name).mkdir(parents=True, exist_ok=True)
    (system / "etc/passwd").write_text("root:*:0:0:root:/root:/bin/sh\n")
    (system / "etc/group").write_text("root:x:0:\n")
    (system / "etc/hosts").write_text("127.0.0.1 localhost\n")
    shutil.copy2(root / "host_key", system / "etc/dropbear/openssh_key")
    shutil.copy2(root / "root_key", system / "root/.ssh/authorized_keys")
    (system / "root").chmod(0o700)
    (system / "tmp").chmod(0o1777)
    (system / "init").write_text(
        "dropbearconvert openssh dropbear /etc/dropbear/openssh_key /etc/dropbear/key\n"
        f"dropbear -F -E -s -j -k -P '' -p {address}:22 -W 262144 -r /etc/dropbear/key\n"
    )
    return (
        f"mount --make-rprivate / && mount --bind {system} {system} && mount -t proc proc {system}/proc && "
        f"mount --rbind /dev {system}/dev && mount -t tmpfs run {system}/run && "
        # As in the small guest, whose files lie in memory, output too.
        f"mkdir -p {system}/run/rmsplugin/output && "
        f"exec env -i PATH=/sbin:/usr/sbin:/bin:/usr/bin chroot {system} /bin/sh /init\n"
    )


def _openssh_init(root: Path, address: str) -> str:
    (root / "sshd_config").write_text(
        f"ListenAddress {address}\nHostKey {root}/host_key\nAuthorizedKeysFile .ssh/authorized_keys\nUsePAM no\n"
        "PasswordAuthentication no\nPidFile none\nStrictModes yes\n"
    )
    return (
        "mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs -o noexec,mode=755 run /run && "
        "mkdir -p /run/sshd /run/etc && mount -t tmpfs etc /run/etc && mkdir /run/etc/u /run/etc/w && "
        "mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/u,workdir=/run/etc/w etc /etc && "
        "mount -t tmpfs -o mode=700 root /root && mkdir -m 700 /root/.ssh && "
        f"cp {root}/root_key /root/.ssh/authorized_keys && "
        "mount -t tmpfs -o mode=755 home /home && "
        # Control groups are this machine's: nothing here shall make any.
        "mount -t tmpfs fs /sys/fs && "
        # Its own /tmp: another run of the tests may have a guest that writes files of the same names.
        f"mkdir /run/root && mount --bind {root} /run/root && mount -t tmpfs -o mode=1777 tmp /tmp && "
        f"mkdir -p {root} && mount --bind /run/root {root} && "
        "mkdir -p /var/lib/rmsplugin && mount -t tmpfs lib /var/lib/rmsplugin && "
        # This machine's own: no guest may write there.
        "mount --bind /usr/bin /usr/bin && mount -o remount,bind,ro /usr/bin && "
        f"/usr/sbin/sshd -D -e -f {root}/sshd_config\n"
    )
