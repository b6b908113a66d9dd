"""A run of podman, in whose place is a program that says more than fits into a pipe."""

from __future__ import annotations

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.podman.on_node import program
from rmsplugin.errors import OperationFailedError

_SAYS_MUCH = "head -c 300000 /dev/zero | tr '\\0' x; echo last; exit $0"


@pytest.fixture(autouse=True)
def podman(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_PODMAN", ("sh", "-c", _SAYS_MUCH))


def test_a_program_that_says_much_ends_and_all_of_it_is_heard() -> None:
    assert len(program.run("0", timeout_s=PATIENCE_S)) == 300005


def test_the_end_of_what_a_failed_program_says_is_told() -> None:
    with pytest.raises(OperationFailedError, match=r"x+last$"):
        program.run("3", timeout_s=PATIENCE_S)
