"""The parts of the guest image builder that need no kernel package; booting is tested in e2e/test_minicluster.py."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
from pathlib import Path

import pytest
from guest_image_lib import build, debian
from guest_image_lib.cpio import CpioWriter

from rmsplugin.adapters.guests.config import image_tools, native_tools

REPOSITORY = Path(__file__).resolve().parents[3]

MODULES_DEP = """\
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/char/hw_random/virtio-rng.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/net/x.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
"""


def archive_of(root: Path) -> bytes:
    file = io.BytesIO()
    writer = CpioWriter(file)
    writer.add_tree(root)
    writer.close()
    return file.getvalue()


def test_modules_come_after_what_they_need_and_once() -> None:
    dependencies = build.parse_dependencies(MODULES_DEP)
    names = [Path(path).name for path in build.closure(["virtio_rng", "x"], dependencies)]
    assert names == ["virtio.ko", "virtio_ring.ko", "virtio-rng.ko", "x.ko"]


def test_a_module_that_the_kernel_lacks_is_named() -> None:
    with pytest.raises(build.BuildError, match="no_such"):
        build.closure(["no_such"], build.parse_dependencies(MODULES_DEP))


def test_what_is_built_into_the_kernel_needs_no_module() -> None:
    dependencies = build.parse_dependencies(MODULES_DEP)
    names = [Path(path).name for path in build.closure(["virtio_pci", "virtio_rng"], dependencies, {"virtio_pci"})]
    assert names == ["virtio.ko", "virtio_ring.ko", "virtio-rng.ko"]


@pytest.mark.parametrize("modules", ["lib/modules", "usr/lib/modules"])
@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
def test_modules_are_found_where_the_kernel_package_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: str, suffix: str
) -> None:
    kernel = tmp_path / "kernel" / modules / "6.1"
    kernel.mkdir(parents=True)
    compress = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}[suffix]
    for name in ("virtio", "virtio-net"):
        (kernel / f"{name}.ko{suffix}").write_bytes(compress(name.encode()))
    (kernel / "modules.dep").write_text(f"virtio-net.ko{suffix}: virtio.ko{suffix}\nvirtio.ko{suffix}:\n")
    (kernel / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    monkeypatch.setattr(build, "BOOT_MODULES", ("virtio_pci", "virtio_net"))
    monkeypatch.setattr(build, "LATER_MODULES", ())
    monkeypatch.setattr(build, "run", lambda command: None)  # depmod, which knows real modules only
    build.install_modules(tmp_path / "kernel", tmp_path / "root", tmp_path)
    made = tmp_path / "root/usr/lib/modules/6.1"
    assert (made / "boot.list").read_text() == "virtio.ko\nvirtio-net.ko\n"
    assert (made / "virtio-net.ko").read_bytes() == b"virtio-net"


def test_modules_are_without_what_only_costs_time_as_they_are_loaded(tmp_path: Path) -> None:
    module = tmp_path / "one.ko"
    sections = "".join(f'asm(".section {name},\\"a\\"; .long 1; .text");' for name in (".BTF", ".BTF.base", ".BTF_ids"))
    source = f"{sections} static int inner(void) {{ return 1; }} int (*pointer)(void) = inner;"
    subprocess.run(["gcc", "-g", "-c", "-x", "c", "-", "-o", module], input=source, text=True, check=True)
    with module.open("ab") as file:
        file.write(b"signed~Module signature appended~\n")
    build._lighten([module])
    listed = subprocess.run(["readelf", "-SsW", module], capture_output=True, text=True, check=True).stdout.split()
    assert {".text", ".data", ".BTF_ids", "inner"} <= set(listed)
    assert not {".BTF", ".BTF.base", ".debug_info"} & set(listed)
    assert b"signature" not in module.read_bytes()


def test_a_package_without_a_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match="0 files match"):
        build.only(tmp_path, "vmlinuz-*")


def test_shared_libraries_include_the_linker_and_not_the_vdso() -> None:
    output = """\
