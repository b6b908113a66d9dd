"""The disk of the machines: a Debian with all that our packages depend on, and with nothing of ours.

It is made of a root that try-release makes and keeps, without loop devices. Each machine has its own layer above it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from build_packages_lib.tools import REPOSITORY, output_of
from try_release_lib import inside
from try_release_lib import root as roots

from real_site.layout import HOSTS, PREFIX_LENGTH

#: Of a controller, a front and a VM host: one disk is for all.
PACKAGES = (
    "linux-image-amd64", "systemd-sysv", "dbus", "udev", "kmod", "openssh-server", "iproute2", "iputils-ping", "chrony",
    "procps", "libpam-systemd", "apparmor", "apparmor-utils",
    # Slurm
    "slurmctld", "slurmd", "slurmdbd", "slurm-client", "slurm-wlm-basic-plugins", "munge", "mariadb-server",
    # homes
    "nfs-kernel-server", "nfs-common",
    # what Ansible installs packages by
    "python3-apt",
)  # fmt: skip
_SIZE_MIB = 6144
#: What installing needs of this machine, and the machines must not have.
_SETTINGS = (
    "etc/apt/sources.list", "etc/apt/apt.conf.d/80outer", "etc/apt/auth.conf", "etc/apt/auth.conf.d", "etc/pip.conf",
    "root/.pip", "root/.config", "etc/resolv.conf", "etc/hosts", "etc/hostname", "var/lib/apt/lists",
    "var/cache/apt", "usr/sbin/policy-rc.d", "usr/local/share/ca-certificates",
)  # fmt: skip
_INSTALL = r"""
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/site
export DEBIAN_FRONTEND=noninteractive
packages=$1 depends=$2
{
    apt-get -q update
    apt-get -q -y install --no-install-recommends $packages
    apt-get -q -y satisfy --no-install-recommends "$depends"
} >/tmp/log 2>&1 || { tail -n 40 /tmp/log >&2; exit 1; }
"""
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
    "getty@tty1.service",
)  # fmt: skip
#: What Debian enables with their packages; each host of the site has some.
_DISABLED = (
    "mariadb.service", "slurmdbd.service", "slurmctld.service", "slurmd.service", "nfs-server.service",
    "libvirtd.service", "libvirtd.socket", "libvirtd-ro.socket", "libvirtd-admin.socket", "libvirt-guests.service",
)  # fmt: skip
#: Only what a machine of QEMU has: any other takes an emulated one half a minute to unpack and look through.
_INITRAMFS_CONF = "MODULES=list\n"
_INITRAMFS_HOOK = """\
#!/bin/sh
[ "$1" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk ext4 crc32c
"""
#: Each machine makes keys of its own at its first start, and finds its address by its name. The administrator's key,
#: and what is to be installed, are on a second disk.
_FILES = {
    "etc/fstab": "/dev/vda / ext4 noatime 0 0\n/dev/vdb /srv/site ext4 ro 0 0\n",
    "etc/hosts": "127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in HOSTS),
    "etc/machine-id": "",
    "etc/ssh/sshd_config.d/administrator.conf": "AuthorizedKeysFile .ssh/authorized_keys /srv/site/administrator.pub\n",
    "etc/systemd/system/ssh.service.d/keys.conf": "[Service]\nExecStartPre=\nExecStartPre=/usr/bin/ssh-keygen -A\n",
    "etc/systemd/network/10-bridge.netdev": "[NetDev]\nName=br0\nKind=bridge\n[Bridge]\nSTP=no\nForwardDelaySec=0\n",
    "etc/systemd/network/20-card.network": "[Match]\nName=en*\n[Network]\nBridge=br0\n",
    **{
        f"etc/systemd/network/30-{host.name}.network": f"[Match]\nName=br0\nHost={host.name}\n"
        f"[Network]\nAddress={host.address}/{PREFIX_LENGTH}\nLinkLocalAddressing=no\n"
        for host in HOSTS
    },
}


@dataclass(frozen=True)
class Base:
    """A disk that machines have a layer above, and what boots it."""

    disk: Path
    kernel: Path
    initrd: Path


def dependencies() -> str:
    """What our packages need of Debian, as apt-get satisfy takes it."""
    text = "".join(path.read_text() for path in sorted((REPOSITORY / "contrib/debian").glob("*.control")))
    clauses = ", ".join(re.findall(r"^(?:Depends|Recommends): (.*)$", text, re.MULTILINE)).split(", ")
    return ", ".join(re.sub(r" \([^)]*\$[^)]*\)", "", each) for each in clauses if not each.startswith("rmsplugin-"))


def base(release: str, directory: Path) -> Base:
    """Make the disk, or find it.

    Args:
        release: the code name.
        directory: where the root and the disk are kept.

    Raises:
        roots.TryError: it fails.
    """
    key = hashlib.sha256(repr((release, dependencies())).encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    place = roots.Place(directory, release)
    kept = directory / "machines"
    made = Base(*(kept / f"{name}-{key}" for name in ("disk", "vmlinuz", "initrd")))
    with place.lock():
        if not made.disk.exists():
            place.make(None)
            shutil.rmtree(kept, ignore_errors=True)  # of an earlier list
            kept.mkdir()
            _install(place)
            _make_disk(place.root, made)
    return made


def _install(place: roots.Place) -> None:
    place.take_settings(None)
    (place.root / roots.CHECKOUT.relative_to("/")).mkdir(parents=True, exist_ok=True)
    _write(place.root, {"etc/initramfs-tools/conf.d/site": _INITRAMFS_CONF})
    _write(place.root, {"etc/initramfs-tools/hooks/site": _INITRAMFS_HOOK}, 0o755)
    if inside.run(place, ["sh", "-ec", _INSTALL, "sh", " ".join(PACKAGES), dependencies()]) != 0:
        raise roots.TryError("the packages could not be installed (see above)")
    for name in _SETTINGS:
        path = place.root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    # Addresses of bridges are made of the machine's id, and two hosts of libvirt have to differ.
    for path in (*place.root.glob("etc/ssh/ssh_host_*"), *place.root.glob("var/lib/dbus/machine-id")):
        path.unlink()
    _write(place.root, _FILES)
    (place.root / "srv/site").mkdir(exist_ok=True)
    (place.root / "var/cache/apt/archives/partial").mkdir(parents=True)
    for unit in _MASKED:
        (place.root / "etc/systemd/system" / unit).unlink(missing_ok=True)
        (place.root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    output_of(["systemctl", f"--root={place.root}", "enable", "systemd-networkd.service"])
    output_of(["systemctl", f"--root={place.root}", "disable", *_DISABLED])


def _make_disk(root: Path, made: Base) -> None:
    for pattern, target in (("vmlinuz-*", made.kernel), ("initrd.img-*", made.initrd)):
        (newest,) = sorted(root.glob(f"boot/{pattern}"))[-1:]
        shutil.copy(newest, target)
    new = made.disk.with_suffix(".new")
    file_system(root, new, _SIZE_MIB)
    new.rename(made.disk)


def file_system(tree: Path, target: Path, size_mib: int) -> None:
    """Make a file system with what a directory has."""
    target.unlink(missing_ok=True)
    output_of(["mke2fs", "-q", "-t", "ext4", "-d", tree, target, f"{size_mib}M"])


def layer(below: Path, target: Path) -> None:
    """Make a disk that has what another has until it is written to."""
    output_of(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", below, target])


def _write(root: Path, files: Mapping[str, str], mode: int = 0o644) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
