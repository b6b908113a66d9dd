"""Awaits identity: the program that runs in a disk image's guest of which a template is made (decision 0044).

The guest has booted without being told who it is. Here it says so on its console, is saved, and, restored as whatever
VM, finds the configuration of that one in the same place and becomes it. The program stands in the seed, runs on the
image's own Python (3.7 or newer) as root, and knows nothing of the rest of this package. It is started before the state
is saved, and so is the ssh server, for an emulated guest takes its time for each program.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import time
import uuid

_CONFIG = "/sys/firmware/qemu_fw_cfg/by_name/opt/org.rmsplugin/config/raw"
_WAITING = "rmsplugin-guest: waiting"
_PLACE = "/run/rmsplugin"
_POLL_S = 0.02
_RNDRESEEDCRNG = 0x5207
_CARDS = "/sys/class/net"
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
_SERVERS = ("ssh.service", "sshd.service")
_MS_BIND = 4096
_MAP_POPULATE = 0x8000  # Python knows it since 3.10
_LAST = 19
_START_S = 5
_NOTHING = subprocess.DEVNULL
_LEFT_KIB, _CLEARED_KIB = 16 << 10, 512 << 10
#: What a start runs, and most scripts: not to be read from the disk then.
_USED_SOON = (
    *("sh", "bash", "ip", "tar", "mount", "mount.nfs", "env", "sleep", "cat", "date"),
    *("hostname", "echo", "ls", "cp", "rm", "mkdir", "grep", "sed"),
)
_LIBC = ctypes.CDLL(None)


def main() -> None:
    """Wait, and become somebody."""
    # All that boots is part of the template then, and nothing of it happens in a VM that starts from it.
    subprocess.call(["systemctl", "is-system-running", "--wait"], stdout=subprocess.DEVNULL)
    for module in ("qemu_fw_cfg", "nfsv3"):
        subprocess.call(["modprobe", "--quiet", module])
    _make_place()
    card, server = _card(), _start_server()
    _forget_boot()
    held = _hold_back(server) if server else []  # one that starts only then is not to inherit it
    with open("/dev/console", "w") as console:
        console.write(_WAITING + "\n")
    identity = _await_configuration()
    try:
        become(identity, card, server)
    finally:
        time.sleep(_START_S)
        _let_go(held)


def _make_place() -> None:
    """Where the engine puts the vjob's tools; it makes one itself where /run lets no program run and there is none."""
    os.makedirs(_PLACE, exist_ok=True)
    subprocess.call(["mount", "-t", "tmpfs", "-o", "mode=0755,nosuid,nodev", "rmsplugin", _PLACE])


def _start_server() -> int:
    """Have the ssh server run, with a key that is good for nothing: nobody reaches it. Returns its process id, or 0."""
    subprocess.call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", _HOST_KEY])
    words = ["systemctl", "show", "--property=MainPID", "--value", _restart_server()]
    answer = subprocess.run(words, stdout=subprocess.PIPE).stdout.strip()
    return int(answer) if answer.isdigit() else 0


def _restart_server() -> str:
    """Return the name of its unit."""
    subprocess.call(["systemctl", "reset-failed", *_SERVERS], stderr=subprocess.DEVNULL)
    first, second = _SERVERS
    if subprocess.call(["systemctl", "restart", first], stderr=subprocess.DEVNULL) == 0:
        return first
    subprocess.call(["systemctl", "restart", second])
    return second


def _hold_back(server: int) -> list[int]:
    """Have all but this program and the ssh server step back; returns who does, for ``_let_go``.

    The clock, the network and the mounts of the VM that this will be give the guest's daemons much to do, and each of
    them would do it before the job's script starts.
    """
    held = [process for process in _processes() if process not in (os.getpid(), server)]
    return [process for process in held if _change_priority(process, 0, _LAST)]


def _let_go(held: list[int]) -> None:
    """Undo it, also for what they have started meanwhile: that is root's, or has process 1 for its parent."""
    for process in _processes():
        with contextlib.suppress(OSError):
            if process in held or os.stat(f"/proc/{process}").st_uid == 0 or _parent_of(process) == 1:
                for thread in os.listdir(f"/proc/{process}/task"):
                    _change_priority(int(thread), _LAST, 0)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent_of(process: int) -> int:
    with open(f"/proc/{process}/stat") as facts:
        return int(facts.read().rpartition(")")[2].split()[1])


