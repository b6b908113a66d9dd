"""Awaits identity: the program in a disk image's guest of which a template is made (decision 0044).

The guest has booted without an identity. Here it says so on its console, and is saved. Restored as any VM, it finds the
configuration of that VM in the same place and becomes it. The program stands in the seed, runs on the image's own
Python (3.7 or newer) as root, and knows nothing of the rest of this package. Both it and the ssh server are started
before the state is saved, for an emulated guest takes its time for each program.
"""

from __future__ import annotations

import binascii
import contextlib
import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time

_CONFIG = "/sys/firmware/qemu_fw_cfg/by_name/opt/org.rmsplugin/config/raw"
_CONFIG_BYTES = 4096
_WAITING = "rmsplugin-guest: waiting"
_PLACE = "/run/rmsplugin"
_SEED, _TOOLS, _LINKS = "CIDATA", "vjob-tools", ("unpack", "login-shell")
_IMAGE = f"{_PLACE}/image"  # where `configure` finds the former accounts of the image
_PASSWD = "/etc/passwd"
_POLL_S = 0.02
_LOOK_S = 0.005  # a guest that is restored in between waits for the rest
_RNDRESEEDCRNG = 0x5207
_CARDS = "/sys/class/net"
_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
#: A pipe with the name of a key that no guest has; an ssh server opens it before it looks for the key above.
_GATE = "/etc/ssh/ssh_host_rsa_key"
#: The processes by their names in /proc, which have at most 15 letters.
_STOPPED = ("systemd-udevd", "systemd-network")
_SERVERS = ("ssh.service", "sshd.service")
#: The kernel function of a process that waits until the other end of a pipe is opened.
_AT_GATE = ("wait_for_partner", "fifo_open")
#: The seconds that the server may take to get there, and that one to be restarted may still listen as before.
_AT_GATE_S, _LISTENING_S = 10, 2
_MS_BIND = 4096
_PR_SET_THP_DISABLE = 41
_MAP_POPULATE = 0x8000  # Python has it since 3.10
_LAST = 19
#: So often it is looked for processes that still step back: what changes its own priority is not fought for ever.
_LOOKS = 10
_START_S = 5
# Requests of ioctl for sockets, and flags, of <linux/sockios.h>, <linux/if.h> and <linux/route.h>.
_SIOCADDRT, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x890B, 0x8913, 0x8914
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFHWADDR = 0x8916, 0x891C, 0x8924
_IFF_UP, _RTF_UP, _RTF_GATEWAY, _ARPHRD_ETHER = 0x1, 0x1, 0x2, 1
_ALL_BITS = 0xFFFFFFFF
_NOTHING = subprocess.DEVNULL
_RESERVE, _RESERVE_KIB = "/proc/sys/vm/min_free_kbytes", 2 << 10
_LEFT_KIB, _CLEARED_KIB = 12 << 10, 1 << 20
#: The files of a start, and of most scripts: they should not be read from the disk then.
_USED_SOON = (
    *("sh", "bash", "env", "sleep", "cat", "date"),
    *("hostname", "echo", "ls", "cp", "rm", "mkdir", "grep", "sed"),
)
_LIBC = ctypes.CDLL(None)


def main() -> None:
    """Wait, and take an identity."""
    # So all of the boot is part of the template, and none of it happens in a VM that starts from it.
    subprocess.call(["systemctl", "is-system-running", "--wait"], stdout=subprocess.DEVNULL)
    for module in ("qemu_fw_cfg", "nfsv4", "nfsv3"):
        subprocess.call(["modprobe", "--quiet", module])
    _make_place()
    _take_tools()
    _have_quick_shell()
    os.makedirs("/root/.ssh", mode=0o700, exist_ok=True)
    card, server = _card(), _stop_at_gate(_start_server())
    # A process that asks for the VM's address hears of it at once, instead of asking again a second later.
    _write(f"/proc/sys/net/ipv4/conf/{card}/arp_notify", "1")
    _forget_boot()
    held = _hold_back(server) if server else []  # a server that starts only then must not inherit it
    with open("/dev/console", "w") as console:
        console.write(_WAITING + "\n")
    identity = _await_configuration()
    try:
        become(identity, card, server)
    finally:
        time.sleep(_START_S)
        _let_go(held)


