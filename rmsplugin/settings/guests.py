"""Settings of the guests: the common ones, and the images from which guests are booted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rmsplugin.model.vm_memory import vm_mib
from rmsplugin.settings.section import Section

_MountWord = Annotated[str, Field(pattern=r"^[^\s#]+$")]


class Mount(Section):
    """A file system that every guest mounts."""

    source: _MountWord = Field(
        ...,
        description="source as for mount(8), e.g. 10.0.0.1:/home; {user} stands for the name of the job's user, {home} "
        "for the path of that user's home, as in 10.0.0.1:{home}: then a VM has the home of its user, and no other",
    )
    target: _MountWord = Field(..., description="where, an absolute path; {user} and {home} stand for the same")
    type: Annotated[str, Field(pattern=r"^[a-z0-9]+$")] = Field("nfs", description="type of the file system")
    options: _MountWord = Field(
        "vers=4.2",
        description="mount options. Version 4 of NFS carries the locks of files to the server; with `nolock` or "
        "`local_lock` they hold within one VM only, and files that two VMs write are damaged. nosuid and nodev are "
        "added unless suid or dev are given",
    )

    def safe_options(self) -> str:
        """The options, with those that a mount has unless the site gives others."""
        given = self.options.split(",")
        added = [f"no{each}" for each in ("suid", "dev") if each not in given and f"no{each}" not in given]
        return ",".join([*given, *added])


_SIZE = r"^(|[1-9][0-9]{0,12}[kmg]?|[1-9][0-9]?%|100%)$"


class Guest(Section):
    """What all guests share."""

    mounts: tuple[Mount, ...] = Field(
        (), description="file systems that every guest mounts (homes, submit directories)"
    )
    commands: bool = Field(
        True,
        description="sbatch, squeue, scancel, scontrol, sacct, ... work inside the VMs: the site's own clients on the "
        "front carry out, as the job's user, what is asked for inside",
    )
    timezone: str = Field(
        "",
        pattern=r"^[A-Za-z0-9+_-]*(/[A-Za-z0-9+_-]+)*$",
        description="name of the guests' time zone, as in Europe/Prague; empty: that of the engine's host",
    )
    locale: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_.@-]*$",
        description="LANG of users who log in to a guest, as in en_US.UTF-8; empty: that of the engine's host "
        "(/etc/default/locale, /etc/locale.conf). Scripts have the environment exported to them",
    )
    resolv_conf: str = Field(
        "host",
        pattern=r"^(host|image|/.*)$",
        description="the guests' /etc/resolv.conf: `host`: that of the engine's host, without name servers that "
        "only it can reach (127.0.0.53); `image`: the image's own; else the path of a file on the engine's host",
    )
    hosts: str = Field(
        "host",
        pattern=r"^(host|image|/.*)$",
        description="the lines of the guests' /etc/hosts after the VMs' own names: `host`, `image` or a path, "
        "as for resolv_conf",
    )
    tmp_size: str = Field(
        "",
        pattern=_SIZE,
        description="size of a guest's /tmp where it lies in memory: percent of the VM's memory, or bytes "
        "(50%, 512m, 2g); empty: as the image has it, 50% in the small one",
    )
    shm_size: str = Field("", pattern=_SIZE, description="size of a guest's /dev/shm, as for tmp_size")


class _AnyImage(Section):
    """What images of all kinds have."""

    overhead_mib: int = Field(
        0,
        ge=0,
        le=1 << 20,
        description="memory that the guest's kernel and tools take. VMs are larger than requested by this, and "
        "by what a kernel takes of a larger machine: a job has what it asked for. 0: VMs are as "
        "large as requested, and jobs have less",
    )

    def vm_mib(self, request_mib: int) -> int:
        """The memory of a VM that is booted from it for this request, in MiB."""
        return vm_mib(request_mib, self.overhead_mib)


class _BootedImage(_AnyImage):
    """What images of VMs have, which boot a kernel of their own."""

    waits: bool = Field(
        False,
        description="guests of this image wait where the first line of their configuration is `wait`: VMs may "
        "start from templates ([start]). Images of contrib/guest-image wait, and disk images with "
        "cloud-init, systemd and QEMU's fw_cfg driver",
    )


class KernelImage(_BootedImage):
    """A guest booted directly from a kernel and an initrd."""

    kind: Literal["kernel"]
    kernel: Path = Field(..., description="path of the kernel on every node")
    initrd: Path = Field(..., description="path of the initrd on every node")
    cmdline: str = Field("", description="added to the kernel's command line")


class Qcow2Image(_BootedImage):
    """A guest booted from an overlay on a qcow2 base, configured by cloud-init."""

    kind: Literal["qcow2"]
    base: Path = Field(..., description="path of the base image on every node")


class ContainerImage(_AnyImage):
    """A guest that is a container (platform podman)."""

    kind: Literal["container"]
    reference: str = Field(
        ...,
        pattern=r"^[a-z0-9]([a-z0-9._/-]*[a-z0-9])?(:[0-9]+/[a-z0-9._/-]+)?(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})$",
        description="name and tag of the image in root's podman on every node, as contrib/guest-image build-container "
        "prints it; a saved container goes on only with the very image that it began with, so a tag that moves "
        "(`latest`) is none",
    )

    @property
    def waits(self) -> bool:
        """Containers start from no template."""
        return False


Image = Annotated[KernelImage | Qcow2Image | ContainerImage, Field(discriminator="kind")]
