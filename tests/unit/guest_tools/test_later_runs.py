"""The number of a job's run, which the guest keeps: commands of wrappers of runs before are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from unit import guestbox

pytestmark = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

GUEST = "/run/rmsplugin/bin/rmsplugin-guest"
SERVE = "/run/rmsplugin/bin/commands serve"
STATE = "/run/rmsplugin/state"
REFUSED = "rmsplugin-guest: a later run of the job has this VM\n4\n"
#: What a shell has put into a guest for a script that goes on: no wrapper is needed for these tests.
START = f"""mkdir -p /tmp/up && cd /tmp/up && for f in path env args limits cwd umask; do : >$f; done
echo 0 >merged; echo 0022 >umask; printf / >cwd; : >complete
printf '#!/bin/sh\\nsleep 1000\\n' >slurm_script; chmod 700 slurm_script
tar -cf - slurm_script path env args limits cwd umask merged complete | {GUEST} put && {GUEST} start
"""


@pytest.fixture(scope="module", params=guestbox.FLAVOURS)
def box(request: pytest.FixtureRequest) -> Iterator[guestbox.Guestbox]:
    with guestbox.ready(request.param, 1) as made:
        assert made.guests[0].run(START, user=True) == "started\n"
        yield made


@pytest.fixture
def guest(box: guestbox.Guestbox) -> guestbox.Guest:
    """A guest that knows of no run."""
    box.guests[0].run(f"rm -f {STATE}/run")
    return box.guests[0]


def ends(guest: guestbox.Guest, words: str, feed: str = "") -> str:
    """What a command prints, and its exit code; its standard input ends after ``feed``."""
    return guest.run(f"printf '{feed}' | {words} 2>&1; echo $?", user=True)


def run(guest: guestbox.Guest) -> str:
    return guest.run(f"cat {STATE}/run")


@pytest.mark.parametrize(
    ("words", "feed"),
    [
        (f"{GUEST} begin run 8 stdout 0", ""),
        (f"{GUEST} follow stdout 0 8", ""),
        (f"{GUEST} wait 0 8", ""),
        (f"{GUEST} control 8", "ack stdout 0 0\\n"),
        (f"{SERVE} run:8 1-1", "take 1-1\\n"),
    ],
)
def test_each_command_tells_its_run_and_is_refused_after_a_later_one(
    guest: guestbox.Guest, words: str, feed: str
) -> None:
    before = ends(guest, words, feed)
    assert "later run" not in before
    assert run(guest) == "8\n"
    ends(guest, f"{GUEST} control 9")
    assert ends(guest, words, feed).replace("parts\n", "") == REFUSED
    assert run(guest) == "9\n"
    assert ends(guest, words.replace("8", "10", 1), feed) == before
    assert run(guest) == "10\n"


@pytest.mark.parametrize(
    ("words", "feed"),
    [
        (f"{GUEST} begin stdout 0", ""),
        (f"{GUEST} follow stdout 0", ""),
        (f"{GUEST} wait 0", ""),
        (f"{GUEST} wait", ""),
        (f"{GUEST} control", "ack stdout 0 0\\n"),
        (f"{SERVE} 1-1", "take 1-1\\n"),
    ],
)
def test_who_tells_no_run_is_never_refused(guest: guestbox.Guest, words: str, feed: str) -> None:
    before = ends(guest, words, feed)
    ends(guest, f"{GUEST} control 9")
    assert ends(guest, words, feed) == before
    assert run(guest) == "9\n"


def waiting(name: str, words: str) -> str:
    """Shell: a command that waits as long as the pipe /tmp/feed is open; its exit code is in a file then."""
    return f"{{ {GUEST} {words} >/tmp/{name} 2>&1; echo $? >>/tmp/{name}; : >/tmp/{name}.ended; }} </tmp/feed &\n"


@pytest.mark.parametrize("words", ["follow stdout 0", "follow stderr 0", "wait 0"])
def test_commands_that_wait_end_when_a_later_run_comes(guest: guestbox.Guest, words: str) -> None:
    """Those of the later run, and those that tell none, wait on."""
    told = guest.run(
        "cd /tmp; rm -f a* b* c* feed; mkfifo feed; sleep 1000 >feed & feed=$!\n"
        f"{waiting('a', f'{words} 8')}{waiting('b', words)}"
        f"while [ ! -e {STATE}/run ]; do sleep 0.1; done; sleep 0.5; ls *.ended 2>/dev/null\n"
        f"{waiting('c', f'{words} 9')}"
        "while [ ! -e a.ended ]; do sleep 0.1; done; sleep 0.5; ls *.ended; cat a; kill $feed; wait",
        user=True,
    )
    assert told.replace("now\n", "") == f"a.ended\n{REFUSED}"


def test_orders_of_a_run_before_are_not_obeyed_though_they_come_over_a_command_that_was_let_in(
    guest: guestbox.Guest,
) -> None:
    orders = (
        f"(echo ack stdout 0 5; sleep 1; {GUEST} control 9 </dev/null; echo ack stdout 0 6) | {GUEST} control 8 2>&1"
    )
    assert guest.run(f"{orders}; echo $?; cat {STATE}/ack.stdout", user=True) == f"ok\n{REFUSED}stdout 0 5\n"
    takes = f"(sleep 1; {GUEST} control 11 </dev/null; echo take 1-1) | {SERVE} run:10 2>&1; echo $?"
    assert guest.run(takes, user=True) == f"parts\n{REFUSED}"


def begins_beside(guest: guestbox.Guest, words: str) -> str:
    """What a `begin` of run 9 says while that command has its connection, after half a second; and once it has not."""
    return guest.run(
        f"cd /tmp; rm -f feed said; mkfifo feed; sleep 1000 >feed & feed=$!\n{words} <feed >/dev/null & sleep 0.5\n"
        f"{GUEST} begin run 9 stdout 0 >said </dev/null & begun=$!\n"
        "sleep 0.5; tail -n 1 said; echo; kill $feed; wait $begun; tail -n 1 said",
        user=True,
    )


@pytest.mark.parametrize(
    ("words", "waits"),
    [(f"{SERVE} run:8", True), (f"{SERVE} run:9", False), (SERVE, False), (f"{GUEST} control 8", False)],
)
def test_a_run_begins_when_wrappers_of_runs_before_have_let_go_of_their_connections(
    guest: guestbox.Guest, words: str, waits: bool
) -> None:
    """Each of them has a `commands serve`."""
    assert begins_beside(guest, words) == ("\nready\n" if waits else "ready\n\nready\n")


@pytest.mark.parametrize("number", ["", "x", "-1", "1x", "9" * 16])
def test_a_run_that_is_no_number_is_told(guest: guestbox.Guest, number: str) -> None:
    for words in (f"begin run '{number}'", f"follow stdout 0 '{number}'", f"wait 0 '{number}'", f"control '{number}'"):
        assert ends(guest, f"{GUEST} {words}") == f"rmsplugin-guest: no such run: {number}\n2\n"
    assert ends(guest, f"{GUEST} begin run") == "rmsplugin-guest: no such run: \n2\n"


def test_of_many_runs_that_come_at_once_the_latest_one_is_kept(guest: guestbox.Guest) -> None:
    numbers = " ".join(str(number * 37 % 100) for number in range(1, 100))
    guest.run(f"for n in {numbers}; do {GUEST} control $n </dev/null 2>/dev/null & done; wait", user=True)
    assert run(guest) == "99\n"


def test_a_run_is_not_written_through_a_link(guest: guestbox.Guest) -> None:
    guest.run(f"ln -s /tmp/elsewhere {STATE}/run", user=True)
    assert ends(guest, f"{GUEST} control 1") == f"rmsplugin-guest: cannot write {STATE}/run\n1\n"
    guest.run(f"test ! -e /tmp/elsewhere && rm {STATE}/run")
