"""`rmsplugin report`: its forms, what is refused, and reading a ledger that is in use, copied, or none."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from unit.cli.json_documents import answer_of
from unit.reported import NOON, Told

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.ledger_file import copy_database

REPLAYED = ("--nodes", "2", "--cpus-per-node", "2")
SACCT = """#!/bin/sh
cat <<END
1|physics|{0}|{0}|1000|00:00:00|20|COMPLETED
2|maths|{0}|{0}|510|00:00:00|10|COMPLETED
END
"""


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Alice's job of 2 CPUs ran for 990 s, bob's of 4 for 490 s beside it; accounting answers."""
    told = Told(tmp_path)
    for job_id, user, vms, run_s in ((1, "alice", 2, 990), (2, "bob", 4, 490)):
        told.at(0).start(told.submit(job_id, user=user, vms=vms), *["n1"] * vms)
        told.at(10 + run_s).end(job_id)
    sacct = tmp_path / "sacct"
    sacct.write_text(SACCT.format(int(NOON)))
    sacct.chmod(0o755)
    return told


def run(told: Told, *words: str) -> int:
    return main(["report", "--config", str(told.settings), *words])


def refused(told: Told, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The message of what has to be refused with status 2, and nothing printed."""
    try:
        status = run(told, *words)
    except SystemExit as ended:
        status = ended.code  # type: ignore[assignment]
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, ""), printed
    return printed.err


def test_a_line_is_a_job_with_its_completion_without_context_switches(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = "jobid,user,account,state,wait,run,completion,fcfs,easy,fcfsgain,slowdown,limit"
    assert run(told, *REPLAYED, "--parsable2", "--format", fields) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "JOBID|USER|ACCOUNT|STATE|WAIT|RUN|COMPLETION|FCFS|EASY|FCFSGAIN|SLOWDOWN|LIMIT",
        "1|alice|physics|ended|0:10|16:30|16:40|16:30|16:30|-0:10|1.01|20:00",
        "2|bob|maths|ended|0:10|8:10|8:20|24:40|24:40|16:20|1.02|10:00",
    ]
    assert "note: the replays give each of 2 jobs" in err and "accounts and time limits" not in err


def test_a_line_is_a_total_where_it_is_asked_for(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(told, *REPLAYED, "--by", "user", "--noheader", "--format", "name,jobs%4,cpuhours,easysooner") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["alice", "1", "0.6", "0"],
        ["bob", "1", "0.5", "1"],
    ]
    assert run(told, *REPLAYED, "--by", "account", "--parsable2") == 0
    assert [line.split("|")[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", "maths", "physics"]


def test_csv_and_json_have_the_same_numbers(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(told, *REPLAYED, "--json") == 0
    document = answer_of(capsys.readouterr().out)
    assert run(told, *REPLAYED, "--csv") == 0
    jobs = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(job["id"], float(job["completion_s"]), float(job["fcfs_end"])) for job in jobs] == [
        (job["id"], job["completion_s"], job["without"]["fcfs"]["end"]) for job in document["jobs"]
    ]
    assert run(told, *REPLAYED, "--by", "class", "--parsable2") == 0
    head, line = [line.split("|") for line in capsys.readouterr().out.splitlines()]
    assert (head[0], head[-1], line[0]) == ("NAME", "EASYLONGEST", "short and narrow")
    assert run(told, *REPLAYED, "--csv", "--by", "all") == 0
    [total] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    [whole] = document["totals"]["all"]
    assert float(total["easy_gained_s"]) == whole["without"]["easy"]["gained_s"]
    assert float(total["longest_s"]) == whole["worth"]["longest_s"]
    assert float(total["easy_paid_s"]) == whole["without"]["easy"]["paid_s"]
    assert float(total["completion_s_p95"]) == whole["worth"]["completion_s"]["p95"]
    assert document["jobs"][0]["slurm"] == {"runs": 1, "run_s": 1000.0, "asleep_s": 0.0, "state": "COMPLETED"}


def test_a_mail_is_narrow_and_says_what_was_gained_and_what_is_not_known(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    told.at(1200).submit(3, user="eve" * 20)
    assert run(told, *REPLAYED, "--email-format") == 0
    out, err = capsys.readouterr()
    assert err == "" and max(map(len, out.splitlines())) <= 78
    words = " ".join(out.split())
    assert "3 jobs were there, 2 ran and ended." in words
    assert "2 jobs ended 16:10 sooner here, all together: 1 sooner, 1 later." in words
    assert "1 job had not run yet" in words
    assert run(told, "--email-format", "--since", "1h", *REPLAYED) == 0
    assert "1 jobs were there" in capsys.readouterr().out  # it waits to this day


def test_charts_are_drawn_without_escapes_in_a_pipe(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(told, *REPLAYED, "--chart") == 0
    out, _ = capsys.readouterr()
    assert "\x1b" not in out and "completion, hours" in out
    assert all(name in out for name in ("live mean", "fcfs mean", "easy 95 of 100", "in the cluster"))
    assert run(told, "--chart", "--since", "1h") == 0
    assert "no job ended" in capsys.readouterr().out


def test_the_time_may_be_a_day_by_its_name(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    told.now = now - 2 * 86400
    told.submit(5)
    told.cancel_waiting(5)
    told.now = now
    told.submit(6)
    assert run(told, "--without-slurm", "--since", "yesterday", "--noheader", "--format", "jobid") == 0
    assert capsys.readouterr().out.split() == ["6"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--since", "2025-11-04", "--until", "2025-11-03"), "--since has to be before --until"),
        (("--since", "tomorrow"), "neither a time"),
        (("--user", "eve"), "the ledger has no job of user 'eve'"),
        (("--user", "alice,"), "a name is empty"),
        (("--partition", "plain"), "the ledger has no job of partition 'plain'"),
        (("--account", "biology"), "accounting has no job of account 'biology'"),
        (("--account", "physics", "--without-slurm"), "accounts are in Slurm's accounting only"),
        (("--job", "77"), "the ledger has no job 77"),
        (("--job", "x"), "'x' is not a job id"),
        (("--by", "node"), "invalid choice"),
        (("--format", "colour"), "no field 'colour'"),
        (("--by", "user", "--format", "jobid"), "no field 'jobid'"),
        (("--nodes", "2"), "--nodes and --cpus-per-node belong together"),
        (("--memory-per-node", "2"), "--memory-per-node to them"),
        (("--json", "--csv"), "--json and --csv do not go together"),
    ],
)
def test_what_makes_no_sense_is_refused(
    told: Told, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert message in refused(told, capsys, *words)


def test_what_is_no_ledger_of_this_release_is_refused(
    told: Told, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text, newer = tmp_path / "text", tmp_path / "newer.sqlite"
    text.write_text("no database\n" * 100)
    copy_database(told.path, newer)
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("insert into _sqlite_migrations (migration_set, name) values ('rmsplugin-ledger', 'm999')")
    assert "cannot be read" in refused(told, capsys, "--ledger", str(text))
    assert "there is no ledger" in refused(told, capsys, "--ledger", str(tmp_path / "gone"))
    assert "newer release" in refused(told, capsys, "--ledger", str(newer))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_who_may_not_read_the_ledger_is_told_so(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.chown(told.path.parent, 0)
    told.path.parent.chmod(0o700)
    os.seteuid(65534)
    try:
        message = refused(told, capsys, "--ledger", str(told.path), "--without-slurm")
    finally:
        os.seteuid(0)
    assert "Permission denied" in message


def test_a_copy_is_read_where_there_are_no_settings(
    told: Told, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(tmp_path / "none.toml"))
    copy_database(told.path, tmp_path / "copy.sqlite")
    assert main(["report", "--ledger", str(tmp_path / "copy.sqlite"), "--noheader", "--format", "jobid,easy"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["1", "-", "2", "-"] and "no settings on this host" in err
    assert main(["report"]) == 2


def test_slurm_that_does_not_answer_is_said_and_the_rest_is_told(
    told: Told, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "sacct").write_text("#!/bin/sh\necho 'sacct: error: Connection refused' >&2\nexit 1\n")
    assert run(told, "--noheader", "--format", "jobid,account,fcfs") == 0
    out, err = capsys.readouterr()
    assert out.split() == ["1", "-", "-", "2", "-", "-"]
    assert "accounts and time limits of 2 jobs are not known: sacct: error: Connection refused" in err
    assert "2 jobs are not compared with other schedules: the nodes are not known" in err


def test_names_in_a_ledger_cannot_move_the_cursor(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.at(50).submit(9, user="a\x1b[2Jb")
    assert run(told, "--without-slurm") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_ledger_is_not_changed(told: Told) -> None:
    with closing(sqlite3.connect(told.path)) as connection:
        before = list(connection.iterdump())
        assert run(told, *REPLAYED, "--json") == 0
        assert list(connection.iterdump()) == before
