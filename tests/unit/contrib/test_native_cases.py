"""The comparison of native jobs and vjobs: the form of cases, what is taken out, what counts as a difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.native import guide
from e2e.native.case import Allowed, Case, CaseError, parse, read_cases
from e2e.native.normal import names_of
from e2e.native.outcome import compare, file_lines
from e2e.native.running import accounted

CASE = b"""#!/bin/bash
#CASE title: two tasks
#CASE options: -n 2
#CASE differs sacct *TRES: Slurm counts one node for all VMs.
#CASE gap file slurm-JOB1.out: The host's name has no domain here.
#CASE ci:
#CASE alone: It is about seconds.
srun hostname
"""


def test_a_case_is_read_from_its_comments() -> None:
    case = parse("srun/two", CASE)
    assert (case.topic, case.title, case.submit, case.ci) == ("srun", "two tasks", "sbatch -n 2 job.sh", True)
    assert case.alone
    assert case.script == CASE
    assert case.allowed == (
        Allowed("sacct *TRES", "Slurm counts one node for all VMs.", False),
        Allowed("file slurm-JOB1.out", "The host's name has no domain here.", True),
    )


def test_lines_of_submission_stand_for_the_usual_one() -> None:
    case = parse("a/b", b"#CASE title: x\n#CASE submit: id=$(sbatch --parsable job.sh)\n#CASE submit: ended $id\n")
    assert case.submit == "id=$(sbatch --parsable job.sh)\nended $id"
    assert not case.alone


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("", "no '#CASE title: ...'"),
        ("#CASE titel: x", "not of the form"),
        ("#CASE title: x\n#CASE differs: It cannot be helped.", "differs says which part"),
        ("#CASE title: x\n#CASE ci output:", "ci does not say which part"),
        ("#CASE title: x\n#CASE differs submission: because", "not a sentence"),
        ("#CASE title: x\n#CASE options: -n 2\n#CASE submit: sbatch job.sh", "options are of the submission"),
    ],
)
def test_a_case_of_another_form_is_refused_with_its_name(lines: str, told: str) -> None:
    with pytest.raises(CaseError, match=f"^topic/name: .*{told}"):
        parse("topic/name", lines.encode())


def test_all_cases_of_the_repository_can_be_read_and_are_as_many_as_were_asked_for() -> None:
    cases = read_cases()
    assert len(cases) >= 120
    assert len({case.title for case in cases}) == len(cases), "two cases of one title"
    assert 8 <= sum(case.ci for case in cases) <= 15


def test_what_must_differ_is_taken_out() -> None:
    native = names_of("plain", {"50012": "n[1-2]", "50013": "n2"})
    vjob = names_of("vjob", {"50112": "front1", "50113": "front1"})
    for text, other in [
        ("job 50012 on n[1-2], n1 and n2", "job 50112 on vjob50112-[0-1], vjob50112-0 and vjob50112-1"),
        ("slurm-50013.out", "slurm-50113.out"),
        ("partition plain at 2026-11-23T15:43:20", "partition vjob at 2026-11-23T15:44:20"),
        ("/home/alice/native/plain/user/id", "/home/alice/native/vjob/user/id"),
        ("10.77.0.11", "10.77.1.10"),
        ("UNLIMITED", "365-00:00:00"),
        ("Partition_Limit", "UNLIMITED"),
    ]:
        assert native.plain(text) == vjob.plain(other)


def test_what_may_not_differ_is_left() -> None:
    names = names_of("plain", {"50012": "n1"})
    for text in ("150012 500123", "an1 n10 n1x", "explained", "10.78.0.11", "15:43:20"):
        assert names.plain(text) == text


def test_differences_are_found_part_by_part_and_judged_by_the_case() -> None:
    case = parse("srun/two", CASE)
    native = {"submission": ("exit 0",), "sacct ReqTRES": ("node=2",), "file slurm-JOB1.out": ("a", "b")}
    vjob = {"submission": ("exit 0",), "sacct ReqTRES": ("node=1",), "file slurm-JOB1.out": ("a", "c"), "file x": ()}
    verdict = compare(case, native, vjob)
    assert [each.part for each in verdict.differences] == ["file slurm-JOB1.out", "file x", "sacct ReqTRES"]
    assert verdict.differences[0].lines == ["-b", "+c"]
    assert [each.part for each in verdict.mendable] == ["file slurm-JOB1.out"]
    assert [each.part for each in verdict.unexplained] == ["file x"]
    assert not verdict.stale
    assert not verdict.good


def test_a_reason_without_its_difference_is_not_good() -> None:
    case = parse("srun/two", CASE)
    verdict = compare(case, {"sacct ReqTRES": ("node=2",)}, {"sacct ReqTRES": ("node=1",)})
    assert [each.part for each in verdict.stale] == ["file slurm-JOB1.out"]
    assert not verdict.good


def test_one_line_may_admit_several_parts() -> None:
    case = parse("srun/two", CASE.replace(b"#CASE gap file slurm-JOB1.out: The host's name has no domain here.\n", b""))
    one, two = ({"sacct ReqTRES": (text,), "sacct AllocTRES": (text,)} for text in ("node=2", "node=1"))
    assert compare(case, one, two).good


def test_where_a_job_is_missing_that_is_told_and_not_each_of_its_fields() -> None:
    one = {"jobs": ("1 jobs",), "sacct State": ("JOB1 COMPLETED",), "sacct User": ("JOB1 alice",)}
    none: dict[str, tuple[str, ...]] = {"jobs": ("0 jobs",), "sacct State": (), "sacct User": ()}
    verdict = compare(parse("a/b", b"#CASE title: x\n"), one, none)
    assert [each.part for each in verdict.differences] == ["jobs"]


def test_a_file_is_its_mode_owner_and_content() -> None:
    assert file_lines(0o100640, "alice", "proj", b"a\nb") == ["-rw-r----- alice proj", "a", "b", "(no end of line)"]
    assert file_lines(0o100644, "alice", "proj", b"") == ["-rw-r--r-- alice proj"]
    assert file_lines(0o042770, "root", "proj", None) == ["drwxrws--- root proj"]
    assert file_lines(0o100644, "a", "g", b"\xe9\n")[1] == "\\xe9"
    digests = [file_lines(0o100644, "a", "g", content)[1] for content in (b"\0a", b"\0b", b"x" * 20_001)]
    assert [digest.split(",")[0] for digest in digests] == ["2 bytes", "2 bytes", "20001 bytes"]
    assert digests[0] != digests[1]


def test_the_table_has_each_reason_of_a_case_once_between_its_markers(tmp_path: Path) -> None:
    case = parse("srun/two", CASE)
    native = {"sacct ReqTRES": ("node=2",), "sacct AllocTRES": ("node=2",), "file slurm-JOB1.out": ("a|b",)}
    vjob = {"sacct ReqTRES": ("node=1",), "sacct AllocTRES": ("node=1",), "file slurm-JOB1.out": ("c" * 99,)}
    page = tmp_path / "page.md"
    page.write_text(f"before\n{guide.BEGIN}\n{guide.END}\nafter\n")
    guide.write([compare(case, native, vjob)], [case], page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert f"| two tasks | `a\\|b` | `{'c' * 87}...` | to be mended: The host's name has no domain here. |" in text
    assert guide.reasons(page) == [
        ("two tasks", "The host's name has no domain here."),
        ("two tasks", "Slurm counts one node for all VMs."),
    ]


def test_a_run_of_some_cases_leaves_the_rows_of_the_others_and_takes_away_those_of_cases_that_are_gone(
    tmp_path: Path,
) -> None:
    first, second, gone = (
        parse(f"a/{name}", f"#CASE title: {name}\n#CASE differs file x: It is so for {name}.\n".encode())
        for name in ("first", "second", "gone")
    )
    page = tmp_path / "page.md"
    page.write_text(f"{guide.BEGIN}\n{guide.END}\n")
    differing = [compare(case, {"file x": ("1",)}, {"file x": ("2",)}) for case in (second, gone)]
    guide.write(differing, [second, gone], page)
    guide.write([compare(first, {"file x": ("1",)}, {"file x": ("2",)})], [first, second], page)
    assert [title for title, _ in guide.reasons(page)] == ["first", "second"]
    guide.write([compare(second, {"file x": ("1",)}, {"file x": ("1",)})], [first, second], page)
    assert [title for title, _ in guide.reasons(page)] == ["first"]


def reasons_of(case: Case) -> set[tuple[str, str]]:
    return {(case.title, each.reason) for each in case.allowed}


def test_the_reasons_in_the_user_guide_are_those_of_the_cases() -> None:
    assert set(guide.reasons()) == set().union(*map(reasons_of, read_cases()))


@pytest.mark.parametrize(
    ("field", "value", "compared"),
    [
        ("AllocTRES", "billing=1,cpu=1,mem=128M,node=1", "billing=1,cpu=1,mem=128M"),
        ("AllocTRES", "billing=1,cpu=1,mem=128M", "billing=1,cpu=1,mem=128M"),
        ("AllocTRES", "cpu=1,gres/node=2,node=12", "cpu=1,gres/node=2"),
        ("ReqTRES", "cpu=1,node=1", "cpu=1,node=1"),
    ],
)
def test_nodes_of_jobs_that_have_ended_are_compared_by_their_own_field(field: str, value: str, compared: str) -> None:
    assert accounted(field, value) == compared
