"""Reports for those who may not read the ledger: whose jobs they tell of, and that they keep nobody else waiting."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from others import open_directory, runs_commands_as_others
from patience import PATIENCE_S
from unit.cli.json_documents import answer_of
from unit.reported import UIDS, Told, write_settings
from unit.served import Served

import rmsplugin
from rmsplugin.engine.serve import user_reports
from rmsplugin.engine.serve.user_reports import UserReport, UserReports
from rmsplugin.errors import NotFoundError, RefusedError, UnavailableError
from rmsplugin.settings import load

NOBODY = pwd.getpwnam("nobody")
QUESTION = {"since": None, "until": None, "users": [], "accounts": [], "partitions": [], "jobs": [], "hosts": False}


# -- whose jobs they tell of -------------------------------------------------------------------------------------------


class Site:
    """An engine that listens, and its ledger: jobs 1 and 3 are nobody's, 2 is bob's, in a partition of his own."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, operators: tuple[str, ...]) -> None:
        state = directory / "state"
        state.mkdir(mode=0o700)
        monkeypatch.setitem(UIDS, "nobody", NOBODY.pw_uid)
        told = Told(state)
        for job_id, user, partition in ((1, "nobody", "vjob"), (2, "bob", "vlong"), (3, "nobody", "vjob")):
            told.at(job_id).start(told.submit(job_id, user=user, partition=partition), f"{user}snode", seconds=0.0)
            told.at(1000 * job_id).end(job_id)
        told.ledger.close()
        self.settings = directory / "rmsplugin.toml"
        write_settings(self.settings, state)
        self.settings.chmod(0o644)
        self.served = Served(directory, state_dir=state, operators=operators)

    def report(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What `rmsplugin report` says to nobody, who may read neither the ledger nor much else."""
        return self.as_nobody("-m", "rmsplugin.cli.main", "report", "--config", str(self.settings), *words)

    @staticmethod
    def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
        """Run Python."""
        return subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])},
            user=NOBODY.pw_uid,
            group=NOBODY.pw_gid,
            extra_groups=(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with open_directory() as place:  # nobody has to reach the socket
        site = Site(place, monkeypatch, getattr(request, "param", ()))
        yield site
        site.served.close()


@runs_commands_as_others
def test_a_user_is_told_of_their_jobs_and_of_nobody_elses(site: Site) -> None:
    table = site.report("--noheader", "--format", "jobid,user,run")
    assert (table.returncode, [line.split() for line in table.stdout.splitlines()]) == (
        0, [["1", "nobody", "16:39"], ["3", "nobody", "49:57"]],
    ), table  # fmt: skip
    assert "this is of 2 jobs of yours" in table.stderr
    document = site.report("--json")
    assert document.returncode == 0 and "bob" not in document.stdout and "vlong" not in document.stdout
    whole = answer_of(document.stdout)
    assert whole["totals"]["all"][0]["jobs"] == 2
    assert [job["intervals"][-1]["nodes"] for job in whole["jobs"]] == [["nobodysnode"]] * 2
    totals = site.report("--by", "partition", "--csv")
    assert [line.split(",")[:2] for line in totals.stdout.splitlines()] == [["name", "jobs"], ["vjob", "2"]]


@runs_commands_as_others
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--user", "bob"), "you are told of your own jobs only"),
        (("--user", "nobody,bob"), "you are told of your own jobs only"),
        (("--job", "2"), "the ledger has no job of yours 2"),
        (("--job", "1,2"), "the ledger has no job of yours 2"),
        (("--partition", "vlong"), "the ledger has no job of yours of partition 'vlong'"),
        (("--nodes", "2", "--cpus-per-node", "2"), "--nodes is for those who may read the ledger"),
        (("--without-slurm",), "--without-slurm is for those who may read the ledger"),
    ],
)
def test_a_user_who_asks_for_more_is_refused_with_a_sentence(site: Site, words: tuple[str, ...], sentence: str) -> None:
    refused = site.report(*words)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), refused
    assert sentence in refused.stderr


@runs_commands_as_others
@pytest.mark.parametrize("site", [("nobody",)], indirect=True, ids=["operator"])
def test_an_operator_is_told_of_all_jobs(site: Site) -> None:
    table = site.report("--noheader", "--format", "jobid")
    assert table.stdout.split() == ["1", "2", "3"], table
    assert site.report("--user", "bob", "--noheader", "--format", "jobid").stdout.split() == ["2"]


@runs_commands_as_others
def test_without_an_engine_a_user_is_told_that_there_is_none(site: Site) -> None:
    (site.settings.parent / "engine.sock").unlink()
    refused = site.report()
    assert (refused.returncode, refused.stdout) == (1, "") and "no engine on this host" in refused.stderr


@runs_commands_as_others
def test_a_report_is_for_who_asked_for_it(site: Site) -> None:
    status, answer = site.served.ask("POST", "/v1/reports", {})
    assert status == 200
    words = f"EngineClient.unix({site.served.socket!r}).request('GET', '/v1/reports/{answer['report']}?wait=20')"
    stolen = site.as_nobody("-c", f"from rmsplugin.client import EngineClient; print({words})")
    assert stolen.stdout == "" and "RefusedError: this report is not kept any more" in stolen.stderr
    while not (told := site.served.ask("GET", f"/v1/reports/{answer['report']}?wait=5")[1])["made"]:
        assert told["doing"]
    assert told["bytes"] == len(told["text"]) and '"bob"' in told["text"]


@pytest.mark.parametrize(
    "body",
    [
        {"since": "yesterday"}, {"since": -1}, {"until": True}, {"since": float("inf")}, {"users": "bob"},
        {"users": [1]}, {"accounts": ["a\nb"]}, {"jobs": ["x"]}, {"hosts": 1}, {"owner": 0}, {"since": 5, "until": 4},
    ],
)  # fmt: skip
def test_a_question_of_another_form_is_refused(tmp_path: Path, body: dict[str, object]) -> None:
    served = Served(tmp_path)
    try:
        assert served.ask("POST", "/v1/reports", body)[0] == 400
        assert served.ask("GET", "/v1/reports/1")[0] == 409
    finally:
        served.close()


# -- at what price -----------------------------------------------------------------------------------------------------


def with_reports(directory: Path, scenario: Callable[[UserReports], Awaitable[None]]) -> list[int]:
    """Run a scenario; the numbers of the reports of which was told that they have come to an end."""
    path = directory / "rmsplugin.toml"
    write_settings(path, directory)
    told: list[int] = []

    async def run() -> None:
        reports = UserReports(load(path), lambda subjects: told.extend(number for _, number in subjects))
        try:
            await scenario(reports)
        finally:
            await reports.close()

    asyncio.run(run())
    return told


def begin(reports: UserReports, uid: int, behaviour: str, owner: int | None = None) -> UserReport:
    return reports.begin(uid, owner, {**QUESTION, "jobs": [behaviour]})


async def ended(reports: UserReports, report: UserReport) -> UserReport:
    """The report once it is made; raises what it raises."""
    await until(lambda: reports.kept_report(report.uid, report.number, 0).size >= 0)
    return report


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        await asyncio.sleep(0.01)


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process does what tests/unit/bad_reporters.py says."""
    monkeypatch.setattr(user_reports, "PROGRAM", "unit.bad_reporters")


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        ("1", "the report could not be made: no module named numpy"),
        ("2", "the report could not be made: its process ended with status -11"),
        ("3", "the report was not made within 2 s"),
        ("5", "the ledger is locked"),
    ],
)
@pytest.mark.usefixtures("bad")
def test_a_process_that_fails_costs_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, sentence: str
) -> None:
    monkeypatch.setattr(user_reports, "_DEADLINE_S", 2.0 if behaviour == "3" else 60.0)

    async def scenario(reports: UserReports) -> None:
        with pytest.raises(UnavailableError) as error:
            await ended(reports, begin(reports, 1, behaviour))
        assert str(error.value) == sentence
        monkeypatch.setattr(user_reports, "_DEADLINE_S", 60.0)
        good = await ended(reports, begin(reports, 1, "4", owner=7))
        assert reports.piece(good, 0) == "the report of 7\n"

    assert with_reports(tmp_path, scenario)[-1] == 2


