"""Build: make vmlinuz, vmlinux and initrd.img from Debian packages."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from guest_image_lib import remembered
from guest_image_lib.cpio import CpioWriter
from guest_image_lib.kernel import KernelError, unpacked_kernel

KERNEL_METAPACKAGE = "linux-image-cloud-amd64"
TOOL_PACKAGES = ("busybox-static", "dropbear-bin", "bash", "util-linux")
PROGRAMS = (
    "/bin/bash",
    "/usr/sbin/dropbear",
    "/usr/bin/dbclient",
    "/usr/bin/getent",
    "/usr/bin/locale",
    "/usr/bin/flock",
)

BOOT_MODULES = ("virtio_pci", "virtio_net", "qemu_fw_cfg", "virtio_balloon", "virtio_rng")
"""Loaded at once, with what they need, in this order."""

LATER_MODULES = ("nfsv4", "nfsv3", "nfs")
"""In the image, with what they need, for modprobe and for the kernel's own requests."""

# Characters of UTF-8, without which line editors and `wc -m` see bytes; other locales take megabytes each.
LOCALE = Path("/usr/lib/locale/C.utf8")

FILES = ("vmlinuz", "vmlinux", "initrd.img")
"""What an image is: the kernel as Debian has it, the same one unpacked, and the initial file system."""

_UNUSED_AFTER_S = 30 * 86400
_HERE = Path(__file__).resolve().parent
#: Compiles the programs of ours.
COMPILE = _HERE.parent / "compile-guest-tools"
_TOOLS = _HERE.parents[1] / "rmsplugin" / "guest_tools" / "vjob-tools"
#: In the image: the programs of ours (docs/protocols.md, section 3).
_PLACE = "usr/lib/rmsplugin"
_PROGRAMS = ("identity", "login-shell", "unpack")
_ACCOUNTS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
_FILES = {
    "etc/passwd": _ACCOUNTS.replace("/bin/sh", f"/{_PLACE}/login-shell"),
    f"{_PLACE}/passwd": _ACCOUNTS,  # after `configure` has written the accounts anew, root has a shell as elsewhere
    "etc/group": "root:x:0:\ntty:x:5:\nshadow:x:42:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n",
    "etc/shells": f"/bin/sh\n/bin/bash\n/{_PLACE}/login-shell\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
    "etc/profile": "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\nexport PATH\n",
    "etc/inittab": f"::respawn:/etc/rmsplugin/sshd\n::once:/{_PLACE}/identity\n::ctrlaltdel:/sbin/poweroff -f\n",
}
PRIVATE = {"root": (0o700, 0), "etc/shadow": (0o640, 42)}
"""Mode and group, as on a node."""
_DIRECTORIES = (
    "dev", "etc/dropbear", "etc/rmsplugin", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr/bin",
    "usr/lib64", _PLACE, "usr/local/bin", "var/empty", "var/lib", "var/log", "var/tmp",
)  # fmt: skip
_LINKS = {
    "bin": "usr/bin",
    "sbin": "usr/bin",
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "usr/sbin": "bin",
    "var/run": "/run",
}


class BuildError(Exception):
    """The image can't be built; the text says why and what to do."""


@dataclass(frozen=True)
class Inputs:
    """What an image is made from."""

    kernel_package: str
    versions: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        """A name for the image that changes when anything changes from which it is made."""
        digest = hashlib.sha256(repr((self.kernel_package, self.versions)).encode())
        for path in (*sorted(_HERE.iterdir()), _TOOLS):
            if path.suffix in (".py", ".sh") or path == _TOOLS:
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]


def cache_directory() -> Path:
    """Return the directory that holds built images."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "/var/cache") / "rmsplugin" / "images"


def find_inputs() -> Inputs:
    """Find the newest kernel package that apt knows, and the installed versions of the tools."""
    stamped = remembered.stamp((KERNEL_METAPACKAGE, TOOL_PACKAGES))
    versions = remembered.answer(cache_directory() / "inputs.json", stamped, _ask_apt)
    return Inputs(versions[0][0], tuple(versions))


def _ask_apt() -> remembered.Versions:
    """The kernel's package and then the tools, with their versions."""
    depends = run(["apt-cache", "depends", "--important", KERNEL_METAPACKAGE]).stdout
    found = re.search(r"Depends: (linux-image-\S+-cloud-amd64)\s*$", depends, re.MULTILINE)
    if found is None:
        raise BuildError(f"apt knows no kernel behind {KERNEL_METAPACKAGE}; run: apt-get update")
    kernel = found.group(1)
    candidate = re.search(r"Candidate: (\S+)", run(["apt-cache", "policy", kernel]).stdout)
    if candidate is None or candidate.group(1) == "(none)":
        raise BuildError(f"apt has no {kernel}; run: apt-get update")
    return [(kernel, candidate.group(1)), *tool_versions()]


