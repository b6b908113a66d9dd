"""Config: the files that make a booted image a VM of its vjob, and the archive that brings them there."""

from __future__ import annotations

import enum
import functools
import hashlib
import io
import re
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources

from rmsplugin.accounts import Account, Group
from rmsplugin.adapters.guests.keys import KeyPair, dropbear_key
from rmsplugin.adapters.guests.site_files import SiteFiles
from rmsplugin.errors import RefusedError

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
#: Names in a directory may have spaces: "domain users".
_GROUP = re.compile(r"[^\s:,\x00-\x1f\x7f][^:,\x00-\x1f\x7f]{0,255}")
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}")
_PLAIN_DIRECTORY = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+")
_PUBLIC_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]+={0,2}")

#: Files of the user's own, which nobody else may read.
_SECRETS = frozenset({"id_dropbear", "id_ed25519"})

NATIVE_FILE = "vjob-tools"
NATIVE_PROGRAMS = (
    "account",
    "commands",
    "configure",
    "login-shell",
    "relay",
    "rmsplugin-guest",
    "srun",
    "stepd",
    "unpack",
)
"""The one file of rmsplugin/guest_tools/native, and the programs that it is, by the name it is called by."""


_IMAGE_TOOLS = "/usr/lib/rmsplugin"
"""In guests of contrib/guest-image: the programs, and a link to the directory itself named after their digest."""


class Tools(enum.Enum):
    """Where a guest has the native programs of this release from."""

    SENT = "sent"  # the engine sends them
    KEPT = "kept"  # they are in their place already
    IMAGE = "image"  # its image has them, if it was built with those of this release


@dataclass(frozen=True, slots=True)
class GuestVM:
    """One VM of a vjob, with the facts that the other VMs need."""

    name: str
    address: str
    host_key: str


@dataclass(frozen=True, slots=True)
class GuestMount:
    """A file system that the guest mounts."""

    source: str
    target: str
    type: str
    options: str


@dataclass(frozen=True, slots=True)
class SlurmFacts:
    """A guest's facts about the site's Slurm, to end steps as Slurm does, in its words, and the place of scripts."""

    release: str = ""  # such as 22.05.8; empty: not known
    kill_wait_s: int = 30  # KillWait
    spool_dir: str = ""  # SlurmdSpoolDir

    def script_path(self, job_id: int, front: str) -> str:
        """The path where the front's slurmd has a job's script; empty: unknown, or no path that a guest should make.

        While no ``front`` is known yet, it is empty if the path has the front's name.
        """
        directory = self.spool_dir.replace("%n", front).replace("%h", front) if front else self.spool_dir
        return f"{directory}/job{job_id:05}/slurm_script" if _PLAIN_DIRECTORY.fullmatch(directory) else ""


