"""The program that waits in a disk image's guest: what it does to processes and a network that are the test's here."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lifetime import ENDS_WITH_US
from patience import PATIENCE_S
from unit import guestbox

PROGRAM = Path(__file__).parents[3] / "rmsplugin/adapters/guests/awaits_identity.py"

needs_guests = pytest.mark.skipif(bool(guestbox.missing()), reason=guestbox.missing() or "-")

#: In a process namespace of its own, whose first process stands for systemd, and which is told at its end what is seen.
IN_A_GUEST = """
import os, runpy, subprocess, sys, time
program = runpy.run_path(sys.argv[1], run_name="program")
os.setpriority(os.PRIO_PROCESS, 0, 0)

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

def state_of(process):
    return open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0]

def wait_state(process, state):
    while state_of(process) != state:
        time.sleep(0.01)

os.symlink("/bin/sleep", sys.argv[2] + "/systemd-udevd")
manager = subprocess.Popen([sys.argv[2] + "/systemd-udevd", "60"]).pid
server, daemon, odd = start(), start(user=1000), start("nice", "-n", "3")
wait_for(3, odd)
wait_state(manager, "S")
held = program["_hold_back"](server)
wait_state(manager, "T")
seen(server, daemon, odd)
late, by_the_first, users = start("nice", "-n", "19"), start("nice", "-n", "19", user=1000), start_by_a_shell()
wait_for(19, late, by_the_first, users)
look, unseen = program["_processes"], []

def look_before_one_comes():
    found = look()
    if not unseen:
        unseen.append(start("nice", "-n", "19"))
        wait_for(19, *unseen)
    return found

program["_let_go"].__globals__["_processes"] = look_before_one_comes
program["_let_go"](held)
wait_state(manager, "S")
seen(server, daemon, odd, late, by_the_first, users, *unseen)
"""

#: With accounts of its own.
WITH_ACCOUNTS = """
import os, runpy, subprocess, sys
program = runpy.run_path(sys.argv[1], run_name="program")
for words in (
    ["mount", "--make-rprivate", "/"],
    ["mount", "--bind", sys.argv[2], "/etc/passwd"],
    ["mount", "-t", "tmpfs", "run", "/run"],
):
    subprocess.run(words, check=True)
program["_have_quick_shell"]()
print(open("/etc/passwd").read() + open("/run/rmsplugin/image/passwd").read(), end="")
"""


#: With an ssh server of its own on its own loopback, whose keys are those of a directory of its own.
WITH_A_SERVER = """
import os, runpy, subprocess, sys, time
program = runpy.run_path(sys.argv[1], run_name="program")
for words in (
    ["mount", "--make-rprivate", "/"],
    ["mount", "-t", "tmpfs", "etc", "/etc/ssh"],
    ["mount", "-t", "tmpfs", "run", "/run"],
    ["ip", "link", "set", "lo", "up"],
):
    subprocess.run(words, check=True)
os.mkdir("/run/sshd", 0o755)

def make_key():
    subprocess.run(["sh", "-c", "rm -f /etc/ssh/ssh_host_ed25519_key*"], check=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/ssh_host_ed25519_key"]
    subprocess.run(words, check=True)
    return open("/etc/ssh/ssh_host_ed25519_key.pub").read().split()[1]

def shown():
    while not program["_listens"]():
        time.sleep(0.01)
    words = ["ssh-keyscan", "-t", "ed25519", "127.0.0.1"]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=20).stdout
    return said.split()[-1] if said else ""  # a server that begins anew breaks off

with open("/etc/ssh/sshd_config", "w") as settings:
    settings.write("UsePAM no\\nPidFile none\\nListenAddress 127.0.0.1\\n" + sys.argv[2])
if "rsa" in sys.argv[2]:
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", "/etc/ssh/ssh_host_rsa_key"], check=True)
keys = [make_key()]
server = subprocess.Popen(["/usr/sbin/sshd", "-D"], stderr=subprocess.DEVNULL)
seen = [shown()]
stopped = program["_stop_at_gate"](server.pid) == server.pid
waits = not program["_listens"]()
keys.append(make_key())
program["_let_read_keys"](server.pid)
while (key := shown()) in ("", keys[0]):
    time.sleep(0.01)
seen.append(key)
print(stopped, waits, seen == keys, server.poll(), *sorted(os.listdir("/etc/ssh")))
server.kill()
"""

#: With a card that leads nowhere.
WITH_A_CARD = """
import runpy, subprocess, sys
program = runpy.run_path(sys.argv[1], run_name="program")
subprocess.run(["ip", "link", "add", "card0", "type", "veth", "peer", "name", "peer0"], check=True)
subprocess.run(["ip", "link", "set", "peer0", "up"], check=True)
identity = {"mac": "52:54:00:12:34:56", "address": "10.9.8.7/20", "gateway": sys.argv[2]}
program["_set_network"](identity, "card0")
for words in (["address", "show", "dev", "card0"], ["route"]):
    subprocess.run(["ip", "-4", "-j", *words], check=True)
