"""Machines: virtual ones that QEMU emulates, in a network of their own that has no way out.

All of it is in namespaces that end with the campaign, however it ends.
"""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from real_site import disk
from real_site.layout import Host
from real_site.patience import patient

_BRIDGE = "site"
#: As rmsplugin has it for its VMs, a busy machine's emulated timer is not taken for a broken one. On busy CPUs it may
#: take longer than systemd's 90 s until udev has shown a disk, or a daemon of Debian's has started, and longer than the
#: 25 s that networkd waits for the kernel. Since systemd 254 devices have a bound of their own. Nothing here needs what
#: is masked, and each has a bound that no parameter lengthens.
_CMDLINE = (
    "root=/dev/vda rw console=ttyS0 quiet panic=-1 no_timer_check systemd.hostname={name} "
    "systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900 "
    "systemd.setenv=SYSTEMD_NETLINK_DEFAULT_TIMEOUT=900 "
    "systemd.mask=systemd-binfmt.service systemd.mask=systemd-networkd-persistent-storage.service"
)
#: What systemd says on the console when it has given up, and waits for somebody to press Enter.
_GIVEN_UP = "You are in emergency mode"
_SSH = (
    "-q", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
    "-o", "ConnectTimeout=120", "-o", "ServerAliveInterval=60",
    # A new connection takes an emulated machine seconds.
    "-o", "ControlMaster=auto", "-o", "ControlPersist=yes",
)  # fmt: skip


class StepError(Exception):
    """A step of the campaign failed; the text says how."""


def connect(hosts: Sequence[Host]) -> None:
    """Make the network that the machines are plugged into, in this process's network namespace."""
    lines = ["link set lo up", f"link add {_BRIDGE} type bridge stp_state 0 forward_delay 0"]
    lines += [f"address add 10.77.255.1/16 dev {_BRIDGE}", f"link set {_BRIDGE} up"]
    for host in hosts:
        lines += [f"tuntap add {host.name} mode tap", f"link set {host.name} master {_BRIDGE} up"]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


@dataclass
class Machine:
    """One that runs.

    Args:
        host: what it is.
        base: the disk below its own.
        extra: the second disk, with the packages.
        directory: for its disk, its console, and the administrator's key.
    """

    host: Host
    base: disk.Base
    extra: Path
    directory: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def console(self) -> Path:
        """What it has said on its serial line."""
        return self.directory / f"{self.host.name}.console"

    def start(self) -> None:
        """Switch it on."""
        name = self.host.name
        own = self.directory / f"{name}.qcow2"
        if not own.exists():
            disk.layer(self.base.disk, own)
        command = [
            *("qemu-system-x86_64", "-name", name, "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"),
            # Two hosts of libvirt may not have one id.
            *("-uuid", f"00000077-0077-4077-8077-0000000000{self.host.number:02x}"),
            *("-smp", str(self.host.cpus), "-m", str(self.host.memory_mib), "-nodefaults", "-display", "none"),
            *("-kernel", self.base.kernel, "-initrd", self.base.initrd, "-append", _CMDLINE.format(name=name)),
            *("-drive", f"file={own},if=virtio,format=qcow2,cache=unsafe"),
            *("-drive", f"file={self.extra},if=virtio,format=raw,readonly=on"),
            *("-netdev", f"tap,id=net,ifname={name},script=no,downscript=no"),
            *("-device", f"virtio-net-pci,netdev=net,mac=52:54:00:77:00:{self.host.number:02x}"),
            *("-device", "virtio-rng-pci", "-serial", f"file:{self.console}"),
        ]
        with (self.directory / f"{name}.qemu").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, script: str, timeout_s: float = 120) -> str:
        """Run a shell script there as root; return what it says.

        Raises:
            StepError: it fails, or does not end in time.
        """
        done = self.ask(script, timeout_s)
        if done.returncode != 0:
            raise StepError(f"{self.host.name}: exit status {done.returncode}\n{done.stdout[-6000:]}")
        return done.stdout

    def ask(self, script: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a shell script there as root, whatever its exit status."""
        self._check_up()
        key, shared = self.directory / "administrator", self.directory / f"{self.host.name}.ssh"
        try:
            return subprocess.run(
                ["ssh", *_SSH, "-o", f"ControlPath={shared}", "-i", key, f"root@{self.host.address}", "sh -eu"],
                input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=patient(timeout_s),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            said = (error.stdout or b"").decode(errors="replace")
            raise StepError(f"{self.host.name}: not done after {patient(timeout_s):.0f} s\n{said[-3000:]}") from None

    def put(self, path: str, content: str | bytes, mode: str = "644", owner: str = "root:root") -> None:
        """Write a file there."""
        data = content.encode() if isinstance(content, str) else content
        coded = base64.encodebytes(data).decode()
        self.run(
            f"install -D -m 600 /dev/null {path}; base64 -d >{path} <<'END'\n{coded}END\n"
            f"chown {owner} {path}; chmod {mode} {path}"
        )

    def read(self, path: str) -> bytes:
        """Return what a file there has."""
        return base64.b64decode(self.run(f"base64 {path}"))

    def wait_until_up(self, timeout_s: float) -> None:
        """Wait until systemd has started all that it starts, and ssh answers.

        Raises:
            StepError: it is not there in time, or a unit has failed.
        """
        timeout_s = patient(timeout_s)
        until = time.monotonic() + timeout_s
        while not self._answers():
            self._check_up()
            if _GIVEN_UP in self.last_words():
                raise StepError(f"{self.host.name} stands in emergency mode: {self.last_words()}")
            if time.monotonic() > until:
                raise StepError(f"{self.host.name} does not answer after {timeout_s:.0f} s: {self.last_words()}")
            time.sleep(1)
        left_s = max(30.0, until - time.monotonic())
        self.run("systemctl is-system-running --wait || { systemctl --failed --no-legend --plain; exit 1; }", left_s)

    def _answers(self) -> bool:
        try:
            return self.ask("true", 60).returncode == 0
        except StepError:
            return False

    def last_words(self) -> str:
        """The end of its console."""
        return self.console.read_text(errors="replace")[-1500:] if self.console.exists() else "it said nothing"

    def _check_up(self) -> None:
        if self._process is None or self._process.poll() is not None:
            log = (self.directory / f"{self.host.name}.qemu").read_text(errors="replace")
            raise StepError(f"QEMU of {self.host.name} has ended: {log[-1500:]}")
