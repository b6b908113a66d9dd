"""What a node tells of directories that containers have of it, on file systems that this kernel has mounted."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmsplugin.adapters.platform.podman.on_node import mounted

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount file systems")

_LIBC = ctypes.CDLL(None, use_errno=True)


class Mounts:
    """File systems of the kernel, unmounted in the end."""

    def __init__(self) -> None:
        self._places: list[Path] = []
        self._servers: list[int] = []

    def mount(self, kind: str, place: Path, options: str = "") -> Path:
        """Mount one of this kind; its directory is made."""
        place.mkdir(exist_ok=True)
        said = _LIBC.mount(b"none", os.fsencode(place), kind.encode(), 0, options.encode())
        assert said == 0, os.strerror(ctypes.get_errno())
        self._places.append(place)
        return place

    def without_answer(self, place: Path) -> Path:
        """Mount one whose server never answers."""
        self._servers.append(server := os.open("/dev/fuse", os.O_RDWR))
        return self.mount("fuse", place, f"fd={server},rootmode=40000,user_id=0,group_id=0")

    def close(self) -> None:
        """Unmount all; what waits for a server is told that it has ended."""
        for server in self._servers:
            os.close(server)
        for place in reversed(self._places):
            subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    found = Mounts()
    try:
        yield found
    finally:
        found.close()


def told(*places: Path) -> list[tuple[str, str]]:
    """What is wrong with these directories, and their kinds of file system."""
    found = mounted.seen(map(str, places))
    return [(found[str(place)]["wrong"], found[str(place)]["type"]) for place in places]


@pytest.mark.parametrize("name", ["home", "site home", "h\\040n", "h\n", "h\udce9"])
def test_a_directory_is_told_with_the_kind_of_its_file_system(mounts: Mounts, tmp_path: Path, name: str) -> None:
    place = mounts.mount("ramfs", tmp_path / name)
    (place / "below").mkdir()
    beside = tmp_path / f"{name}s"
    beside.mkdir()
    assert told(place, place / "below") == [("", "ramfs")] * 2
    assert told(beside) == told(tmp_path) != [("", "ramfs")]


def test_of_file_systems_at_one_place_the_last_one_counts(mounts: Mounts, tmp_path: Path) -> None:
    place = mounts.mount("ramfs", tmp_path / "home")
    mounts.mount("tmpfs", place)
    assert told(place) == [("", "tmpfs")]


def test_a_link_is_told_as_what_it_leads_to(mounts: Mounts, tmp_path: Path) -> None:
    place = mounts.mount("ramfs", tmp_path / "home")
    link = tmp_path / "link"
    link.symlink_to(place)
    assert told(link) == [("", "ramfs")]


def test_a_server_that_does_not_answer_is_given_up_and_others_are_told(
    mounts: Mounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounted, "_ANSWER_S", 0.5)
    dead, live = mounts.without_answer(tmp_path / "dead"), mounts.mount("tmpfs", tmp_path / "live")
    assert told(dead, live) == [("its file system has not answered for 0.5 s", ""), ("", "tmpfs")]


def test_a_server_that_has_ended_is_told(mounts: Mounts, tmp_path: Path) -> None:
    place = mounts.without_answer(tmp_path / "dead")
    os.close(mounts._servers.pop())
    assert told(place) == [("Transport endpoint is not connected", "")]