def _make_place() -> None:
    """Make the directory of the vjob's tools; the engine makes one itself if /run is noexec and there is none."""
    os.makedirs(_PLACE, exist_ok=True)
    subprocess.call(["mount", "-t", "tmpfs", "-o", "mode=0755,nosuid,nodev", "rmsplugin", _PLACE])


def _take_tools() -> None:
    """Take the tools from the seed: a VM that starts from the template gets only its own files from the engine.

    Raises CalledProcessError if the seed cannot be mounted; then no template is made.
    """
    seed, tools = f"{_PLACE}/seed", f"{_PLACE}/bin"
    os.makedirs(seed)
    os.makedirs(tools)
    subprocess.check_call(["mount", "-o", "ro", "-L", _SEED, seed])
    shutil.copyfile(f"{seed}/{_TOOLS}", f"{tools}/{_TOOLS}")
    os.chmod(f"{tools}/{_TOOLS}", 0o755)
    for link in _LINKS:
        os.symlink(_TOOLS, f"{tools}/{link}")
    subprocess.call(["umount", seed])
    os.rmdir(seed)


def _have_quick_shell() -> None:
    """Give root a shell that starts at once, until `configure` writes the accounts anew: bash takes 60 ms."""
    shell = f"{_PLACE}/bin/login-shell"
    os.makedirs(_IMAGE)
    shutil.copyfile(_PASSWD, f"{_IMAGE}/passwd")
    with open(_PASSWD) as file:
        accounts = [line.split(":") for line in file.read().splitlines()]
    _write(_PASSWD, "".join(":".join([*of[:6], shell] if of[0] == "root" else of) + "\n" for of in accounts))


def _start_server() -> int:
    """Start the ssh server, with a useless key: nobody reaches it. Returns its process id, or 0."""
    subprocess.call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", _HOST_KEY])
    words = ["systemctl", "show", "--property=MainPID", "--value", _restart_server()]
    answer = subprocess.run(words, stdout=subprocess.PIPE).stdout.strip()
    return int(answer) if answer.isdigit() else 0


def _stop_at_gate(server: int) -> int:
    """Restart the ssh server, and stop it before it reads its keys: so the work of its start is in the template.

    A server that is told to read only other keys does not stop. Returns its process id; 0 if it does neither.
    """
    if not server or os.path.exists(_GATE):
        return server
    os.mkfifo(_GATE, 0o600)
    os.kill(server, signal.SIGHUP)
    begun = time.monotonic()
    while time.monotonic() - begun < _AT_GATE_S:
        time.sleep(_POLL_S)
        with contextlib.suppress(OSError), open(f"/proc/{server}/wchan") as place:
            if place.read().startswith(_AT_GATE):
                return server
        if time.monotonic() - begun > _LISTENING_S and _listens():
            return server
    return 0


def _listens() -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 22), timeout=1):
        return True
    return False


def _let_read_keys(server: int) -> None:
    """Let the server go on; if it has not stopped, restart it."""
    if _is_gate() and _open_gate():
        return
    if server:
        os.kill(server, signal.SIGHUP)
    else:
        _restart_server()


def _is_gate() -> bool:
    return os.path.exists(_GATE) and stat.S_ISFIFO(os.stat(_GATE).st_mode)


