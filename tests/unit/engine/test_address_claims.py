"""Claims of addresses: each is one group's, whoever asks at the same time, and whatever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from at_once import at_once
from fresh_ledger import laid_down
from scenarios.world import make_settings

import rmsplugin
from rmsplugin.engine.assess.newcomers import _free_addresses
from rmsplugin.engine.ledger.address_claims import AddressClaims
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import RefusedError, UnavailableError


def claims(directory: Path, group: str) -> AddressClaims:
    found = AddressClaims(directory / "addresses", group)
    found.read()
    return found


def test_an_address_is_the_first_groups(tmp_path: Path) -> None:
    left, right = claims(tmp_path, "left"), claims(tmp_path, "right")
    assert left.claim("10.0.0.1")
    assert not right.claim("10.0.0.1")
    assert (right.mine(), right.others()) == (set(), {"10.0.0.1"})
    assert left.claim("10.0.0.1"), "it has it"


def test_claims_outlive_the_engine(tmp_path: Path) -> None:
    claims(tmp_path, "left").claim("10.0.0.1")
    again = claims(tmp_path, "left")
    assert (again.mine(), again.others()) == ({"10.0.0.1"}, set())
    assert claims(tmp_path, "right").others() == {"10.0.0.1"}


def test_a_claim_that_was_broken_off_is_none(tmp_path: Path) -> None:
    left = claims(tmp_path, "left")
    left.claim("10.0.0.1")
    (tmp_path / "addresses" / ".broken").write_text("right\n")
    assert claims(tmp_path, "right").others() == {"10.0.0.1"}


def test_what_others_have_is_told(tmp_path: Path) -> None:
    claims(tmp_path, "left").claim("10.0.0.2")
    assert claims(tmp_path, "right").claim_all(["10.0.0.1", "10.0.0.2", "10.0.0.3"]) == ["10.0.0.2"]


def test_a_directory_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "addresses").touch()
    with pytest.raises(UnavailableError, match="addresses cannot be claimed in"):
        AddressClaims(tmp_path / "addresses", "left").claim("10.0.0.1")
    with pytest.raises(UnavailableError, match="addresses cannot be claimed in"):
        AddressClaims(tmp_path / "addresses", "left").read()


def test_a_vm_gets_an_address_that_its_group_has_already(tmp_path: Path) -> None:
    left, right = claims(tmp_path, "left"), claims(tmp_path, "right")
    left.claim("10.0.0.50")
    right.claim("10.0.0.10")
    ledger = Ledger(laid_down(tmp_path / "ledger.sqlite"))
    ledger.claims = left
    assert [str(each) for each in _free_addresses(make_settings(), ledger, 3)] == [
        "10.0.0.50",
        "10.0.0.11",
        "10.0.0.12",
    ]
    with pytest.raises(RefusedError, match="needs 191 addresses, 190 free"):
        _free_addresses(make_settings(), ledger, 191)
    ledger.close()


PROGRAM = """
import sys
from pathlib import Path
from rmsplugin.engine.ledger.address_claims import AddressClaims
claims = AddressClaims(Path(sys.argv[1]), sys.argv[2])
print(*[address for address in map("10.0.0.{}".format, range(200)) if claims.claim(address)])
"""


def test_processes_that_claim_at_the_same_time_share_no_address(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "addresses"), group],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for group in ("left", "middle", "right")
    ]
    had = [process.communicate()[0].split() for process in running]
    assert sorted(address for each in had for address in each) == sorted(f"10.0.0.{each}" for each in range(200))


def test_claims_are_read_while_others_ask_whose_addresses_are(tmp_path: Path) -> None:
    (tmp_path / "addresses").mkdir()
    for number in range(250):
        (tmp_path / "addresses" / f"10.0.0.{number}").write_text("right\n")
    for _ in range(10):
        left = AddressClaims(tmp_path / "addresses", "left")

        def ask(_number: int, left: AddressClaims = left) -> None:
            while len(left.others()) < 250:
                pass

        at_once(lambda _, left=left: left.read(), ask, times=1)  # type: ignore[misc]