subprocess.run(["ip", "-j", "link", "show", "dev", "card0"], check=True)
"""


def _run(program: str, *words: str, namespaces: tuple[str, ...] = ()) -> str:
    unshare = [*ENDS_WITH_US, "unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *namespaces]
    done = subprocess.run(
        [*unshare, sys.executable, "-c", program, str(PROGRAM), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


#: A run of the tests that waits for something in a guest.
A_RUN = """
import sys
sys.path[:0] = sys.argv[1].split(":")
from unit.adapters import test_awaits_identity
test_awaits_identity._run(test_awaits_identity.WAITS, sys.argv[2])
"""

#: As process 1 it does not hear SIGTERM.
WAITS = """
import fcntl, sys, time
held = open(sys.argv[2], "w")
fcntl.flock(held, fcntl.LOCK_EX)
print("waits", file=held, flush=True)
while True:
    time.sleep(0.01)
"""


@needs_guests
def test_what_waits_in_a_guest_ends_with_the_run_of_the_tests_however_that_ends(tmp_path: Path) -> None:
    """Seen: after SIGTERM to a run its program looked for a state of a process that had ended, for ever."""
    held, path = tmp_path / "held", ":".join(sys.path)
    run = subprocess.Popen([sys.executable, "-c", A_RUN, path, str(held)], start_new_session=True)
    deadline = time.monotonic() + PATIENCE_S
    while not (held.exists() and held.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGTERM)
    run.wait(PATIENCE_S)
    with held.open() as file:
        while not _is_free(file.fileno()):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _is_free(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@needs_guests
def test_daemons_step_back_behind_the_ssh_server_and_come_back_with_what_they_have_started(tmp_path: Path) -> None:
    held, let_go = _run(IN_A_GUEST, str(tmp_path)).splitlines()
    assert held == "0 19 3 0", "the server, a daemon, one with a priority of its own, the program"
    assert let_go == "0 0 3 0 0 19 0 0", (
        "and what root and process 1 have started meanwhile, what the user has, what came after a look, the program"
    )


@needs_guests
@pytest.mark.skipif(not shutil.which("sshd"), reason="needs an ssh server")
def test_the_ssh_server_stops_before_it_reads_its_keys_and_goes_on_with_those_of_its_vm() -> None:
    told = _run(WITH_A_SERVER, "", namespaces=("--mount", "--net"))
    keys = "ssh_host_ed25519_key ssh_host_ed25519_key.pub"
    assert told == f"True True True None {keys} sshd_config\n", "it goes on as it was, and no pipe is left"


@needs_guests
@pytest.mark.skipif(not shutil.which("sshd"), reason="needs an ssh server")
@pytest.mark.parametrize("others", ["", "HostKey /etc/ssh/ssh_host_rsa_key\n"])
def test_an_ssh_server_that_looks_for_no_other_key_or_has_it_begins_anew_with_that_of_its_vm(others: str) -> None:
    settings = f"{others}HostKey /etc/ssh/ssh_host_ed25519_key\n"
    told = _run(WITH_A_SERVER, settings, namespaces=("--mount", "--net"))
    assert told.startswith("True False True None ssh_host_ed25519_key "), "it has stopped nowhere"
    assert told.count("rsa") == 2 * bool(others), "what is there stays"


@needs_guests
def test_root_has_a_quick_shell_until_the_accounts_are_written_anew(tmp_path: Path) -> None:
    others = "operator:x:37:37:Operator:/var:/bin/csh\nroots:x:1001:1001:root:/root:/bin/bash\n"
    (tmp_path / "passwd").write_text(image := f"root:x:0:0:root:/root:/bin/bash\n{others}")
    told = _run(WITH_ACCOUNTS, str(tmp_path / "passwd"), namespaces=("--mount",))
    assert told == f"root:x:0:0:root:/root:/run/rmsplugin/bin/login-shell\n{others}{image}"


@needs_guests
@pytest.mark.parametrize("gateway", ["", "10.9.0.1"])
def test_the_card_gets_addresses_and_way_out_of_its_vm(gateway: str) -> None:
    told = _run(WITH_A_CARD, gateway, namespaces=("--net",))
    (address,), routes, (link,) = (json.loads(line) for line in told.splitlines())
    (inet,) = address["addr_info"]
    assert (inet["local"], inet["prefixlen"], inet["broadcast"]) == ("10.9.8.7", 20, "10.9.15.255")
    assert link["address"] == "52:54:00:12:34:56"
    assert {"UP", "BROADCAST", "MULTICAST"} <= set(link["flags"])
    ways = {route["dst"]: route.get("gateway", "") for route in routes}
    assert ways == {"10.9.0.0/20": "", **({"default": gateway} if gateway else {})}