def _open_gate() -> bool:
    """Open the gate; returns whether a process waited there."""
    try:
        gate = os.open(_GATE, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        gate = -1
    os.unlink(_GATE)  # before the server goes on, which opens a key's file more than once
    if gate >= 0:
        os.close(gate)
    return gate >= 0


def _restart_server() -> str:
    """Return the name of its unit."""
    subprocess.call(["systemctl", "reset-failed", *_SERVERS], stderr=subprocess.DEVNULL)
    first, second = _SERVERS
    if subprocess.call(["systemctl", "restart", first], stderr=subprocess.DEVNULL) == 0:
        return first
    subprocess.call(["systemctl", "restart", second])
    return second


def _hold_back(server: int) -> list[int]:
    """Hold all processes back but this program and the ssh server; returns those held back, for ``_let_go``.

    The clock, the network and the mounts of the future VM give the guest's daemons much to do, and each of
    them would do it before the job's script starts. Daemons that manage devices and networks even stop: nobody asks
    them anything, and their news meanwhile is about devices that no job uses, and a card that has its addresses.
    """
    others = [process for process in _processes() if process not in (os.getpid(), server)]
    held = [process for process in others if _change_priority(process, 0, _LAST)]
    _signal_managers(held, signal.SIGSTOP)
    return held


def _signal_managers(among: list[int], number: int) -> None:
    for process in among:
        with contextlib.suppress(OSError), open(f"/proc/{process}/comm") as name:
            if name.read().strip() in _STOPPED:
                os.kill(process, number)


def _let_go(held: list[int]) -> None:
    """Let the processes go, and those that they have started meanwhile: root's, or children of process 1."""
    _signal_managers(held, signal.SIGCONT)
    for _ in range(_LOOKS):
        # What one that still steps back starts after a look steps back, too.
        if sum(_come_back(process, held) for process in _processes()) == 0:
            return


def _come_back(process: int, held: list[int]) -> bool:
    """Return whether the process stepped back until now, and was to come back."""
    with contextlib.suppress(OSError):
        if process in held or os.stat(f"/proc/{process}").st_uid == 0 or _parent_of(process) == 1:
            threads = os.listdir(f"/proc/{process}/task")
            return sum(_change_priority(int(thread), _LAST, 0) for thread in threads) > 0
    return False


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent_of(process: int) -> int:
    with open(f"/proc/{process}/stat") as facts:
        return int(facts.read().rpartition(")")[2].split()[1])


def _change_priority(thread: int, before: int, after: int) -> bool:
    """Return whether the priority was changed; the kernel's own threads have no program, and stay as they are."""
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, thread) == before and os.readlink(f"/proc/{thread}/exe"):
            os.setpriority(os.PRIO_PROCESS, thread, after)
            return True
    return False


def _forget_boot() -> None:
    """Leave little in memory: each start from the template reads all pages that are not zero, in use or not."""
    os.sync()
    _write("/proc/sys/vm/drop_caches", "3\n")
    for program in _USED_SOON:
        with contextlib.suppress(OSError):
            subprocess.call([program, "--version"], stdin=_NOTHING, stdout=_NOTHING, stderr=_NOTHING)
    with open(_RESERVE) as file:
        reserve = file.read()
    # The kernel's reserve cannot be cleared, and the kernel caches as much again for this CPU.
    _write(_RESERVE, f"{_RESERVE_KIB}\n")
    with open("/proc/meminfo") as facts:
        free_kib = next(int(line.split()[1]) for line in facts if line.startswith("MemFree:"))
    if free_kib > _LEFT_KIB:
        _clear(min(free_kib - _LEFT_KIB, _CLEARED_KIB) << 10)
    _write(_RESERVE, reserve)


def _clear(size: int) -> None:
    """Fill so much free memory with zeros: the kernel hands out zeroed pages, first those that the boot has used.

    It does so in a process that may die of it: the kernel ends a process that asks for more than there is. It goes by
    small pages, since huge ones are made only of memory unused since the boot began.
    """
    child = os.fork()
    if child == 0:
        try:
            _write("/proc/self/oom_score_adj", "1000")
            _LIBC.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
            mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_POPULATE)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _await_configuration() -> dict[str, str]:
    while True:
        lines = _configuration().splitlines()
        if lines and lines[0] != "wait":
            break
        time.sleep(_LOOK_S)
    lines = lines[: lines.index("end=")]
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def _configuration() -> str:
    file = os.open(_CONFIG, os.O_RDONLY)
    try:
        return os.read(file, _CONFIG_BYTES).decode()
    finally:
        os.close(file)


