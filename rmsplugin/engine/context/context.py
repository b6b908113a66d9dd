"""Context: the things that the engine's parts share: settings, ledger, the adapters and the clock."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property

from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import DiskImage, KernelImage, Platform, VMSpec
from rmsplugin.adapters.rms.base import Rms
from rmsplugin.engine.context.accounting import Accounting
from rmsplugin.engine.context.bounds import Bounds
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.demanded import Demanded
from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.context.restored import Restored
from rmsplugin.engine.context.shield import shielded
from rmsplugin.engine.context.signs import SignsOfLife
from rmsplugin.engine.context.slurm_facts import SeenSlurm
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.context.suspensions import Suspensions
from rmsplugin.engine.context.thread_budget import ThreadBudget
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.epochs import FIRST_EPOCH
from rmsplugin.model.vjob import Geometry
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import KernelImage as KernelImageSettings


@dataclass(frozen=True)
class Context:
    """One set of adapters, with the settings, the ledger and the clock."""

    settings: Settings
    ledger: Ledger
    rms: Rms
    hypervisor: Platform
    nodes: Nodes
    guests: Guests
    root_public_key: str  # the engine's own key, root in every guest
    epoch: int = FIRST_EPOCH  # of this engine
    clock: Clock = field(default_factory=Clock)
    signs: SignsOfLife = field(default_factory=SignsOfLife)
    capabilities: Capabilities = field(init=False)  # of the platform
    suspensions: Suspensions = field(init=False)
    slurm: SeenSlurm = field(default_factory=SeenSlurm)
    demanded_cpus: Demanded = field(default_factory=Demanded)
    #: The threads in which VMs are acted on.
    threads: ThreadBudget = field(default_factory=ThreadBudget)
    #: When each VM was last seen on a node, by the VM's name and the node's. In memory only.
    seen_vms: dict[tuple[str, str], float] = field(default_factory=dict)
    #: How long the last VM restored from each image's template took until it answered. In memory only.
    restored_s: dict[str, Restored] = field(default_factory=dict)

    #: Held while VMs are placed: from the look at the free memory and CPUs until the ledger has the VMs that take them.
    placement_lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Shield the adapters, so that nodes that are gone are asked nothing."""
        object.__setattr__(self, "suspensions", Suspensions(self.clock.now()))
        object.__setattr__(self, "capabilities", self.hypervisor.capabilities)
        object.__setattr__(self, "hypervisor", shielded(self.hypervisor, self.ledger.nodes))
        object.__setattr__(self, "nodes", shielded(self.nodes, self.ledger.nodes))

    @cached_property
    def jobs(self) -> JobReader:
        """Reads of single jobs, shared by all operations that wait for their jobs."""
        return JobReader(self.rms)

    @cached_property
    def accounting(self) -> Accounting:
        """The ends of jobs that the RMS has forgotten."""
        return Accounting(self.rms, self.clock.now)

    @cached_property
    def bounds(self) -> Bounds:
        """The memory of each node that observed VMs may take."""
        return Bounds(self.nodes, self.clock.now)

    @cached_property
    def stores(self) -> Stores:
        """The stores of saved states, each proved by its marker."""
        return Stores(self.ledger, self.nodes, shared=self.shared)

    @property
    def store(self) -> str:
        """Directory of saved states, on each node or shared by all."""
        return str(self.settings.nodes.shared_store or self.settings.nodes.store)

    @property
    def shared(self) -> bool:
        """Whether every node sees every saved state."""
        return self.settings.nodes.shared_store is not None

    def has_disk(self, vjob: VJobRow) -> bool:
        """Whether the VMs of the vjob have disks, which lie beside their configuration files."""
        return not isinstance(self.settings.image[vjob.geometry.image], KernelImageSettings)

    def new_vm_mib(self, geometry: Geometry, index: int) -> int:
        """The memory (MiB) with which VM number ``index`` would boot now; an existing VM has ``VMRow.memory_mib``."""
        return self.settings.image[geometry.image].vm_mib(geometry.memory_mib_of(index))

    def pinned(self, vjob: VJobRow) -> bool:
        """Whether the VMs of the vjob can only run where they were booted, because their disks are there."""
        return self.has_disk(vjob) and not self.settings.nodes.vm_dir_shared

    def partial_path(self, vm: VMRow) -> str:
        """The file that a save writes: never under a name that a restore would read."""
        return f"{self.store}/{vm.name}.state.partial"

    def state_path(self, vm: VMRow) -> str:
        """The file of a sealed state."""
        return f"{self.store}/{vm.name}.state"

    def checkpoint_path(self, vm: VMRow, number: int) -> str:
        """The file that the checkpoint with this number is written to; sealed, it loses the last part of this name."""
        return f"{self.store}/checkpoint-{number}.{vm.name}.state.partial"

    def complete_state_bytes(self, vm: VMRow) -> int | None:
        """Size of the file of a save that has ended well; None if there is no whole file.

        Only the temporary name is looked at: the ledger records a state before its file gets the final name, so a file
        that has the final name already may be of an earlier sleep.
        """
        partial = self.nodes.stat(vm.host, vm.name, shared=self.shared).partial
        return partial.size_bytes if partial is not None and partial.complete else None

    def template_path(self, vm: VMRow) -> str:
        """The file of the state from which a VM starts that does not boot."""
        return f"{self.settings.nodes.vm_dir}/{vm.name}.template"

    def spec(self, vjob: VJobRow, vm: VMRow) -> VMSpec:
        """The VM as a hypervisor must know it."""
        directory = str(self.settings.nodes.vm_dir)
        image = self.settings.image[vjob.geometry.image]
        return VMSpec(
            name=vm.name,
            uuid=vm.uuid,
            cpus=vjob.geometry.cpus_of(vm.idx),
            memory_mib=vm.memory_mib,
            mac=vm.mac,
            bridge=self.settings.network.bridge,
            address=vm.address,
            network_filter=self.settings.network.filter,
            image=(
                KernelImage(str(image.kernel), str(image.initrd), image.cmdline)
                if isinstance(image, KernelImageSettings)
                else DiskImage(f"{directory}/{vm.name}.qcow2", f"{directory}/{vm.name}.iso")
            ),
            config_path=f"{directory}/{vm.name}.config",
            console_log=f"{directory}/{vm.name}.console",
            epoch=self.epoch,
            bounded=vm.observed,
        )
