"""Debian: a disk image of a real Debian with cloud-init, made from Debian packages without loop devices."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from guest_image_lib.build import BuildError, cache_directory, only, run

NAME = "debian.qcow2"

PACKAGES = (
    "linux-image-cloud-amd64", "systemd-sysv", "udev", "dbus", "kmod", "openssh-server", "cloud-init", "netplan.io",
    "iproute2", "netbase", "nfs-common",
    # An MPI, and programs for it that nobody has to compile.
    "openmpi-bin", "python3-mpi4py",
    # Behind a virtual package, which debootstrap does not resolve.
    "python3-cffi-backend",
)  # fmt: skip

_SECTOR = 512
_MIB = 1 << 20
_BOOT_START_MIB, _BOOT_MIB, _ROOT_MIB = 1, 96, 1536
# As rmsplugin has it for images of kind kernel: a busy node's emulated timer is not taken for a broken one.
_SYSLINUX_CFG = """\
DEFAULT linux
PROMPT 0
LABEL linux
  KERNEL vmlinuz
  INITRD initrd.img
  APPEND root=/dev/vda2 rw console=ttyS0 quiet panic=-1 no_timer_check
"""
# Each login would load some twenty modules, which have nothing to say about a vjob's accounts; VMs have one address.
_SSHD_CONF = "UsePAM no\nAddressFamily inet\n"
# Without a start of the program anew for each connection: an emulated guest takes 0.1 s and more for that.
_SSHD_DEFAULTS = "SSHD_OPTS=-r\n"
# Most holes of kernels that let users be root begin in a user namespace. Boosted watermarks hold back some of the
# memory that a job asked for, by chance and for a while.
_SYSCTL_CONF = "user.max_user_namespaces = 0\nvm.watermark_boost_factor = 0\n"
# Only what the seed of rmsplugin asks for: each further module costs seconds of a boot under TCG.
_CLOUD_CFG = """\
datasource_list: [NoCloud]
cloud_init_modules: [bootcmd, set_hostname, update_hostname, users-groups, ssh]
cloud_config_modules: []
cloud_final_modules: []
system_info:
  network:
    renderers: [netplan]
