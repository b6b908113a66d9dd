"""Texts of leaders on a shared directory: a reader never takes one that the next leader does not know of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmsplugin.adapters.coordination.epoch_files import KEPT, EpochFiles, EpochText
from rmsplugin.errors import UnavailableError


@pytest.fixture
def files(tmp_path: Path) -> EpochFiles:
    return EpochFiles(tmp_path / "site", "given")


def copied(before: EpochText | None) -> str:
    return f"{before.text if before else 'none'}+"


def content(files: EpochFiles) -> tuple[int, str]:
    newest = files.newest()
    assert newest is not None
    return newest.epoch, newest.text


def test_before_the_first_leader_there_is_none(files: EpochFiles) -> None:
    assert files.newest() is None


def test_the_highest_epoch_counts_whoever_wrote_last(files: EpochFiles) -> None:
    files.write(9, "a")
    files.write(10, "b")
    files.write(9, "late")
    assert content(files) == (10, "b")


def test_a_leader_writes_its_text_anew(files: EpochFiles) -> None:
    files.write(9, "a")
    files.write(9, "b")
    assert content(files) == (9, "b")


def test_the_files_of_old_leaders_go(files: EpochFiles, tmp_path: Path) -> None:
    for epoch in range(1, 8):
        files.write(epoch, str(epoch))
    assert sorted(os.listdir(tmp_path / "site")) == [f"given-{epoch}.json" for epoch in range(8 - KEPT, 8)]


def test_other_files_there_are_no_texts(files: EpochFiles, tmp_path: Path) -> None:
    files.write(3, "a")
    for name in ("given-x.json", "given-04.json", "given-5.json.old", "lead-6.json"):
        (tmp_path / "site" / name).touch()
    assert content(files) == (3, "a")


def test_a_new_leader_begins_with_the_text_before(files: EpochFiles) -> None:
    assert files.begin(5, copied) == "none+"
    assert files.begin(8, copied) == "none++"
    assert content(files) == (8, "none++")


def test_while_a_new_leader_reads_no_text_is_taken_and_all_that_were_taken_are_read(files: EpochFiles) -> None:
    files.write(5, "a")
    before = files._before

    def read(epoch: int) -> EpochText | None:
        # The leader before goes on as long as it likes: from here on nobody takes what it writes.
        files.write(5, "late")
        with pytest.raises(UnavailableError, match="has begun, and has not written yet"):
            files.newest()
        found = before(epoch)
        files.write(5, "too late")
        return found

    files._before = read  # type: ignore[method-assign]
    assert files.begin(8, copied) == "late+"
    files._before = before  # type: ignore[method-assign]
    assert content(files) == (8, "late+")


def test_a_leader_that_has_only_begun_is_passed_over_by_the_next_one(files: EpochFiles) -> None:
    files.write(5, "a")

    def killed(before: EpochText | None) -> str:
        raise KeyboardInterrupt

    for epoch in range(6, 7 + KEPT):
        with pytest.raises(KeyboardInterrupt):
            files.begin(epoch, killed)
    assert files.highest() == 6 + KEPT
    assert files.begin(20, copied) == "a+"
    files.write(7, "late")
    assert content(files) == (20, "a+")


def test_a_leader_that_begins_again_goes_on_with_what_it_has_written(files: EpochFiles) -> None:
    files.write(5, "a")
    files.begin(8, copied)
    files.write(5, "late")
    assert files.begin(8, copied) == "a+"


def test_a_reader_does_not_take_a_text_when_a_new_leader_has_begun_meanwhile(
    files: EpochFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(5, "a")
    read_text, late = Path.read_text, []

    def read(path: Path, *, encoding: str, errors: str) -> str:
        text = read_text(path, encoding=encoding, errors=errors)
        if not late:
            late.append(path)
            files.begin(8, copied)
        return text

    monkeypatch.setattr(Path, "read_text", read)
    assert content(files) == (8, "a+")


def test_the_mark_changes_with_each_text(files: EpochFiles) -> None:
    marks = [files.mark()]
    for epoch, text in ((3, "a"), (3, "a"), (4, "a")):
        files.write(epoch, text)
        marks.append(files.mark())
    files.write(3, "late")
    assert len(set(marks)) == 4
    assert files.mark() == marks[-1]


def test_a_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "site").touch()
    files = EpochFiles(tmp_path / "site", "given")
    with pytest.raises(UnavailableError, match="cannot be read now: Not a directory"):
        files.newest()
    with pytest.raises(UnavailableError, match="cannot be written now: File exists"):
        files.write(1, "a")