def tool_versions() -> remembered.Versions:
    """The tools, with their installed versions."""
    versions = []
    for package in TOOL_PACKAGES:
        result = run(["dpkg-query", "-W", "-f", "${Version}", package], check=False)
        if result.returncode != 0 or not result.stdout:
            raise BuildError(f"package {package} is not installed; run: apt-get install {package}")
        versions.append((package, result.stdout))
    return versions


def build(output: Path | None, progress: Callable[[str], None]) -> Path:
    """Build the image, or find it in the cache; return the directory with ``FILES``.

    Args:
        output: where the files are wanted besides the cache.
        progress: told what is being done.
    """
    run([str(COMPILE)])
    inputs = find_inputs()
    image = cache_directory() / inputs.key
    if not (image / "initrd.img").exists():
        progress(f"building the guest image from {', '.join(f'{name} {version}' for name, version in inputs.versions)}")
        image.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=image.parent, prefix=".building-") as work:
            _build_in(Path(work), inputs)
            made = Path(work) / "image"
            made.chmod(0o755)
            try:
                made.rename(image)
            except OSError:  # Another build was quicker; both are the same.
                if not (image / "initrd.img").exists():
                    raise
    os.utime(image)
    forget_unused(image.parent)
    if output is None:
        return image
    output.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(image / name, output / name)
    return output


def forget_unused(images: Path) -> None:
    """Remove images that were not asked for in a long time."""
    for path in images.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another build beside this one has ended
            if time.time() - path.stat().st_mtime > _UNUSED_AFTER_S:
                shutil.rmtree(path, ignore_errors=True)


def run(
    command: list[str], *, check: bool = True, cwd: Path | None = None, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command, with ``text`` as its standard input; raise BuildError where it fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=text)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not installed") from error
    if check and result.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{result.stderr.strip()[-1500:]}")
    return result


def _kernel_packages(image: str) -> list[str]:
    """The packages with a kernel and its modules: since Debian 14 that of the image only names them."""
    depends = run(["apt-cache", "depends", "--important", image]).stdout
    release = re.escape(image.removeprefix("linux-image-"))
    return [image, *re.findall(rf"Depends: (linux-\w+-{release})\s*$", depends, re.MULTILINE)]


def _build_in(work: Path, inputs: Inputs) -> None:
    packages = _kernel_packages(inputs.kernel_package)
    run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages], cwd=work)
    unpacked = work / "kernel"
    for package in sorted(work.glob("linux-*.deb")):
        run(["dpkg-deb", "-x", str(package), str(unpacked)])
    image = work / "image"
    image.mkdir()
    kernels = [*unpacked.glob("boot/vmlinuz-*"), *unpacked.glob("usr/lib/modules/*/vmlinuz")]
    if len(kernels) != 1:
        raise BuildError(f"the packages are not made as expected: {len(kernels)} kernels in {' '.join(packages)}")
    shutil.copyfile(kernels[0], image / "vmlinuz")
    try:
        (image / "vmlinux").write_bytes(unpacked_kernel(kernels[0].read_bytes()))
    except KernelError as error:
        raise BuildError(f"the kernel of {packages[-1]} cannot be unpacked: {error}") from error
    root = work / "root"
    fill_root(root)
    install_modules(unpacked, root, work)
    with (image / "initrd.img").open("wb") as file:
        archive = CpioWriter(file)
        archive.add_tree(root, PRIVATE)
        archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
        archive.close()


def fill_root(root: Path) -> None:
    """Put everything but the kernel's modules into the root file system."""
    for name in _DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for name, target in _LINKS.items():
        (root / name).symlink_to(target)
    for name, content in _FILES.items():
        (root / name).write_text(content)
    _copy(_HERE / "sshd.sh", root / "etc/rmsplugin/sshd")
    _install_tools(root)
    shutil.copytree(LOCALE, root / LOCALE.relative_to("/"))
    _install_busybox(root)
    libraries: set[str] = set()
    for program in PROGRAMS:
        _copy(Path(program), root / "usr/bin" / Path(program).name)
        libraries |= set(shared_libraries(run(["ldd", program]).stdout))
    for library in sorted(libraries):
        directory = "usr/lib64" if library.startswith("/lib64/") else "usr/lib"
        _copy(Path(library), root / directory / Path(library).name)


def _install_tools(root: Path) -> None:
    """Install the programs of ours; by a digest of them, an engine finds out whether they are of its own release."""
    place = root / _PLACE
    _copy(_TOOLS, place / _TOOLS.name)
    for name in _PROGRAMS:
        (place / name).symlink_to(_TOOLS.name)
    (place / hashlib.sha256(_TOOLS.read_bytes()).hexdigest()).symlink_to(".")
    (root / "init").symlink_to(f"/{_PLACE}/{_TOOLS.name}")


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)  # It may be a link to busybox.
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _install_busybox(root: Path) -> None:
    source = next((path for path in (Path("/bin/busybox"), Path("/usr/bin/busybox")) if path.exists()), None)
    if source is None:
        raise BuildError("no busybox; run: apt-get install busybox-static")
    _copy(source, root / "usr/bin/busybox")
    for applet in run([str(source), "--list"]).stdout.split():
        link = root / "usr/bin" / applet
        if applet != "busybox" and not link.is_symlink():
            link.symlink_to("busybox")


