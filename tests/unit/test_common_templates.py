"""Templates that the miniclusters of a run have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e import campaign, common_templates

TESTS = str(Path(__file__).resolve().parents[1])
STATE, OTHER = "key-image-qemu.state", "other-image-qemu.state"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the directories of runs are; this process is a run."""
    monkeypatch.setattr(common_templates, "_PLACE", tmp_path / "place")
    monkeypatch.setenv("RMSPLUGIN_TESTS_RUN", str(os.getpid()))
    return tmp_path / "place"


def templates_of(node: Path) -> Path:
    directory = node / "var/lib/rmsplugin/templates"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def test_what_a_node_has_made_is_there_for_the_others_and_for_later_clusters(place: Path, tmp_path: Path) -> None:
    nodes = [tmp_path / name for name in ("n1", "n2")]
    (templates_of(nodes[0]) / STATE).write_bytes(b"first")
    (templates_of(nodes[1]) / OTHER).write_bytes(b"second")
    common_templates.share(nodes)
    later = tmp_path / "later"
    common_templates.share([later])
    for node in (*nodes, later):
        assert {path.name: path.read_bytes() for path in templates_of(node).iterdir()} == {
            STATE: b"first",
            OTHER: b"second",
        }


def test_what_a_node_has_stays_as_it_is(place: Path, tmp_path: Path) -> None:
    nodes = [tmp_path / name for name in ("n1", "n2")]
    for node in nodes:
        (templates_of(node) / STATE).write_text(node.name)
    common_templates.share(nodes)
    assert [(templates_of(node) / STATE).read_text() for node in nodes] == ["n1", "n2"]


def test_a_template_goes_with_its_disk_and_what_is_no_template_stays_where_it_is(place: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "n1", tmp_path / "n2"
    disk = "key-image-qemu.disk"
    for name in (STATE, disk, "other-image-qemu.disk", "other-image-qemu.partial", "other-image-qemu.claim"):
        (templates_of(first) / name).touch()
    common_templates.share([first, second])
    assert {path.name for path in templates_of(second).iterdir()} == {STATE, disk}


def test_a_template_and_its_disk_are_of_one_node(place: Path, tmp_path: Path) -> None:
    nodes = [tmp_path / name for name in ("n1", "n2")]
    for node in nodes:
        (templates_of(node) / STATE).touch()
    (templates_of(nodes[0]) / "key-image-qemu.disk").touch()
    common_templates.share(nodes)
    assert [path.name for path in templates_of(nodes[1]).iterdir()] == [STATE]


def test_with_the_first_process_of_a_run_goes_what_it_had_in_common_and_with_no_other(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run, left in ((os.getppid(), True), (os.getpid(), False)):
        monkeypatch.setenv("RMSPLUGIN_TESTS_RUN", str(run))
        common_templates.share([tmp_path / "n1"])
        common_templates.end_run()
        assert (place / f"rmsplugin-templates-{run}").exists() is left


def test_what_a_killed_run_has_left_goes_when_another_one_begins(place: Path, tmp_path: Path) -> None:
    ended, lives = (place / f"rmsplugin-templates-{run}" for run in (2**22 + 1, os.getppid()))
    for directory in (ended, lives):
        directory.mkdir(parents=True)
    common_templates.share([tmp_path / "n1"])
    assert (ended.exists(), lives.exists()) == (False, True)


def test_the_first_one_makes_what_others_then_find_made(place: Path) -> None:
    with common_templates.place_of_first() as wanted:
        assert wanted
        common_templates.await_usual()  # which a cluster of its own does
    with common_templates.place_of_first() as wanted:
        assert not wanted


def test_who_fails_to_make_them_leaves_it_to_the_next_one(place: Path) -> None:
    with pytest.raises(OSError), common_templates.place_of_first():
        raise OSError
    with common_templates.place_of_first() as wanted:
        assert wanted


def test_another_one_waits_until_they_are_made_and_not_where_nobody_makes_them(place: Path) -> None:
    common_templates.await_usual()
    waiter = "from e2e import common_templates as c; import pathlib, sys; c._PLACE = pathlib.Path(sys.argv[1]); "
    words = [sys.executable, "-c", f"{waiter} c.await_usual()", str(place)]
    with common_templates.place_of_first():
        other = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": TESTS})
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1)
    assert other.wait(60) == 0


@pytest.mark.parametrize("ends", [None, AssertionError("it is not so"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_campaign_however_it_ends(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: BaseException | None
) -> None:
    monkeypatch.delenv("RMSPLUGIN_TESTS_RUN")
    (templates_of(tmp_path / "n1") / STATE).touch()

    def up(*options: str) -> Iterator[str]:
        yield "a cluster"
        common_templates.share([tmp_path / "n1"])

    def act(cluster: object) -> None:
        common_templates.share([tmp_path / "n1"])
        assert list(place.iterdir())
        if ends is not None:
            raise ends

    monkeypatch.setattr(campaign, "minicluster", up)
    try:
        campaign.on_minicluster(act, "hold")
    except KeyboardInterrupt:
        assert isinstance(ends, KeyboardInterrupt)
    assert list(place.iterdir()) == []
