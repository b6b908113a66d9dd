"""The archive of the guest as a container: what podman reads in it, and its ID."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from guest_image_lib import build, container


def archive_of(root: Path, name: str = "localhost/guest:1") -> tarfile.TarFile:
    file = io.BytesIO()
    container.write_archive(file, root, name)
    file.seek(0)
    return tarfile.open(fileobj=file)


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()


def make_root(root: Path) -> None:
    for entry in ("etc", "root", "tmp"):
        (root / entry).mkdir(parents=True)
    (root / "etc/shadow").write_text("root:*:\n")
    (root / "tmp").chmod(0o1777)
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o700)
    (root / "link").symlink_to("etc/shadow")


def test_each_part_of_the_archive_is_named_by_its_own_digest(tmp_path: Path) -> None:
    make_root(tmp_path)
    archive = archive_of(tmp_path)
    (image,) = json.loads(read(archive, "manifest.json"))
    assert image["RepoTags"] == ["localhost/guest:1"]
    configuration = read(archive, image["Config"])
    assert image["Config"] == f"{hashlib.sha256(configuration).hexdigest()}.json", "the ID of the image"
    layers = [f"sha256:{hashlib.sha256(read(archive, name)).hexdigest()}" for name in image["Layers"]]
    assert json.loads(configuration)["rootfs"] == {"type": "layers", "diff_ids": layers}


def test_the_id_of_an_image_depends_on_its_files_only(tmp_path: Path) -> None:
    ids = []
    for name in ("one", "two"):
        make_root(tmp_path / name)
        os.utime(tmp_path / name / "run", (len(ids), len(ids)))
        ids.append(json.loads(read(archive_of(tmp_path / name, f"localhost/{name}:1"), "manifest.json"))[0]["Config"])
    assert ids[0] == ids[1]
    (tmp_path / "two/run").write_text("#!/bin/sh\nexit 1\n")
    assert json.loads(read(archive_of(tmp_path / "two"), "manifest.json"))[0]["Config"] != ids[0]


def test_all_files_are_roots_and_what_is_not_for_all_stays_so(tmp_path: Path) -> None:
    make_root(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(read(archive_of(tmp_path), "layer.tar"))) as layer:
        found = {member.name: member for member in layer}
    assert {member.uid for member in found.values()} == {0}
    assert {name: oct(member.mode) for name, member in found.items()} == {
        "etc": "0o755",
        "etc/shadow": "0o640",
        "link": "0o777",
        "root": "0o700",
        "run": "0o755",
        "tmp": "0o1777",
    }
    assert (found["etc/shadow"].gid, found["run"].gid) == (42, 0)
    assert found["link"].linkname == "etc/shadow"


@pytest.mark.skipif(not Path("/usr/sbin/dropbear").exists(), reason="dropbear is not installed")
def test_a_container_has_the_files_of_a_small_vm_but_for_its_first_process(tmp_path: Path) -> None:
    build.run([str(build.COMPILE)])
    build.fill_root(tmp_path / "vm")
    container.fill_root(tmp_path / "container")
    vm, guest = ({str(p.relative_to(tmp_path / n)) for p in (tmp_path / n).rglob("*")} for n in ("vm", "container"))
    assert guest ^ vm == {"init", "usr/lib/rmsplugin/container", "usr/lib/rmsplugin/config"}
    assert (tmp_path / "container/etc/inittab").read_text() == "::respawn:/etc/rmsplugin/sshd\n"
    assert (tmp_path / "container/usr/lib/rmsplugin/config").read_bytes() == b""


def test_an_image_that_differs_has_another_name_in_settings() -> None:
    one, other = (build.Inputs("", (("bash", version),)).key for version in ("5.2", "5.3"))
    assert container.reference(one) != container.reference(other)