def shared_libraries(ldd_output: str) -> list[str]:
    """Return the paths of the libraries that ldd names, the dynamic linker included."""
    return re.findall(r"(/\S+) \(0x", ldd_output)


def install_modules(unpacked: Path, root: Path, work: Path) -> None:
    """Copy the modules that guests need, with all that they depend on; what the kernel has built in needs no module.

    Raises:
        BuildError: the kernel has one neither as a module nor built in.
    """
    # Since Debian 13 the package has them below usr/; depmod looks below lib/ or usr/lib/, as its release was built.
    for link, place in (("lib", "usr/lib"), ("usr/lib", "../lib")):
        if not (unpacked / link).exists():
            (unpacked / link).parent.mkdir(exist_ok=True)
            (unpacked / link).symlink_to(place)
    release = only(unpacked / "lib/modules", "*").name
    run([_depmod(), "-b", str(unpacked), release])
    modules = unpacked / "lib/modules" / release
    dependencies = parse_dependencies((modules / "modules.dep").read_text())
    builtin = {_module_name(line) for line in (modules / "modules.builtin").read_text().split()}
    target = root / "usr/lib/modules" / release
    target.mkdir(parents=True)
    boot = closure(BOOT_MODULES, dependencies, builtin)
    for path in sorted({*boot, *closure(LATER_MODULES, dependencies, builtin)}):
        (target / _plain_name(path)).write_bytes(_plain(modules / path))
    _lighten(sorted(target.glob("*.ko")))
    (target / "boot.list").write_text("".join(f"{_plain_name(path)}\n" for path in boot))
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        (target / name).write_text("")
    # depmod wants BASE/lib/modules; in the root, lib is a link to usr/lib.
    run([_depmod(), "-b", str(root), release])
    for made in target.glob("modules.*"):
        if made.name not in ("modules.dep", "modules.alias"):
            made.unlink()


def only(directory: Path, pattern: str) -> Path:
    """Return the one file of a package that matches.

    Raises:
        BuildError: none does, or several do.
    """
    found = list(directory.glob(pattern))
    if len(found) != 1:
        raise BuildError(f"the package is not made as expected: {len(found)} files match {directory.name}/{pattern}")
    return found[0]


def _lighten(modules: Iterable[Path]) -> None:
    """Take out of modules what costs an emulated guest time as it loads them, and serves nobody there.

    BTF describes types to programs of BPF. The signature, which follows the ELF file and goes with it, is worth no more
    than the image around it, which has none. The symbols stay: an oops names functions by them.
    """
    run(["strip", "--strip-debug", *(f"--remove-section={name}" for name in (".BTF", ".BTF.base")), *map(str, modules)])


_OPEN = {".xz": lzma.open, ".gz": gzip.open}


def _plain_name(path: str) -> str:
    return Path(path).name.split(".ko")[0] + ".ko"


def _plain(path: Path) -> bytes:
    """The module itself: busybox cannot load a compressed one."""
    if path.suffix == ".ko":
        return path.read_bytes()
    if path.suffix not in _OPEN:
        raise BuildError(f"module {path.name} is compressed in a way that is not known here")
    with _OPEN[path.suffix](path) as file:
        return bytes(file.read())


def _depmod() -> str:
    return shutil.which("depmod") or "/sbin/depmod"


def parse_dependencies(modules_dep: str) -> dict[str, tuple[str, list[str]]]:
    """Parse modules.dep: module name (with underscores) -> its file and the files that it needs."""
    parsed = {}
    for line in modules_dep.splitlines():
        path, _, needed = line.partition(":")
        parsed[_module_name(path)] = (path, needed.split())
    return parsed


def _module_name(path: str) -> str:
    return Path(path).name.split(".ko")[0].replace("-", "_")


def closure(
    names: Iterable[str], dependencies: dict[str, tuple[str, list[str]]], builtin: Collection[str] = ()
) -> list[str]:
    """Return the files of the named modules in an order in which they can be loaded one after the other.

    Args:
        names: of modules; those that are in ``builtin`` have no file.
        dependencies: as ``parse_dependencies`` returns them.
        builtin: names of what is part of the kernel itself.

    Raises:
        BuildError: a name is in neither.
    """
    ordered: list[str] = []
    for name in names:
        if name in builtin:
            continue
        if name not in dependencies:
            raise BuildError(f"the kernel package has no {name}, neither as a module nor built in")
        path, needed = dependencies[name]
        # modules.dep names what must be loaded first last.
        ordered += [file for file in [*reversed(needed), path] if file not in ordered]
    return ordered