def become(identity: dict[str, str], card: str, server: int) -> None:
    """Become the VM of this configuration; the network comes last, when two VMs no longer share anything."""
    with open("/sys/class/rtc/rtc0/since_epoch") as clock:
        time.clock_settime(time.CLOCK_REALTIME, int(clock.read()))
    _reseed(binascii.a2b_base64(identity["seed"]))
    socket.sethostname(identity["hostname"])
    _write("/etc/hostname", identity["hostname"] + "\n")
    _write("/etc/machine-id", _random_id().replace("-", "") + "\n")
    _hide_boot_id()
    _write("/root/.ssh/authorized_keys", identity["root_authorized_key"] + "\n", 0o600)
    _write(_HOST_KEY, binascii.a2b_base64(identity["host_key"]).decode(), 0o600)
    _let_read_keys(server)
    _set_network(identity, card)


def _reseed(seed: bytes) -> None:
    """Reseed the kernel's generator: two guests from one state would give out the same numbers."""
    with open("/dev/urandom", "wb", buffering=0) as generator:
        generator.write(seed)
        fcntl.ioctl(generator, _RNDRESEEDCRNG)


def _hide_boot_id() -> None:
    """Hide the boot id: the kernel has given it out already, and cannot be told to choose another one."""
    _write("/run/rmsplugin-boot-id", _random_id() + "\n")
    _LIBC.mount(b"/run/rmsplugin-boot-id", b"/proc/sys/kernel/random/boot_id", None, _MS_BIND, None)


def _random_id() -> str:
    """A UUID of random numbers; Python's own module takes an emulated guest 10 ms."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _card() -> str:
    """The name of the network card: the only network device that has hardware."""
    return next(name for name in sorted(os.listdir(_CARDS)) if os.path.exists(f"{_CARDS}/{name}/device"))


def _set_network(identity: dict[str, str], card: str) -> None:
    """Give the card its VM's addresses; if it kept the template's, it must not come up.

    This uses the kernel's own requests: an emulated guest takes 0.1 s for a program that makes them.
    """
    address, _, bits = identity["address"].partition("/")
    mask = (_ALL_BITS << (32 - int(bits)) & _ALL_BITS).to_bytes(4, "big")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card_socket:

        def request(number: int, value: bytes = b"") -> bytes:
            return fcntl.ioctl(card_socket, number, struct.pack("16s24s", card.encode(), value))[16:]

        request(_SIOCSIFHWADDR, struct.pack("H6s", _ARPHRD_ETHER, bytes.fromhex(identity["mac"].replace(":", ""))))
        request(_SIOCSIFADDR, _socket_address(socket.inet_aton(address)))
        request(_SIOCSIFNETMASK, _socket_address(mask))
        flags = int.from_bytes(request(_SIOCGIFFLAGS)[:2], sys.byteorder)
        request(_SIOCSIFFLAGS, struct.pack("H", flags | _IFF_UP))
        if identity["gateway"]:
            _add_gateway(card_socket, socket.inet_aton(identity["gateway"]))


def _socket_address(address: bytes) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, address)


def _add_gateway(any_socket: socket.socket, gateway: bytes) -> None:
    """Add the route for all addresses without another route: a ``struct rtentry``."""
    anywhere = _socket_address(bytes(4))
    entry = (0, anywhere, _socket_address(gateway), anywhere, _RTF_UP | _RTF_GATEWAY)
    fcntl.ioctl(any_socket, _SIOCADDRT, struct.pack("@L16s16s16sH64x", *entry))


def _write(path: str, content: str, mode: int = 0o644) -> None:
    """Write in place: a file system has more work with a file that is emptied first."""
    data = content.encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT, mode)
    try:
        os.write(file, data)
        if os.fstat(file).st_size > len(data):
            os.ftruncate(file, len(data))
    finally:
        os.close(file)


if __name__ == "__main__":
    main()