def _change_priority(thread: int, before: int, after: int) -> bool:
    """Whether it was changed; the kernel's own threads have no program, and stay as they are."""
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, thread) == before and os.readlink(f"/proc/{thread}/exe"):
            os.setpriority(os.PRIO_PROCESS, thread, after)
            return True
    return False


def _forget_boot() -> None:
    """Leave little in memory: each start from the template reads what is not zero there, be it in use or not."""
    os.sync()
    _write("/proc/sys/vm/drop_caches", "3\n")
    for program in _USED_SOON:
        with contextlib.suppress(OSError):
            subprocess.call([program, "--version"], stdin=_NOTHING, stdout=_NOTHING, stderr=_NOTHING)
    with open("/proc/meminfo") as facts, open("/proc/sys/vm/min_free_kbytes") as reserve:
        free_kib = next(int(line.split()[1]) for line in facts if line.startswith("MemFree:"))
        left_kib = _LEFT_KIB + 2 * int(reserve.read())
    if free_kib > left_kib:
        _clear(min(free_kib - left_kib, _CLEARED_KIB) << 10)


def _clear(size: int) -> None:
    """Have so much free memory full of zeros: the kernel hands it out so, first of all what the boot has used.

    In a process that may die of it: without the reserve that it keeps for itself the kernel ends who asks for more.
    """
    child = os.fork()
    if child == 0:
        try:
            _write("/proc/self/oom_score_adj", "1000")
            mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_POPULATE)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _await_configuration() -> dict[str, str]:
    while True:
        lines = _configuration().splitlines()
        if lines and lines[0] != "wait":
            break
        time.sleep(_POLL_S)
    lines = lines[: lines.index("end=")]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def _configuration() -> str:
    with open(_CONFIG) as file:
        return file.read()


def become(identity: dict[str, str], card: str, server: int) -> None:
    """Be the VM of this configuration; the network comes last, when there is nothing left that two VMs share."""
    with open("/sys/class/rtc/rtc0/since_epoch") as clock:
        time.clock_settime(time.CLOCK_REALTIME, int(clock.read()))
    _reseed(base64.b64decode(identity["seed"]))
    socket.sethostname(identity["hostname"])
    _write("/etc/hostname", identity["hostname"] + "\n")
    _write("/etc/machine-id", uuid.uuid4().hex + "\n")
    _hide_boot_id()
    os.makedirs("/root/.ssh", mode=0o700, exist_ok=True)
    _write("/root/.ssh/authorized_keys", identity["root_authorized_key"] + "\n", 0o600)
    _write(_HOST_KEY, base64.b64decode(identity["host_key"]).decode(), 0o600)
    if server:
        os.kill(server, signal.SIGHUP)  # it begins anew, with this key
    else:
        _restart_server()
    _set_network(identity, card)


def _reseed(seed: bytes) -> None:
    """Have the kernel's generator begin anew: two guests from one state would give out the same numbers."""
    with open("/dev/urandom", "wb", buffering=0) as generator:
        generator.write(seed)
        fcntl.ioctl(generator, _RNDRESEEDCRNG)


def _hide_boot_id() -> None:
    """The kernel has given its boot id out already, and there is no way to have it choose another one."""
    _write("/run/rmsplugin-boot-id", str(uuid.uuid4()) + "\n")
    _LIBC.mount(b"/run/rmsplugin-boot-id", b"/proc/sys/kernel/random/boot_id", None, _MS_BIND, None)


def _card() -> str:
    """The name of the network card: the one device of the network that has hardware."""
    return next(name for name in sorted(os.listdir(_CARDS)) if os.path.exists(f"{_CARDS}/{name}/device"))


def _set_network(identity: dict[str, str], card: str) -> None:
    """The card gets its VM's addresses; should it keep the template's, it must not come up."""
    commands = [
        f"link set dev {card} address {identity['mac']}",
        f"address add {identity['address']} broadcast + dev {card}",
        f"link set dev {card} up",
    ]
    if identity["gateway"]:
        commands.append(f"route add default via {identity['gateway']} dev {card}")
    # Who asks for this address already hears of it at once, instead of asking again a second later.
    _write(f"/proc/sys/net/ipv4/conf/{card}/arp_notify", "1")
    batch = "".join(f"{command}\n" for command in commands)
    subprocess.run(["ip", "-batch", "-"], input=batch.encode(), check=True)


def _write(path: str, content: str, mode: int = 0o644) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(content)


if __name__ == "__main__":
    main()