"""
# Where the initial file system is that of any machine, its emulated guest takes seconds to unpack it, and to look for
# the hardware of others.
_INITRAMFS_CONF = "MODULES=list\n"
_INITRAMFS_HOOK = """\
#!/bin/sh
[ "$1" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_blk ext4 crc32c
"""
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service", "fstrim.timer",
    "dpkg-db-backup.timer", "getty@tty1.service", "serial-getty@ttyS0.service", "cloud-config.service",
    "cloud-final.service",
    # A guest that waits to be told who it is has no network, and would be waited for.
    "systemd-networkd-wait-online.service",
    "rpcbind.service", "rpcbind.socket", "nfs-client.target",
    # Each is a process or two, for what no job in a VM looks at.
    "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "dev-hugepages.mount", "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount", "sys-kernel-config.mount", "sys-fs-fuse-connections.mount", "modprobe@drm.service",
    "modprobe@efi_pstore.service", "modprobe@loop.service", "modprobe@dm_mod.service",
)  # fmt: skip


def mirror() -> tuple[str, str]:
    """Return the URL and the suite that this machine's apt has first for a Debian release.

    Raises:
        BuildError: apt has no such source.
    """
    lists = run(["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(CODENAME)", "Created-By: Packages"])
    release = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    suite = release.group(1) if release else ""
    for line in lists.stdout.splitlines():
        site, *names = line.split()
        if suite in names:
            return site, suite
    raise BuildError(f"apt has no source for Debian {suite}")


def build_debian(output: Path | None, progress: Callable[[str], None]) -> Path:
    """Build the image, or find it in the cache; return its path.

    Args:
        output: a directory where it is wanted besides the cache.
        progress: told what is being done.
    """
    site, suite = mirror()
    candidates = run(["apt-cache", "policy", *PACKAGES]).stdout
    versions = re.findall(r"^(\S+):$|^\s+Candidate: (\S+)", candidates, re.MULTILINE)
    key = hashlib.sha256(repr((suite, versions)).encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    directory = cache_directory() / f"debian-{key}"
    if not (directory / NAME).exists():
        progress(f"building a disk image of Debian {suite}")
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".building-") as work:
            root = Path(work) / "root"
            prepare(root)
            includes = f"--include={','.join(PACKAGES)}"
            run(["debootstrap", "--variant=minbase", includes, suite, str(root), site])
            trim(root)
            make_disk(root, Path(work) / "disk")
            (Path(work) / "disk").rename(directory / NAME)
    os.utime(directory)
    if output is None:
        return directory / NAME
    output.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(directory / NAME, output / NAME))


def prepare(root: Path) -> None:
    """Leave in an empty root directory what the packages' own installation is to go by."""
    tools = root / "etc/initramfs-tools"
    for name in ("conf.d", "hooks"):
        (tools / name).mkdir(parents=True)
    (tools / "conf.d/rmsplugin").write_text(_INITRAMFS_CONF)
    hook = tools / "hooks/rmsplugin"
    hook.write_text(_INITRAMFS_HOOK)
    hook.chmod(0o755)


def trim(root: Path) -> None:
    """Make a fresh Debian one that many guests start from, and start soon."""
    (root / "etc/cloud/cloud.cfg.d/99-rmsplugin.cfg").write_text(_CLOUD_CFG)
    (root / "etc/ssh/sshd_config.d/rmsplugin.conf").write_text(_SSHD_CONF)
    (root / "etc/default/ssh").write_text(_SSHD_DEFAULTS)
    (root / "etc/sysctl.d").mkdir(exist_ok=True)
    (root / "etc/sysctl.d/rmsplugin.conf").write_text(_SYSCTL_CONF)
    (root / "etc/fstab").write_text("/dev/vda2 / ext4 noatime 0 0\n")
    # What must differ between guests is theirs to make.
    (root / "etc/machine-id").write_text("")
    for path in root.glob("etc/ssh/ssh_host_*"):
        path.unlink()
    for name in ("etc/resolv.conf", "etc/hostname"):
        (root / name).unlink(missing_ok=True)
    for name in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / name, ignore_errors=True)
    for unit in _MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    run(["systemctl", f"--root={root}", "enable", "systemd-networkd.service", "ssh.service"])


def make_disk(root: Path, target: Path) -> None:
    """Make a bootable qcow2 of a root directory: a FAT partition for syslinux, and the root file system."""
    raw, ext4 = target.with_suffix(".raw"), target.with_suffix(".ext4")
    root_start_mib = _BOOT_START_MIB + _BOOT_MIB
    boot_at = f"{raw}@@{_BOOT_START_MIB}M"
    with raw.open("wb") as file:
        file.truncate((root_start_mib + _ROOT_MIB) * _MIB)
    table = f"{_BOOT_START_MIB}MiB,{_BOOT_MIB}MiB,c,*\n{root_start_mib}MiB,{_ROOT_MIB}MiB,83\n"
    run(["sfdisk", "--quiet", "--label", "dos", str(raw)], text=table)
    sectors = _MIB // _SECTOR
    run(
        [
            "mformat",
            "-i",
            boot_at,
            "-T",
            str(_BOOT_MIB * sectors),
            "-h",
            "64",
            "-s",
            "32",
            "-H",
            str(_BOOT_START_MIB * sectors),
            "::",
        ]
    )
    run(["syslinux", "--install", "--offset", str(_BOOT_START_MIB * _MIB), str(raw)])
    for pattern, name in (("vmlinuz-*", "vmlinuz"), ("initrd.img-*", "initrd.img")):
        run(["mcopy", "-i", boot_at, str(only(root / "boot", pattern)), f"::{name}"])
    configuration = target.with_suffix(".cfg")
    configuration.write_text(_SYSLINUX_CFG)
    run(["mcopy", "-i", boot_at, str(configuration), "::syslinux.cfg"])
    with raw.open("r+b") as file:
        file.write(Path("/usr/lib/syslinux/mbr/mbr.bin").read_bytes()[:440])
    run(["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(ext4), f"{_ROOT_MIB}M"])
    run(["dd", f"if={ext4}", f"of={raw}", "bs=1M", f"seek={root_start_mib}", "conv=notrunc,sparse"])
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(target)])
    for path in (raw, ext4, configuration):
        path.unlink()