@dataclass(frozen=True, slots=True)
class GuestConfig:
    """All that makes a booted image a VM of its vjob. ``vms``: all VMs of the vjob; ``index``: this one.

    ``commands``: Slurm's clients work in it, through the wrapper. ``front``: the node where Slurm runs the job.
    ``all_cpus``: of each of ``vms``; empty: all have ``cpus``.
    ``tools``: where it has this release's native programs from.
    """

    job_id: int
    index: int
    vms: tuple[GuestVM, ...]
    cpus: int
    memory_mib: int
    ntasks: int
    cpus_per_task: int
    account: Account
    key: KeyPair
    mounts: tuple[GuestMount, ...] = ()
    site: SiteFiles = field(default_factory=SiteFiles)
    commands: bool = True
    slurm: SlurmFacts = field(default_factory=SlurmFacts)
    front: str = ""
    tools: Tools = Tools.SENT
    all_cpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that would not survive the files below, or must not be there.

        Raises:
            RefusedError: names the value.
        """
        if not 0 <= self.index < len(self.vms):
            raise RefusedError(f"VM number {self.index} of {len(self.vms)}")
        account = self.account
        if not _USER.fullmatch(account.name):
            raise RefusedError(f"user name {account.name!r} cannot be given to a guest")
        if account.uid < 1 or account.gid < 0:
            # The guest's root is the engine's account; a script that runs as root would be root, too.
            raise RefusedError("root cannot run vjobs")
        for what in (account.home, account.shell):
            if not what.startswith("/") or not what.isprintable() or ":" in what or '"' in what:
                raise RefusedError(f"home or shell {what!r} of {account.name} cannot be given to a guest")
        for vm in self.vms:
            if not (
                _HOST_NAME.fullmatch(vm.name)
                and _ADDRESS.fullmatch(vm.address)
                and _PUBLIC_KEY.fullmatch(vm.host_key.strip())
            ):
                raise RefusedError(f"VM {vm.name!r} at {vm.address!r} cannot be written for a guest")
        for mount in self.mounts:
            words = (mount.source, mount.target, mount.type, mount.options)
            if any(not word or word.split() != [word] or not word.isprintable() for word in words):
                raise RefusedError(f"mount {mount.target!r} has an empty word, or a space in one")

    def files(self) -> dict[str, str | bytes]:
        """Content of the files in /run/rmsplugin/etc, by name (docs/protocols.md, section 3)."""
        account, site = self.account, self.site
        facts = {
            "job_id": self.job_id,
            "index": self.index,
            "vms": len(self.vms),
            "cpus": self.cpus,
            "all_cpus": ",".join(map(str, self.all_cpus or [self.cpus] * len(self.vms))),
            "memory_mib": self.memory_mib,
            "ntasks": self.ntasks,
            "cpus_per_task": self.cpus_per_task,
            "user": account.name,
            "uid": account.uid,
            "gid": account.gid,
            "gecos": account.gecos.replace(":", " "),
            "home": account.home,
            "shell": account.shell,
            "timezone": site.timezone,
            "locale": site.locale,
            "tmp_size": site.tmp_size,
            "shm_size": site.shm_size,
            "commands": int(self.commands),
            "slurm_release": self.slurm.release,
            "kill_wait": self.slurm.kill_wait_s,
            "script": self.slurm.script_path(self.job_id, self.front),
        }
        # One name a line: dropbear's client does not read lists of names.
        known_hosts = [f"{name} {vm.host_key.strip()}" for vm in self.vms for name in (vm.name, vm.address)]
        return {
            "vjob": _lines(f"{key}={value}" for key, value in facts.items()),
            "hosts": _lines(f"{vm.address} {vm.name}" for vm in self.vms),
            "hostfile": _lines(vm.name for vm in self.vms),
            "known_hosts": _lines(known_hosts),
            "id_ed25519": self.key.private_openssh.strip() + "\n",
            "id_dropbear": dropbear_key(self.key.private_openssh),
            "id_ed25519.pub": self.key.public.strip() + "\n",
            "mounts": _lines(f"{m.source} {m.target} {m.type} {m.options}" for m in self.mounts),
            "group": _lines(group_lines(account)),
            "people": _lines(people_lines(account)),
            "localtime": site.localtime,
            "resolv.conf": site.resolv_conf,
            "site_hosts": site.hosts,
        }

    def archive(self) -> bytes:
        """Return the tar archive to be unpacked in /run/rmsplugin now: tools in ``bin``, files in ``etc``.

        Raises:
            RefusedError: the program for guests was not compiled.
        """
        tools = resources.files("rmsplugin").joinpath("guest_tools")
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for tool in sorted(tools.iterdir(), key=lambda p: p.name):
                if tool.is_file() and tool.name != NATIVE_FILE:
                    _add(archive, f"bin/{tool.name}", tool.read_bytes(), mode=0o755)
            if self.tools is Tools.SENT:
                _add(archive, f"bin/{NATIVE_FILE}", native_tools(), mode=0o755)
            elif self.tools is Tools.IMAGE:
                _link(archive, f"bin/{NATIVE_FILE}", f"{image_tools()}/{NATIVE_FILE}")
            for name in NATIVE_PROGRAMS:
                _link(archive, f"bin/{name}", NATIVE_FILE)
            for name, content in {**self.files(), "time": f"{time.time():.9f}\n"}.items():
                secret = name in _SECRETS
                owner = (self.account.uid, self.account.gid) if secret else (0, 0)
                data = content if isinstance(content, bytes) else content.encode()
                _add(archive, f"etc/{name}", data, mode=0o600 if secret else 0o644, owner=owner)
        return buffer.getvalue()


@functools.cache
def native_tools() -> bytes:
    """The one program for guests, as it was at its first use.

    Raises:
        RefusedError: it was not compiled.
    """
    try:
        return resources.files("rmsplugin").joinpath("guest_tools", NATIVE_FILE).read_bytes()
    except FileNotFoundError:
        raise RefusedError(
            f"{NATIVE_FILE}, the program for guests, is missing: run contrib/compile-guest-tools"
        ) from None


@functools.cache
def image_tools() -> str:
    """The directory where a guest of contrib/guest-image has the programs, if they are these very ones.

    Raises:
        RefusedError: the program for guests was not compiled.
    """
    return f"{_IMAGE_TOOLS}/{hashlib.sha256(native_tools()).hexdigest()}"


def group_lines(account: Account) -> Iterator[str]:
    """Lines of /etc/group for the user's groups, the primary one first.

    A name that does not fit into such a line is replaced by the group's number.
    """
    for group in account.groups or (Group(account.name, account.gid),):
        name = group.name if _GROUP.fullmatch(group.name) else str(group.gid)
        members = [account.name] if group.gid != account.gid else []
        members += [member for member in group.members if _USER.fullmatch(member)]
        yield f"{name}:x:{group.gid}:{','.join(members)}"


def people_lines(account: Account) -> Iterator[str]:
    """Lines of /etc/passwd for other members of the user's groups: names for `ls -l`, without any login."""
    for person in account.people:
        if _USER.fullmatch(person.name) and person.uid not in (0, account.uid):
            yield f"{person.name}:*:{person.uid}:{person.gid}::/nonexistent:/usr/sbin/nologin"


def _lines(lines: Iterator[str] | list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int, owner: tuple[int, int] = (0, 0)) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    member.uid, member.gid = owner
    archive.addfile(member, io.BytesIO(content))


def _link(archive: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
    archive.addfile(member)
