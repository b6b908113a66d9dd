"""Machines: sizes, disks and files of VMs, and what a platform must know of them, all by the settings."""

from __future__ import annotations

from rmsplugin.adapters.platform.base import ContainerImage, DiskImage, KernelImage, VMSpec
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.model.vjob import Geometry
from rmsplugin.settings import Settings, guests


def has_disk(settings: Settings, vjob: VJobRow) -> bool:
    """Whether the VMs of the vjob have disks, which lie beside their configuration files."""
    return not settings.native and isinstance(settings.image[vjob.geometry.image], guests.Qcow2Image)


def is_pinned(settings: Settings, vjob: VJobRow) -> bool:
    """Whether the VMs of the vjob can only run where they were booted, because their disks are there."""
    return has_disk(settings, vjob) and not settings.nodes.vm_dir_shared


def new_vm_mib(settings: Settings, geometry: Geometry, index: int) -> int:
    """The memory (MiB) with which VM number ``index`` would boot now; an existing VM has ``VMRow.memory_mib``."""
    requested_mib = geometry.memory_mib_of(index)
    return requested_mib if settings.native else settings.image[geometry.image].vm_mib(requested_mib)


def partial_path(settings: Settings, vm: VMRow) -> str:
    """The file that a save writes: never under a name that a restore would read."""
    return f"{settings.nodes.states}/{vm.name}.state.partial"


def state_path(settings: Settings, vm: VMRow) -> str:
    """The file of a sealed state."""
    return f"{settings.nodes.states}/{vm.name}.state"


def checkpoint_path(settings: Settings, vm: VMRow, number: int) -> str:
    """The file that the checkpoint with this number is written to; sealed, it loses the last part of this name."""
    return f"{settings.nodes.states}/checkpoint-{number}.{vm.name}.state.partial"


def template_path(settings: Settings, vm: VMRow) -> str:
    """The file of the state from which a VM starts that does not boot."""
    return f"{settings.nodes.vm_dir}/{vm.name}.template"


def spec_of(settings: Settings, epoch: int, vjob: VJobRow, vm: VMRow, mounts: tuple[tuple[str, bool], ...]) -> VMSpec:
    """The VM as a hypervisor must know it.

    Args:
        settings: the site's.
        epoch: of the engine that asks for it.
        vjob: its vjob.
        vm: its row.
        mounts: the directories of its node that it has as a container, and whether it may write there.
    """
    directory = str(settings.nodes.vm_dir)
    return VMSpec(
        name=vm.name,
        uuid=vm.uuid,
        cpus=vjob.geometry.cpus_of(vm.idx),
        memory_mib=vm.memory_mib,
        mac=vm.mac,
        bridge=settings.network.bridge,
        address=vm.address,
        network_filter=settings.network.filter,
        image=_image_of(settings, vjob, f"{directory}/{vm.name}", mounts),
        config_path=f"{directory}/{vm.name}.config",
        console_log=f"{directory}/{vm.name}.console",
        epoch=epoch,
        bounded=vm.observed,
        resized_cpus=vjob.cpus_of(vm.idx) if vjob.resized_cpus else 0,
        resized_memory_mib=vjob.memory_mib_of(vm) if vjob.resized_memory_mib else 0,
    )


def _image_of(
    settings: Settings, vjob: VJobRow, path: str, mounts: tuple[tuple[str, bool], ...]
) -> KernelImage | DiskImage | ContainerImage:
    match settings.image[vjob.geometry.image]:
        case guests.KernelImage() as image:
            return KernelImage(str(image.kernel), str(image.initrd), image.cmdline)
        case guests.ContainerImage() as image:
            return ContainerImage(image.reference, mounts)
        case _:
            return DiskImage(f"{path}.qcow2", f"{path}.iso")
