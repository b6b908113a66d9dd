"""The commands that the guides show, run as they stand there, where they need no engine and no cluster.

That all others are at least understood is tested in test_docs.py.
"""

from __future__ import annotations

import gzip
import re
import shlex
import time
from pathlib import Path

import pytest
from unit.reported import NOON, Told
from unit.shown_commands import DOCS, GUIDES, commands_shown
from unit.simulation.test_workload import line

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger.ledger_file import copy_database
from rmsplugin.model.event_kinds import KINDS

#: Commands that read files only. `plan --live` asks the engine, and a command alone is a word in a sentence.
OFFLINE = re.compile(r"(plan|pack|simulate|compare|report|energy) --(?!live)|ledger (check|backup|query)")
SHOWN = sorted(
    {
        words
        for page in GUIDES
        if page.name != "CHANGELOG.md"
        for words in commands_shown(page.read_text())
        if OFFLINE.match(words) and words != "ledger query SQL"
    }
)
TRACE = "".join(
    f"{each}\n"
    for each in (
        line(job_id=1, submit_s=0, run_s=600, allocated_processors=2, requested_s=1000),
        line(job_id=2, submit_s=10, run_s=300, allocated_processors=4, requested_s=300),
    )
)
POWER = """
[[power.classes]]
idle_w = 110
busy_w = 320
off_w = 8
transition_w = 170
off_s = 60
on_s = 240
"""


def example(page: str, kind: str) -> str:
    """The file that a page shows."""
    (shown,) = re.findall(rf"```{kind}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return str(shown)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the guides name; the ledger is of a site where job 12 has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(DOCS.parent / "contrib/policy-template")
    told = Told(tmp_path)
    an_hour_ago = time.time() - 3600 - NOON
    told.at(an_hour_ago).start(told.submit(12, vms=2), "n01", "n01")
    told.at(an_hour_ago + 1000).end(12)
    told.settings.write_text(told.settings.read_text() + POWER)
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(told.settings))
    for copy in ("copy.sqlite", "FILE"):
        copy_database(told.path, Path(copy))
    cluster = example("simulation/plan-and-pack.md", "json")
    Path("cluster.json").write_text(cluster)
    Path("cluster.json.gz").write_bytes(gzip.compress(cluster.encode()))
    Path("kth.swf").write_text(TRACE)
    Path("hpc2n.swf.gz").write_bytes(gzip.compress(TRACE.encode()))
    Path("energy.toml").write_text(example("simulation/energy.md", "toml"))
    Path("co2.csv").write_text("00:00,310\n")
    for name in ("var/lib/rmsplugin", "var/backups"):
        Path(name).mkdir(parents=True)
    return told.path


@pytest.mark.parametrize("words", SHOWN)
def test_a_command_of_the_guides_runs(site: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Files of the system are those below the directory of the test, and Slurm is left out."""
    here = shlex.split(words.replace("--ledger /var/lib/rmsplugin/ledger.sqlite", f"--ledger {site}"))
    if here[0] == "energy":
        here += ["--without-slurm", "--cpus-per-node", "16"]
    status = main([word.removeprefix("/") if word.startswith("/var/") else word for word in here])
    assert status == 0, capsys.readouterr().err


def test_options_of_programs_in_contrib_are_theirs() -> None:
    """What an operator is told to call there: each option that is shown is named in the program."""
    contrib = DOCS.parent / "contrib"
    unknown = []
    for page in (DOCS / "operator").glob("*.md"):
        for name, words in re.findall(
            r"(?:^ {4}|`)(?:sudo )?contrib/([a-z-]+) ([^`#\n]*)", page.read_text(), re.MULTILINE
        ):
            library = contrib / f"{name.replace('-', '_')}_lib"
            source = "".join(path.read_text() for path in [contrib / name, *library.glob("*.py")])
            unknown += [(page.name, name, word) for word in words.split() if word[:2] == "--" and word not in source]
    assert unknown == []


def test_kinds_of_events_that_are_shown_are_kinds_that_the_engine_has() -> None:
    helps = (DOCS.parent / "rmsplugin/cli/live/events.py", *GUIDES)
    shown = {
        kind
        for page in helps
        for kinds in re.findall(r"rmsplugin events [^\n#]*--kind ([a-z][\w,-]*)", page.read_text())
        for kind in kinds.split(",")
    }
    assert len(shown) > 4
    assert shown - KINDS == set()