def is_there(pid: int) -> bool:
    """Whether it makes a report of this test: another run of the tests has processes of that name, too."""
    process = Path("/proc") / str(pid)
    try:
        ours = f"PPid:\t{os.getpid()}\n" in (process / "status").read_text()
        return ours and b"bad_reporters" in (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # this one has ended, or another one on the machine
        return False


async def process_of(report: UserReport) -> int:
    await until(lambda: report.doing == "this")
    (pid,) = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and is_there(int(each.name))]
    return pid


@pytest.mark.usefixtures("bad")
def test_who_asks_anew_or_is_gone_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reports: UserReports) -> None:
        first = begin(reports, 1, "3")
        pid = await process_of(first)
        second = begin(reports, 1, "3")
        await until(lambda: not is_there(pid))
        with pytest.raises(RefusedError):
            reports.kept_report(1, first.number, 0)
        pid = await process_of(second)
        monkeypatch.setattr(user_reports, "_KEPT_S", 0.1)
        reports.kept_report(1, second.number, 0)  # and never again
        await until(lambda: not is_there(pid))

    assert with_reports(tmp_path, scenario) == [1, 1, 2, 2]  # dropped, and then ended


@pytest.mark.usefixtures("bad")
def test_an_engine_that_ends_waits_for_the_end_of_the_process(tmp_path: Path) -> None:
    async def scenario(reports: UserReports) -> None:
        pid = await process_of(begin(reports, 1, "3"))
        await reports.close()
        assert not is_there(pid)

    assert with_reports(tmp_path, scenario) == [1, 1]


