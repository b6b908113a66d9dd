"""Root: the release's file tree, with this machine's settings for the network and a copy of this checkout in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from try_release_lib import apt

_HERE = Path(__file__).resolve().parent
REPOSITORY = _HERE.parent.parent
#: Where the checkout and what lies beside it are in the root.
CHECKOUT = Path("/srv/rmsplugin/main")
SHARED = Path("/srv/rmsplugin/shared")

_MARKER = ".rmsplugin-try-release"
_SCRIPTS = Path("/usr/share/debootstrap/scripts")
#: What a checkout has that is made, and made anew by each release.
_MADE = re.compile(
    r"\.git|\.venv(-lowest)?|\.(mypy|ruff|pytest)_cache|\.hypothesis|__pycache__|.*\.egg-info|build|dist"
)
_COPIED = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/auth.conf")
_COPIED_DIRECTORIES = ("/etc/apt/auth.conf.d", "/etc/apt/trusted.gpg.d", "/usr/local/share/ca-certificates")
_CRIU_LIBRARY = "/usr/local/lib/rmsplugin-criu.so"
_CAP_SYS_RESOURCE = 24
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_VARIABLES = re.compile(
    r"(https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY|PIP_\w+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    r"|TERM|COLORTERM|RMSPLUGIN_\w+"
)


class TryError(Exception):
    """Something the user can act on; its text is shown without a traceback."""


class RefusedError(TryError):
    """This machine, or what was asked, is not fit (exit status 2)."""


def environment() -> dict[str, str]:
    """The environment of what runs in the root: how the network is reached, and nothing else of this machine's."""
    passed = {name: value for name, value in os.environ.items() if _VARIABLES.fullmatch(name)}
    return {
        **passed,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
    }


def has_sys_resource(status: str | None = None) -> bool:
    """Whether root has CAP_SYS_RESOURCE here, as /proc/self/status says: in a container it may not."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status or Path("/proc/self/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _CAP_SYS_RESOURCE & 1)


def pip_configuration() -> list[Path]:
    """This machine's files of pip settings for the user."""
    home = Path.home()
    named = [os.environ["PIP_CONFIG_FILE"]] if os.environ.get("PIP_CONFIG_FILE", os.devnull) != os.devnull else []
    return [
        path for path in (home / ".pip/pip.conf", home / ".config/pip/pip.conf", *map(Path, named)) if path.is_file()
    ]


def named_directories(texts: list[str]) -> list[str]:
    """The directories of this machine that pip's settings name (local indices, wheels): they are shown in the root."""
    words = {word.removeprefix("file://") for text in texts for word in re.split(r"[\s=]+", text)}
    paths = [Path(word) for word in words if word.startswith("/") and not word.startswith("/etc/")]
    # What lies in an index of the usual form refers to the files beside it.
    whole = {path.parent if path.name == "simple" else path for path in paths if path.is_dir()}
    return sorted(str(path) for path in whole if path != Path("/"))


