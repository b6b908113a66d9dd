"""What is done to a VM is waited for as long as the VM is there, or nobody says that it is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.libvirt import waiting as module
from rmsplugin.adapters.platform.libvirt.link import Call
from rmsplugin.adapters.platform.libvirt.values import JobProgress
from rmsplugin.errors import NotFoundError, TimedOutError, UnavailableError

GONE = NotFoundError("no domain with matching name")
SILENT = UnavailableError("no answer")


class Node:
    """Gives these answers to the question how far a VM is."""

    def __init__(self, answers: Iterator[JobProgress | Exception]) -> None:
        self.answers = answers

    def query(self, *_: object) -> JobProgress:
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "_GONE_S", 0.5)
    monkeypatch.setattr(module, "_POLL_S", 0.02)

    def watch(call: Call[str], answers: Iterator[JobProgress | Exception]) -> object:
        vms: Any = None  # nothing is aborted
        node: Any = Node(answers)
        return module.Waiting(node, vms).watch(call, "n1", "vjob1-0", 3600.0, lambda done, total: None)

    return watch


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def a_call(release: threading.Event) -> Call[str]:
    return Call("making a checkpoint", lambda: str(release.wait(PATIENCE_S)))


def test_what_goes_on_without_its_vm_is_given_up(waiting: Any, release: threading.Event) -> None:
    with pytest.raises(TimedOutError, match="vjob1-0 is not on n1 any more"):
        waiting(a_call(release), repeat(GONE))


@pytest.mark.parametrize("otherwise", [SILENT, JobProgress(1, 2, 0)], ids=["silence", "a VM that is there"])
def test_nothing_is_given_up_for(otherwise: JobProgress | Exception, waiting: Any, release: threading.Event) -> None:
    def end() -> Iterator[JobProgress | Exception]:
        release.set()
        yield from repeat(otherwise)

    assert waiting(a_call(release), chain(repeat(otherwise, 50), end())) == "True"