@pytest.mark.usefixtures("bad")
def test_one_is_made_at_a_time_in_turn_and_with_rests(tmp_path: Path) -> None:
    async def scenario(reports: UserReports) -> None:
        made = [begin(reports, uid, "6") for uid in (1, 2, 3)]
        assert made[2].doing == "waiting for reports of others"
        times = [float(reports.piece(await ended(reports, each), 0)) for each in made]
        # Each takes half a second at least, and the next begins after a rest that is as long.
        assert times[1] - times[0] >= 1.0 and times[2] - times[1] >= 1.0

    with_reports(tmp_path, scenario)


@pytest.mark.usefixtures("bad")
def test_so_many_users_have_one_at_a_time_at_most(tmp_path: Path) -> None:
    async def scenario(reports: UserReports) -> None:
        for uid in range(16):
            begin(reports, uid, "4")
        with pytest.raises(UnavailableError, match="try again later"):
            begin(reports, 99, "4")
        begin(reports, 3, "4")  # instead of the one that this user has

    with_reports(tmp_path, scenario)


def test_a_report_larger_than_an_answer_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(tmp_path)
    told.submit(1)
    told.ledger.close()
    monkeypatch.setattr(user_reports, "PIECE_BYTES", 100)

    async def scenario(reports: UserReports) -> None:
        report = await ended(reports, reports.begin(1, UIDS["alice"], QUESTION))
        pieces = [reports.piece(report, begin) for begin in range(0, report.size, 100)]
        head, job = map(json.loads, "".join(pieces).splitlines())
        assert len(pieces) > 5 and (head["kind"], job["id"], job["user"]) == ("report", "1", "alice")
        assert reports.piece(report, report.size) == ""

    with_reports(tmp_path, scenario)


def test_a_report_that_would_fill_the_disk_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Told(tmp_path).ledger.close()
    monkeypatch.setattr(user_reports, "_SIZE_MIB", 0)

    async def scenario(reports: UserReports) -> None:
        with pytest.raises(UnavailableError, match="ask for a shorter time"):
            await ended(reports, reports.begin(1, None, QUESTION))

    with_reports(tmp_path, scenario)


def test_what_the_ledger_does_not_have_is_not_found(tmp_path: Path) -> None:
    Told(tmp_path).ledger.close()

    async def scenario(reports: UserReports) -> None:
        with pytest.raises(NotFoundError, match="no job of yours 12"):
            await ended(reports, reports.begin(1, 2001, {**QUESTION, "jobs": ["12"]}))

    with_reports(tmp_path, scenario)