@dataclass(frozen=True)
class Place:
    """The directory of a release's root."""

    directory: Path
    release: str
    containers: bool = False  # with what containers need

    @property
    def root(self) -> Path:
        """The root itself."""
        return self.directory / "root"

    @property
    def group(self) -> str:
        """The name of its control groups."""
        return f"rmsplugin-try-{crc32(os.fsencode(self.directory.resolve())):08x}"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep two runs in one root apart. The lock goes with its holder, however that ends.

        Raises:
            RefusedError: another run is going on there.
        """
        path = self.directory.with_name(f".{self.directory.name}.lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_held = os.path.samestat(os.fstat(file.fileno()), path.stat())  # the one before removes it in the end
            except (BlockingIOError, FileNotFoundError):
                is_held = False
            if not is_held:
                raise RefusedError(f"something else runs in {self.directory}; take another --dir, or wait")
            yield
            path.unlink(missing_ok=True)

    def _check_ours(self) -> None:
        if self.directory.is_dir() and any(self.directory.iterdir()):
            marker = self.directory / _MARKER
            if not marker.is_file():
                raise RefusedError(f"{self.directory} was not made by try-release (it lacks {_MARKER}): left alone")
            if marker.read_text().strip() != self.release:
                raise RefusedError(f"{self.directory} has Debian {marker.read_text().strip()}, not {self.release}")

    def remove(self) -> bool:
        """Remove it; False where there was none.

        Raises:
            RefusedError: it is not ours, or something is mounted there.
        """
        if not self.directory.exists():
            return False
        self._check_ours()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        below = [path for path in mounts if Path(path).is_relative_to(self.directory)]
        if below:
            raise RefusedError(f"something is mounted there; unmount it first: {', '.join(below)}")
        for entry in self.directory.iterdir():
            if entry.name != _MARKER:
                shutil.rmtree(entry)
        shutil.rmtree(self.directory)
        return True

    def make(self, mirror: str | None) -> None:
        """Make the root, unless it is there.

        Raises:
            RefusedError: the directory is something else, or there is no debootstrap.
            TryError: debootstrap fails.
        """
        self._check_ours()
        if self.root.is_dir():
            return
        if not shutil.which("debootstrap", path=environment()["PATH"]):
            raise RefusedError("debootstrap is not installed; apt-get install debootstrap")
        archive, _ = apt.archives()
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / _MARKER).write_text(f"{self.release}\n")
        new = self.directory / "root.new"
        if new.exists():
            shutil.rmtree(new)
        print(f"try-release: making a root of Debian {self.release} in {self.root}", file=sys.stderr, flush=True)
        # In namespaces of its own: debootstrap mounts, and a killed one would leave its mounts.
        result = subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--"),
                *("debootstrap", "--variant=minbase", "--include=ca-certificates"),
                *(self.release, str(new), mirror or archive, *_script(self.release)),
            ],
            capture_output=True,
            text=True,
            env={**environment(), "DEBIAN_FRONTEND": "noninteractive"},
        )
        if result.returncode != 0:
            log = new / "debootstrap/debootstrap.log"
            more = log.read_text(errors="replace")[-1500:] if log.is_file() else ""
            raise TryError(f"debootstrap {self.release} failed:\n{more}{result.stdout[-500:]}{result.stderr[-500:]}")
        new.rename(self.root)

    def take_settings(self, mirror: str | None) -> None:
        """Bring how this machine reaches Debian's and Python's packages into the root."""
        archive, security = apt.archives()
        newer = apt.NEWER.get(self.release, "") if self.containers else ""
        self._write("etc/apt/sources.list", apt.sources(self.release, mirror or archive, security, newer))
        if newer:
            self._write("etc/apt/preferences.d/80newer", apt.preferences(newer))
        if self.containers:
            self._help_criu()
        self._write("etc/apt/apt.conf.d/80outer", apt.reaching())
        for name in _COPIED:
            if Path(name).is_file():
                self._copy(Path(name), name)
        for name in _COPIED_DIRECTORIES:
            if Path(name).is_dir():
                shutil.copytree(name, self.root / name.lstrip("/"), dirs_exist_ok=True)
        for path in pip_configuration():
            inside = Path("/root") / path.relative_to(Path.home()) if path.is_relative_to(Path.home()) else path
            self._copy(path, str(inside))
        if Path(_BUNDLE).is_file():
            self._copy(Path(_BUNDLE), _BUNDLE)
        self._write("etc/hostname", "try-release\n")
        for name in ("tmp", "var/tmp"):
            for entry in (self.root / name).iterdir():
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def _help_criu(self) -> None:
        """Have CRIU read limits from /proc where this machine's root may not ask the kernel for them.

        Raises:
            TryError: that cannot be compiled.
        """
        if has_sys_resource():
            return
        library = self.root / _CRIU_LIBRARY.lstrip("/")
        library.parent.mkdir(parents=True, exist_ok=True)
        words = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(_HERE / "criu/prlimit.c"), "-ldl"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            raise TryError(f"{' '.join(words)} failed:\n{done.stderr[-500:]}")
        self._write("usr/local/sbin/criu", f'#!/bin/sh\nLD_PRELOAD={_CRIU_LIBRARY} exec /usr/sbin/criu "$@"\n')
        (self.root / "usr/local/sbin/criu").chmod(0o755)

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # never through a link
        path.write_text(text)

    def _copy(self, source: Path, name: str) -> None:
        target = self.root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copy(source, target)  # with its mode: auth.conf has passwords

    def take_checkout(self) -> None:
        """Copy this checkout into the root; what is made of it there (.venv, caches) stays."""
        target = self.root / CHECKOUT.relative_to("/")
        target.mkdir(parents=True, exist_ok=True)
        (self.root / SHARED.relative_to("/")).mkdir(exist_ok=True)
        _mirror(REPOSITORY, target)


def _script(release: str) -> list[str]:
    """Name debootstrap's script for a release that is younger than this machine's debootstrap."""
    return [] if (_SCRIPTS / release).exists() else [str(_SCRIPTS / "sid")]


def _mirror(source: Path, target: Path) -> None:
    """Make ``target`` a copy of ``source``, but for what is made."""
    wanted = {entry.name: entry for entry in source.iterdir() if not _MADE.fullmatch(entry.name)}
    for entry in target.iterdir():
        kept = entry.name in wanted and wanted[entry.name].is_dir() == entry.is_dir() and not entry.is_symlink()
        if not kept and not _MADE.fullmatch(entry.name):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, entry in wanted.items():
        if entry.is_symlink():
            (target / name).symlink_to(os.readlink(entry))
        elif entry.is_dir():
            (target / name).mkdir(exist_ok=True)
            _mirror(entry, target / name)
        else:
            shutil.copy2(entry, target / name)