\tlinux-vdso.so.1 (0x00007f00)
\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f01)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)
"""
    assert build.shared_libraries(output) == ["/lib/x86_64-linux-gnu/libz.so.1", "/lib64/ld-linux-x86-64.so.2"]


def test_the_archive_depends_on_content_only(tmp_path: Path) -> None:
    archives = []
    for name, umask in (("one", 0o022), ("two", 0o077)):
        root = tmp_path / name
        old = os.umask(umask)
        try:
            for entry in ("b", "a") if name == "one" else ("a", "b"):
                (root / entry).mkdir(parents=True)
                (root / entry / "file").write_text(entry)
            (root / "run").write_text("#!/bin/sh\n")
            (root / "run").chmod(0o700)
            (root / "link").symlink_to("a/file")
        finally:
            os.umask(old)
        os.utime(root / "a/file", (len(archives), len(archives)))
        archives.append(archive_of(root))
    assert archives[0] == archives[1]


def test_the_archive_is_one_that_cpio_reads(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "directory").mkdir(parents=True)
    (root / "directory/odd").write_bytes(b"12345")
    (root / "link").symlink_to("directory/odd")
    listing = subprocess.run(["cpio", "-itv", "--quiet"], input=archive_of(root), capture_output=True, check=True)
    lines = listing.stdout.decode().splitlines()
    assert [line.split()[-1] for line in lines if "->" not in line] == [".", "directory", "directory/odd"]
    assert any(line.endswith("link -> directory/odd") for line in lines)
    assert all(" root " in line and "1970" in line for line in lines)


def test_nobody_but_root_makes_files_in_the_guests_root_or_reads_what_is_roots(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "root").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc/shadow").write_text("root:*:\n")
    file = io.BytesIO()
    writer = CpioWriter(file)
    writer.add_tree(root, build.PRIVATE)
    writer.close()
    listing = subprocess.run(["cpio", "-itvn", "--quiet"], input=file.getvalue(), capture_output=True, check=True)
    found = {line.split()[-1]: line.split()[:4] for line in listing.stdout.decode().splitlines()}
    assert found["."][0] == "drwxr-xr-x"
    assert found["root"][0] == "drwx------"
    assert (found["etc/shadow"][0], found["etc/shadow"][3]) == ("-rw-r-----", "42")
    assert "shadow:x:42:" in build._FILES["etc/group"]


def test_guests_can_mount_a_file_system_that_carries_its_locks() -> None:
    assert "nfsv4" in build.LATER_MODULES


def test_a_guest_has_no_user_namespaces(tmp_path: Path) -> None:
    init = (REPOSITORY / "rmsplugin/guest_tools/native/image/init.c").read_text()
    assert 'write_file("/proc/sys/user/max_user_namespaces", "0\\n"' in init
    for name in ("cloud/cloud.cfg.d", "ssh/sshd_config.d", "default", "systemd/system"):
        (tmp_path / "etc" / name).mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(debian, "run", lambda *_: None)
        debian.trim(tmp_path)
    assert "user.max_user_namespaces = 0" in (tmp_path / "etc/sysctl.d/rmsplugin.conf").read_text().splitlines()


def test_the_initial_file_system_of_a_debian_has_the_modules_of_its_disk_and_no_others(tmp_path: Path) -> None:
    debian.prepare(tmp_path)
    conf, hook = (tmp_path / "etc/initramfs-tools" / name / "rmsplugin" for name in ("conf.d", "hooks"))
    assert conf.read_text() == "MODULES=list\n"
    functions = tmp_path / "hook-functions"
    functions.write_text('manual_add_modules() { echo "$@"; }\n')
    hook.write_text(hook.read_text().replace("/usr/share/initramfs-tools/hook-functions", str(functions)))
    said = [
        subprocess.run([hook, *word], capture_output=True, text=True, check=True).stdout for word in ([], ["prereqs"])
    ]
    assert "virtio_blk" in said[0] and "ext4" in said[0]
    assert said[1] == ""


def test_nothing_in_the_image_lets_anybody_in() -> None:
    for line in build._FILES["etc/shadow"].splitlines():
        assert line.split(":")[1] == "*"
    assert not any("authorized_keys" in name or "host_key" in name for name in build._FILES)


def test_the_guests_script_is_one_that_busybox_reads() -> None:
    path = REPOSITORY / "contrib/guest_image_lib/sshd.sh"
    subprocess.run(["busybox", "sh", "-n", str(path)], check=True)


def test_the_image_has_the_programs_of_this_release_and_says_so_by_their_digest(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/rmsplugin").mkdir(parents=True)
    build._install_tools(tmp_path)
    place = tmp_path / image_tools().lstrip("/")
    assert (place / "vjob-tools").read_bytes() == native_tools()
    for name in ("unpack", "identity", "login-shell"):
        assert os.readlink(place / name) == "vjob-tools"
    assert (tmp_path / "usr/lib/rmsplugin/vjob-tools").stat().st_mode & 0o777 == 0o755
    assert os.readlink(tmp_path / "init") == "/usr/lib/rmsplugin/vjob-tools"


def test_another_image_is_built_for_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, keys = build.Inputs("kernel", ()), set()
    monkeypatch.setattr(build, "_TOOLS", tmp_path / "vjob-tools")
    for content in (b"one", b"other"):
        (tmp_path / "vjob-tools").write_bytes(content)
        keys.add(inputs.key)
    assert len(keys) == 2
