"""For whom a manager asks: said in headers, taken on the socket of a group's engine only."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.served import Served

from rmsplugin.engine.serve.doors import LOCAL, Origin, read_address
from rmsplugin.engine.serve.parsing import BadRequestError
from rmsplugin.engine.serve.vouched import vouched


def test_who_says_nothing_asks_for_himself() -> None:
    assert vouched({}, 64030) == (64030, LOCAL)


def test_the_caller_is_the_one_that_is_said() -> None:
    assert vouched({"X-Rmsplugin-Uid": "1000"}, 0) == (1000, LOCAL)
    there = Origin(read_address("10.0.0.7"), here=False)
    assert vouched({"X-Rmsplugin-Uid": "0", "X-Rmsplugin-Origin": "10.0.0.7"}, 64030) == (0, there)


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Rmsplugin-Uid": ""},
        {"X-Rmsplugin-Uid": "-1"},
        {"X-Rmsplugin-Uid": "\u0661"},
        {"X-Rmsplugin-Uid": "9" * 11},
        {"X-Rmsplugin-Uid": "root"},
        {"X-Rmsplugin-Uid": "0", "X-Rmsplugin-Origin": "n1"},
        {"X-Rmsplugin-Uid": "0", "X-Rmsplugin-Origin": ""},
        {"X-Rmsplugin-Origin": "10.0.0.7"},
    ],
)
def test_what_cannot_be_read_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(BadRequestError):
        vouched(headers, 0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


@pytest.fixture
def ask(served: Served) -> Callable[..., tuple[int, Any]]:
    def ask(path: str, headers: dict[str, str]) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(served.socket)
        connection.request("POST", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    return ask


def test_behind_a_manager_the_powers_are_those_of_whom_it_asks_for(
    served: Served, ask: Callable[..., tuple[int, Any]]
) -> None:
    served.service._front._behind_a_manager = True
    assert ask("/v1/pause", {"X-Rmsplugin-Uid": "65534"})[0] == 403
    assert ask("/v1/pause", {"X-Rmsplugin-Uid": "0", "X-Rmsplugin-Origin": "10.9.9.9"})[0] == 403
    assert ask("/v1/pause", {"X-Rmsplugin-Uid": "nobody"})[0] == 400
    assert ask("/v1/pause", {"X-Rmsplugin-Uid": "0"})[0] == 200


def test_elsewhere_nobody_asks_for_others(served: Served, ask: Callable[..., tuple[int, Any]]) -> None:
    assert ask("/v1/pause", {"X-Rmsplugin-Uid": "65534"})[0] == 200, "root asks for himself"
