"""Host init: the first process of a minicluster host.

It makes the host's namespaces and its file tree, then starts, watches and signals the host's daemons on request.
As it is process 1 of a PID namespace, the kernel ends every process of the host with it, guests included, and the
mount and network namespaces go with the last of them. That is all that tearing a host down takes.

A host may have a BMC, which takes its power away and gives it back (``host_power``). This process stays.

Requests are one JSON object on a line over a Unix socket in the host's directory, answered with one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import grp
import json
import os
import pwd
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minicluster_lib import control_groups, host_power, kernel, kvm
from minicluster_lib.layout import MEMBER_VARIABLE, SEARCH_PATH

CONTROL_SOCKET = "control.sock"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", kvm.DEVICE, "net/tun", "fuse")
CGROUP_NAMES = ("systemd", "freezer", "memory", "cpuset", "cpu", "cpuacct", "devices")


def build_root(host_directory: Path, binds: list[list[str]], hierarchies: dict[Path, str]) -> None:
    """Build the host's file tree below host_directory/rootfs and make it the root of this mount namespace.

    Args:
        host_directory: the host's part of the cluster's directory; holds its etc, var, root and tmp.
        binds: [source on the machine, path inside, "ro" or "rw"], mounted in this order.
        hierarchies: where this process is in control groups of the host's own, as ``control_groups`` has them.
    """
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    root = host_directory / "rootfs"
    root.mkdir(exist_ok=True)
    kernel.mount("tmpfs", str(root), "tmpfs", kernel.MS_NODEV, "size=16m,mode=755")
    for entry in sorted(Path("/").iterdir()):
        inside = root / entry.name
        if entry.name in ("usr", "bin", "sbin", "opt") or entry.name.startswith("lib"):
            if entry.is_symlink():
                inside.symlink_to(os.readlink(entry))
            elif entry.is_dir():
                inside.mkdir()
                kernel.bind(str(entry), str(inside), read_only=True)
    for name in ("etc", "var", "root", "tmp"):
        (root / name).mkdir()
        kernel.bind(str(host_directory / name), str(root / name))
    for name in ("proc", "sys", "dev", "run", "home", "mnt", "srv"):
        (root / name).mkdir()
    kernel.mount("proc", str(root / "proc"), "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount("tmpfs", str(root / "run"), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    (root / "run/lock").mkdir(mode=0o755)
    _mount_sys(root / "sys", hierarchies)
    mount_dev(root / "dev")
    for source, inside_path, mode in binds:
        target = root / inside_path.lstrip("/")
        if Path(source).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        kernel.bind(source, str(target), read_only=mode == "ro")
    kernel.pivot_root(str(root))


def _mount_sys(sys_directory: Path, hierarchies: dict[Path, str]) -> None:
    kernel.mount("sysfs", str(sys_directory), "sysfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    mount_control_groups(sys_directory / "fs/cgroup", hierarchies)


def mount_control_groups(cgroup: Path, hierarchies: dict[Path, str]) -> None:
    """Mount those control groups that are a host's own, in the place of all others."""
    if not cgroup.is_dir():
        return
    # slurmd looks for version 1 hierarchies here even when it is told to use none of them. It gets one without any
    # controller, of our own, and so has nothing to do with the machine's control groups, whatever their version. Those
    # of libvirt, if any, begin for this host with its own groups.
    kernel.mount("tmpfs", str(cgroup), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for name in CGROUP_NAMES:
        (cgroup / name).mkdir()
    with contextlib.suppress(OSError):
        kernel.mount("cgroup", str(cgroup / CGROUP_NAMES[0]), "cgroup", options="none,name=rmsplugin")
    if hierarchies:
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        for hierarchy, options in hierarchies.items():
            (cgroup / hierarchy.name).mkdir(exist_ok=True)
            kernel.mount("cgroup", str(cgroup / hierarchy.name), "cgroup", options=options)


def mount_dev(dev: Path) -> None:
    """Give a root devices of its own: the usual ones, and those that guests need where the machine has them."""
    kernel.mount("tmpfs", str(dev), "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    for name in DEVICES:
        source = Path("/dev") / name
        if source.exists() and (name != kvm.DEVICE or kvm.usable()):
            target = dev / name
            target.parent.mkdir(exist_ok=True)
            target.touch()
            kernel.bind(str(source), str(target))
    (dev / "pts").mkdir()
    kernel.mount("devpts", str(dev / "pts"), "devpts", kernel.MS_NOSUID, "newinstance,ptmxmode=0666,mode=620,gid=5")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "shm").mkdir()
    kernel.mount("tmpfs", str(dev / "shm"), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    for name, target_name in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        (dev / name).symlink_to(f"/proc/self/fd{target_name}")


#: Signals by which a program dies of its own fault. Daemons that tests end are ended by others.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


#: How often it is looked whether a boot or a shutdown can go on.
_STEP_S = 0.05


@dataclass
class Daemon:
    """A daemon of this host: how to start it, whether it is started again when it crashes, and how it fares.

    Attributes:
        awaits: the file without which it cannot do much when its host boots.
        boot_flags: by which it says that its host has just booted.
        own_power: whether it runs while the host has no power.
    """

    argv: list[str]
    user: str
    environment: dict[str, str]
    restart_on_crash: bool
    awaits: str = ""
    boot_flags: Sequence[str] = ()
    own_power: bool = False
    pid: int | None = None
    status: int | None = None
    starts: int = 0


class Supervisor:
    """Starts, reaps and signals this host's daemons."""

    def __init__(self, cluster_directory: str) -> None:
        self._cluster_directory = cluster_directory
        self._daemons: dict[str, Daemon] = {}
        self._listeners: list[socket.socket] = []
        self._power: host_power.HostPower | None = None

    def start(
        self,
        name: str,
        argv: list[str],
        user: str = "root",
        environment: dict[str, str] | None = None,
        restart_on_crash: bool = False,
        **more: Any,
    ) -> None:
        """Start a daemon; its output is appended to /var/log/NAME.log. A running one is left alone."""
        known = self._daemons.get(name)
        if known is not None and known.pid is not None:
            return
        starts = known.starts if known else 0
        daemon = Daemon(argv, user, environment or {}, restart_on_crash, starts=starts, **more)
        self._daemons[name] = daemon
        self._check_power(daemon)
        self._spawn(name, daemon, daemon.boot_flags)

    def _spawn(self, name: str, daemon: Daemon, flags: Sequence[str] = ()) -> None:
        account = pwd.getpwnam(daemon.user)
        environment = {
            "PATH": SEARCH_PATH,
            "LANG": "C.UTF-8",
            "HOME": account.pw_dir if Path(account.pw_dir).is_dir() else "/",
            "USER": daemon.user,
            "LOGNAME": daemon.user,
            MEMBER_VARIABLE: self._cluster_directory,
            **daemon.environment,
        }
        with open(f"/var/log/{name}.log", "ab") as log:
            process = subprocess.Popen(
                [*daemon.argv, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env=environment,
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[g.gr_gid for g in grp.getgrall() if daemon.user in g.gr_mem],
                umask=0o022,
            )
        daemon.pid, daemon.status = process.pid, None
        daemon.starts += 1
        process.returncode = 0  # reap() waits for it, not the Popen object.

    def reap(self) -> None:
        """Collect every ended child, the adopted ones included."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, daemon in self._daemons.items():
                if daemon.pid == pid:
                    daemon.pid, daemon.status = None, os.waitstatus_to_exitcode(status)
                    if daemon.restart_on_crash and -daemon.status in _CRASHES and self._has_power(daemon):
                        self._spawn(name, daemon)

    # -- power: see host_power.Daemons ---------------------------------------------------------------------------

    def bootable(self) -> list[str]:
        """Those that a boot starts, in this order."""
        return [name for name, daemon in self._daemons.items() if not daemon.own_power]

    def running(self) -> list[str]:
        """Those that run."""
        return [name for name in self.bootable() if self._daemons[name].pid is not None]

    def awaits(self, name: str) -> str:
        """The file without which a daemon cannot do much; empty: none."""
        return self._daemons[name].awaits

    def boot(self, name: str, *, tells_boot: bool) -> None:
        """Start one. ``tells_boot``: its host has just booted, and it is to say so."""
        daemon = self._daemons[name]
        self._spawn(name, daemon, daemon.boot_flags if tells_boot else ())

    def terminate(self, name: str) -> None:
        """Send one SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._daemons[name].pid or 0, signal.SIGTERM)

    def spared(self) -> list[int]:
        """Processes with power of their own."""
        return [daemon.pid for daemon in self._daemons.values() if daemon.own_power and daemon.pid is not None]

    def _has_power(self, daemon: Daemon) -> bool:
        return daemon.own_power or self._power is None or self._power.on

    def _check_power(self, daemon: Daemon) -> None:
        if not self._has_power(daemon):
            raise ValueError("this host has no power")

    def _switch(self, request: dict[str, Any]) -> None:
        """Do what is asked of the host's power, which a first request makes one that can be switched."""
        if request["op"] == "has_power":
            self._power = host_power.HostPower(self, request["address"], request["device"])
            self._listeners.append(host_power.listen())
            return
        if self._power is None:
            raise ValueError("this host has no BMC")
        if "fault" in request:
            self._power.fault = host_power.Fault(request["fault"])
        {"on": self._power.switch_on, "off": self._power.cut, "shutdown": self._power.shut_down, None: lambda: None}[
            request.get("to")
        ]()

    # -- requests ------------------------------------------------------------------------------------------------

    def stop(self, name: str, signal_number: int, timeout_s: float) -> None:
        """Signal a daemon and wait until it has ended; SIGKILL it at the time limit."""
        daemon = self._daemon(name)
        deadline = time.monotonic() + timeout_s
        if daemon.pid is not None:
            os.kill(daemon.pid, signal_number)
        while daemon.pid is not None:
            if time.monotonic() > deadline:
                os.kill(daemon.pid, signal.SIGKILL)
                deadline += timeout_s
            time.sleep(0.01)
            self.reap()

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for."""
        operation = request["op"]
        if operation == "start":
            self.start(**{key: value for key, value in request.items() if key != "op"})
        elif operation == "start_again":
            daemon = self._daemon(request["name"])
            self._check_power(daemon)
            if daemon.pid is None:
                self._spawn(request["name"], daemon)
        elif operation == "signal":
            daemon = self._daemon(request["name"])
            if daemon.pid is None:
                raise ValueError(f"{request['name']} is not running")
            os.kill(daemon.pid, request["signal"])
        elif operation == "stop":
            self.stop(request["name"], request.get("signal", signal.SIGTERM), request.get("timeout_s", 15))
        elif operation == "restart":
            self.stop(request["name"], request.get("signal", signal.SIGTERM), request.get("timeout_s", 15))
            daemon = self._daemon(request["name"])
            self._check_power(daemon)
            if request.get("argv"):
                daemon.argv = request["argv"]
            self._spawn(request["name"], daemon)
        elif operation in ("has_power", "power"):
            self._switch(request)
        elif operation != "status":
            raise ValueError(f"unknown operation {operation!r}")
        self.reap()
        return {
            "power": self._power is None or self._power.on,
            "daemons": {
                name: {"pid": d.pid, "status": d.status, "starts": d.starts, "own_power": d.own_power}
                for name, d in self._daemons.items()
            },
        }

    def _daemon(self, name: str) -> Daemon:
        if name not in self._daemons:
            raise ValueError(f"no daemon {name!r} on this host; it has {', '.join(sorted(self._daemons)) or 'none'}")
        return self._daemons[name]

    def serve(self, listener: socket.socket) -> None:
        """Answer requests until the end of the host."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._listeners.append(listener)
        while True:
            pause_s = _STEP_S if self._power is not None and self._power.busy else None
            readable, _, _ = select.select([*self._listeners, wake_read], [], [], pause_s)
            if wake_read in readable:
                os.read(wake_read, 4096)
            self.reap()
            for each in self._listeners:
                if each in readable:
                    connection, _ = each.accept()
                    with connection:
                        self._answer(connection)
            if self._power is not None and self._power.busy:
                self._power.step()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        try:
            line = connection.makefile("rb").readline()
            answer = self.handle(json.loads(line))
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            answer = {"error": str(error)}
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Make the namespaces, then be process 1 in them. Prints its PID on the machine when the host is up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--host", required=True)
    arguments = parser.parse_args()
    host_directory = Path(arguments.dir) / "hosts" / arguments.host
    binds = json.loads((host_directory / "binds.json").read_text())

    hierarchies = control_groups.enter(Path(arguments.dir), arguments.host)
    kernel.unshare(
        kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID | kernel.CLONE_NEWNET
    )
    up_read, up_write = os.pipe()
    child = os.fork()
    if child:
        os.close(up_write)
        started = os.read(up_read, 1) == b"+"
        print(child if started else "", flush=True)
        os._exit(0 if started else 1)

    os.close(up_read)
    os.setsid()
    # Where this machine is a VM itself, memory that it has not used before costs it most in pieces of 2 MiB: a guest's
    # restore took 0.4 to 0.9 s with them, and 0.5 s without.
    kernel.use_small_pages()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The path of a Unix socket may be 107 bytes long; the cluster's directory may be longer.
    directory_fd = os.open(host_directory, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o077)
    listener.bind(f"/proc/self/fd/{directory_fd}/{CONTROL_SOCKET}")
    os.umask(0o022)
    listener.listen(16)
    os.close(directory_fd)
    kernel.set_host_name(arguments.host)
    build_root(host_directory, binds, hierarchies)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, env={"PATH": SEARCH_PATH})
    os.write(up_write, b"+")
    os.close(up_write)
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    Supervisor(arguments.dir).serve(listener)


if __name__ == "__main__":
    main()
