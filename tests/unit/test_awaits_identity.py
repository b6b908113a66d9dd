"""The program that waits in a disk image's guest: what it does to other processes, which are the test's here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import guestbox
import pytest

PROGRAM = Path(__file__).parents[2] / "rmsplugin/adapters/guests/awaits_identity.py"

needs_guests = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

#: In a process namespace of its own, whose first process stands for systemd, and which is told at its end what is seen.
IN_A_GUEST = """
import os, runpy, subprocess, sys, time
program = runpy.run_path(sys.argv[1], run_name="program")

def start(*words, **options):
    return subprocess.Popen([*words, "sleep", "60"], **options).pid

def start_by_a_shell():
    words = ["sh", "-c", "nice -n 19 sleep 60 & echo $!; wait"]
    return int(subprocess.Popen(words, user=1000, stdout=subprocess.PIPE, text=True).stdout.readline())

def wait_for(priority, *processes):
    while {os.getpriority(os.PRIO_PROCESS, process) for process in processes} != {priority}:
        time.sleep(0.01)

def seen(*processes):
    print(*(os.getpriority(os.PRIO_PROCESS, process) for process in (*processes, os.getpid())), flush=True)

server, daemon, odd = start(), start(user=1000), start("nice", "-n", "3")
wait_for(3, odd)
held = program["_hold_back"](server)
seen(server, daemon, odd)
late, by_the_first, users = start("nice", "-n", "19"), start("nice", "-n", "19", user=1000), start_by_a_shell()
wait_for(19, late, by_the_first, users)
program["_let_go"](held)
seen(server, daemon, odd, late, by_the_first, users)
"""


@needs_guests
def test_daemons_step_back_behind_the_ssh_server_and_come_back_with_what_they_have_started() -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    done = subprocess.run(
        [*unshare, sys.executable, "-c", IN_A_GUEST, str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    held, let_go = done.stdout.splitlines()
    assert held == "0 19 3 0", "the server, a daemon, one with a priority of its own, the program"
    assert let_go == "0 0 3 0 0 19 0", (
        "and what root and process 1 have started meanwhile, what the user has, the program"
    )
