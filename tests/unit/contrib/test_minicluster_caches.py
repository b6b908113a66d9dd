"""What is kept between miniclusters: what apt said of packages, and what libvirtd learnt of QEMU."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from guest_image_lib import remembered
from minicluster_lib.libvirt import copy_capabilities

VERSIONS = [("linux-image", "6.1"), ("bash", "5.2")]


def never() -> remembered.Versions:
    raise AssertionError("asked although the answer is known")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What apt reads."""
    root = tmp_path / "root"
    for directory in ("etc/apt/sources.list.d", "var/lib/apt/lists", "var/lib/dpkg"):
        (root / directory).mkdir(parents=True)
    for file in ("etc/apt/sources.list.d/debian.sources", "var/lib/apt/lists/main_Packages", "var/lib/dpkg/status"):
        (root / file).write_text("before")
    return root


def replace(path: Path) -> None:
    """As apt and dpkg do: a new file of the same size and time takes the place of the old one."""
    new = path.with_suffix(".new")
    new.write_text("after.")
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    new.rename(path)


def remove(path: Path) -> None:
    path.unlink()


def test_apt_is_asked_once_while_nothing_changes(tmp_path: Path, root: Path) -> None:
    file = tmp_path / "cache/inputs.json"
    assert remembered.answer(file, remembered.stamp("kernel", root), lambda: VERSIONS) == VERSIONS
    assert remembered.answer(file, remembered.stamp("kernel", root), never) == VERSIONS
    assert [path.name for path in file.parent.iterdir()] == ["inputs.json"]


@pytest.mark.parametrize("change", [replace, remove])
@pytest.mark.parametrize(
    "name", ["etc/apt/sources.list.d/debian.sources", "var/lib/apt/lists/main_Packages", "var/lib/dpkg/status"]
)
def test_apt_is_asked_again_when_what_it_reads_has_changed(
    tmp_path: Path, root: Path, name: str, change: Callable[[Path], None]
) -> None:
    file = tmp_path / "inputs.json"
    remembered.answer(file, remembered.stamp("kernel", root), lambda: VERSIONS)
    change(root / name)
    newer = [("linux-image", "6.2")]
    assert remembered.answer(file, remembered.stamp("kernel", root), lambda: newer) == newer


def test_another_question_has_another_answer(root: Path) -> None:
    assert remembered.stamp("kernel", root) != remembered.stamp("shell", root)


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"stamp": "now"}', '{"stamp": "now", "versions": [1]}'])
def test_a_broken_answer_is_none(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "inputs.json"
    file.write_text(broken)
    assert remembered.answer(file, "now", lambda: VERSIONS) == VERSIONS
    assert remembered.answer(file, "now", never) == VERSIONS


def test_what_a_libvirtd_learnt_is_given_to_others_and_newer_knowledge_replaces_older(tmp_path: Path) -> None:
    node, known, other = (tmp_path / name for name in ("node", "known", "other"))
    copy_capabilities(node, known)
    assert not known.exists()
    node.mkdir()
    (node / "one.xml").write_text("old")
    (node / "not-whole").write_text("")
    for content in ("old", "new"):
        (node / "one.xml").write_text(content)
        copy_capabilities(node, known)
        copy_capabilities(known, other)
        assert {path.name: path.read_text() for path in other.iterdir()} == {"one.xml": content}
