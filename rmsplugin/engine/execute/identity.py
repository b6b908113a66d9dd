"""Identity: the account under which a vjob's script runs, and the configuration that gives it to the VMs.

The engine asks its own host's name service. The front, where Slurm runs the job, may know more or other groups: its
prolog, which is root, tells the engine before the script starts (decision 0041).
"""

from __future__ import annotations

import json

from rmsplugin.accounts import Account, look_up
from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.guests.config import GuestConfig, GuestMount, GuestVM
from rmsplugin.adapters.guests.keys import KeyPair
from rmsplugin.adapters.guests.site_files import read_site_files
from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.context.slurm_facts import SeenSlurm
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings
from rmsplugin.settings.guests import ContainerImage, Mount

_CONFIGURE_S = 30.0
#: States of a vjob whose VMs are still to be configured.
_BEFORE = frozenset({VJobState.WAITING, VJobState.STARTING})


def account_of(vjob: VJobRow, gid: int | None) -> Account:
    """The account of a vjob's user: as the front told, or as this host's name service says.

    Args:
        vjob: the vjob.
        gid: the group that its job runs in; None: the user's group.

    Raises:
        RefusedError: neither this host nor the front knows the user.
    """
    if vjob.account:
        account = Account.parse(json.loads(vjob.account))
    else:
        try:
            account = look_up(vjob.uid)
        except RefusedError as error:
            raise RefusedError(f"{error}, the controller; users must be known there") from None
    return account if gid is None else account.in_group(gid)


def guest_config(
    settings: Settings, ledger: Ledger, slurm: SeenSlurm, vjob: VJobRow, vm: VMRow, account: Account, front: str
) -> GuestConfig:
    """The configuration that makes a booted image this VM of the vjob; Slurm runs its job on ``front``."""
    geometry, guest = vjob.geometry, settings.guest
    return GuestConfig(
        job_id=vjob.job_id,
        index=vm.idx,
        cpus=geometry.cpus_of(vm.idx),
        all_cpus=tuple(map(geometry.cpus_of, range(geometry.vms))),
        memory_mib=geometry.memory_mib_of(vm.idx),
        ntasks=geometry.ntasks,
        cpus_per_task=geometry.cpus_per_task,
        account=account,
        key=KeyPair(vjob.private_key, vjob.public_key),
        vms=tuple(GuestVM(each.name, each.address, each.host_key_public) for each in ledger.vms(vjob.job_id)),
        mounts=tuple(_mount(each, account) for each in guest.mounts),
        site=read_site_files(guest),
        commands=guest.commands,
        slurm=slurm.facts,
        front=front,
    )


def site_directories(settings: Settings, vjob: VJobRow) -> tuple[tuple[str, bool], ...]:
    """The directories of a node that a vjob's containers have, too, and whether they may write there; of VMs none.

    Raises:
        RefusedError: one of them is the user's own, and neither this host nor the front knows the user.
    """
    if not isinstance(settings.image[vjob.geometry.image], ContainerImage):
        return ()
    own = any("{" in mount.target for mount in settings.guest.mounts)
    account = account_of(vjob, None) if own else None
    return tuple(
        (mount.target if account is None else _of_user(mount.target, account), "ro" not in mount.options.split(","))
        for mount in settings.guest.mounts
    )


def _mount(mount: Mount, account: Account) -> GuestMount:
    return GuestMount(
        _of_user(mount.source, account), _of_user(mount.target, account), mount.type, mount.safe_options()
    )


def _of_user(path: str, account: Account) -> str:
    return path.replace("{user}", account.name).replace("{home}", account.home)


def take_account(
    settings: Settings, ledger: Ledger, guests: Guests, slurm: SeenSlurm, jobs: JobReader, job_id: int, told: Account
) -> bool:
    """Take over the user's account as the front tells it. Returns whether it differed from the known one.

    VMs that run are configured anew. The account is kept after that, so that a prolog that asks again after a crash has
    it done.

    Raises:
        NotFoundError: there is no such vjob.
        RefusedError: the vjob is another user's.
        RmspluginError: a VM could not be configured.
    """
    job = jobs.read(job_id)
    gid = job.gid
    vjob = ledger.vjob(job_id)
    if told.uid != vjob.uid:
        raise RefusedError(f"vjob {vjob.display_id} belongs to uid {vjob.uid}")
    account = told if gid is None else told.in_group(gid)
    if _known(vjob, gid) == account.rights():
        return False
    text = json.dumps(told.facts())
    with ledger.transaction():
        if ledger.vjob(job_id).state in _BEFORE:
            ledger.update_vjob(job_id, account=text)
            return True
    if vjob.state is not VJobState.RUNNING:
        return False
    for vm in ledger.vms(job_id):
        config = guest_config(settings, ledger, slurm, vjob, vm, account, job.batch_host)
        guests.configure(vm.address, vm.host_key_public, config, timeout_s=_CONFIGURE_S)
    with ledger.transaction():
        ledger.update_vjob(job_id, account=text)
        ledger.event(
            "account", f"the guests now have its user as its front has: {account.described()}", vjob=vjob.display_id
        )
    return True


def _known(vjob: VJobRow, gid: int | None) -> tuple[object, ...] | None:
    try:
        return account_of(vjob, gid).rights()
    except RefusedError:
        return None
