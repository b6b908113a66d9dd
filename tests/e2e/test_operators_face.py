"""What operators and users are told on a real cluster: documents, refusals that come first, notes beside jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.queued import WHOLE
from e2e.rooms import count, finish, wait_number
from e2e.slurm_conf import edited
from unit.cli.json_documents import document_of, told

pytestmark = pytest.mark.e2e


def note(cluster: Cluster, job: int) -> str:
    """AdminComment as alice reads it."""
    shown = cluster.ok("scontrol", "show", "job", str(job), user="alice")
    return "".join(re.findall(r"AdminComment=(.*)", shown))


@contextmanager
def mail_program(cluster: Cluster) -> Iterator[Path]:
    """A MailProg that writes subject and address of each mail into the file that is returned."""
    program = cluster.directory / "shared/slurm/mail"
    mails = cluster.host_path("head", "/etc/rmsplugin/mails")
    program.write_text('#!/bin/sh\nprintf "%s|%s\\n" "$2" "$3" >> /etc/rmsplugin/mails\n')
    program.chmod(0o755)
    mails.touch()
    mails.chmod(0o666)
    try:
        with edited(cluster) as change:
            change("\nSlurmUser=slurm\n", "\nSlurmUser=slurm\nMailProg=/etc/slurm/mail\n")
            yield mails
    finally:
        mails.unlink()
        program.unlink()


def mailed(mails: Path, job: int) -> list[str]:
    """What the engine has mailed about a job, with the address; Slurm mails its begin."""
    lines = [line for line in mails.read_text().splitlines() if line.startswith(f"Slurm Job_id={job} ")]
    return [line for line in lines if " Began" not in line and " Ended" not in line]


def test_users_and_operators_are_told_what_is_so(cluster: Cluster) -> None:
    wanted = ("admin_comment = true", "mail = true")
    with mail_program(cluster) as mails, configured(cluster, "slurm", *wanted):
        job = count(cluster, *WHOLE, "--mail-type=ALL", "--mail-user=alice@example.org", "--job-name=a;b")
        wait_number(cluster, job, 3)
        node = cluster.vjob(job)["nodes"][0]
        assert note(cluster, job) == "", "a start is no news"

        # What would be refused is refused before anybody is asked to confirm it.
        gone = cluster.plugin("node", "gone", node)
        assert (gone.code, "libvirt answers" in gone.err) == (1, True), gone.err
        assert cluster.plugin("node", "gone", "n77").code == 1
        forbidden = cluster.plugin("node", "gone", node, user="alice")
        assert (forbidden.code, "--yes" in forbidden.err) == (1, False), forbidden.err

        assert cluster.plugin("suspend", str(job)).code == 0
        cluster.wait("a note", lambda: note(cluster, job).startswith("rmsplugin: suspended; "), 60)
        said = f"Slurm Job_id={job} Name=a_b suspended; its time limit stands still|alice@example.org"
        cluster.wait("a mail", lambda: mailed(mails, job) == [said], 60, mails.read_text)
        waits = document_of(cluster.plugin("vjobs", "--start", "--json").out)
        [row] = [each for each in waits["vjobs"] if each["job_id"] == job]
        assert row["state"] == "sleeping" and row["start"] is None, "it sleeps until somebody wakes it"

        assert cluster.plugin("resume", str(job)).code == 0
        cluster.wait("a note", lambda: note(cluster, job).startswith("rmsplugin: resumed ("), 60)
        assert mailed(mails, job) == [said], "at most one in half an hour"
        [row] = document_of(cluster.plugin("vjobs", str(job), "--json").out)["vjobs"]
        assert not re.search(r"\bn\d", row["reason"]) and row["expansion"] >= 1

        shown = cluster.plugin("vjobs", str(job)).out.splitlines()
        assert len(shown[0].split()) == len(shown[1].split()), shown
        assert str(job) in cluster.plugin("top", "--once").out
        differing = document_of(cluster.plugin("config", "show", "--differing", "--json").out)
        assert (differing["config"], differing["errors"]) == ([], [])
        for words in (("status",), ("nodes",), ("events",), ("cycles",), ("check", "--quick", "--within", "100")):
            document_of(cluster.plugin(*words, "--json").out)
        failed = document_of(cluster.plugin("decisions", "999999", "--json").out)
        assert told(failed, "errors") == ["no vjob 999999"]
        finish(cluster, job)
