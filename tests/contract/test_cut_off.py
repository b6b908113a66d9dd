"""Hosts that the network drops all packets of: what a knock and a request that is under way find out of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

import rmsplugin

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("nft") is None, reason="needs root and nftables, for a network of its own"
)

_BEGIN = """
import socket, subprocess, threading
from rmsplugin import client
from rmsplugin.adapters.knock import knock
from rmsplugin.errors import UnavailableError

RULES = '''
table inet cut {
  chain input { type filter hook input priority -200; tcp dport 7000 drop; tcp sport 7000 drop; }
}
'''

def cut():
    subprocess.run(["nft", "-f", "-"], input=RULES, text=True, check=True)
"""

_REQUEST = """
client._ASKED_AFTER_S, client._ASKED_EVERY_S, client._UNHEARD_MS = 1, 1, 2000
listening, waits = socket.create_server(("127.0.0.1", 7000)), []

class Client(client.EngineClient):
    def _credential(self, *_):
        return "nobody checks it"

def serve():
    while True:
        asked, _ = listening.accept()
        if asked.recv(1 << 16) == client.LOOK:
            asked.sendall(b"H")
            continue
        waits.append(asked)
        if is_cut:
            cut()

threading.Thread(target=serve, daemon=True).start()
try:
    Client.tcp("http://127.0.0.1:7000 http://127.0.0.1:7001", 0).request("GET", "/v1/x?wait=25", timeout_s=bound_s)
except UnavailableError as error:
    print(error)
"""


def in_a_network_of_its_own(script: str) -> str:
    """What the script prints."""
    words = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" -c "$1"', sys.executable, script]
    environment = os.environ | {"PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_host_that_refuses_can_be_reached_and_one_that_is_silent_cannot() -> None:
    script = """
print(knock("127.0.0.1", 7000))
listening = socket.create_server(("127.0.0.1", 7000))
print(knock("127.0.0.1", 7000))
cut()
print(knock("127.0.0.1", 7000), knock("nowhere.invalid", 7000), knock("192.0.2.1", 7000))
"""
    assert in_a_network_of_its_own(_BEGIN + script).split() == ["True", "True", "False", "False", "False"]


def test_a_request_under_way_is_given_up_when_its_host_is_gone_long_before_its_own_time() -> None:
    said = in_a_network_of_its_own(f"{_BEGIN}\nis_cut, bound_s = True, 30.0\n{_REQUEST}")
    assert "127.0.0.1:7000 cannot be reached: [Errno 110] Connection timed out" in said


def test_an_answer_of_a_host_that_is_there_is_waited_for() -> None:
    said = in_a_network_of_its_own(f"{_BEGIN}\nis_cut, bound_s = False, 4.0\n{_REQUEST}")
    assert "127.0.0.1:7000 did not answer within 4 s" in said
