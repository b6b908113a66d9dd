"""Parsers of the guest's program, with sanitizers: a short run of what ``contrib/run-campaign fuzz`` does."""

from __future__ import annotations

from pathlib import Path

import fuzz
import pytest

ROUNDS = 1500


@pytest.mark.skipif(bool(fuzz.missing()), reason=fuzz.missing() or "-")
def test_no_input_makes_a_parser_of_the_guests_program_read_or_write_or_take_what_is_not_its_own(
    tmp_path: Path,
) -> None:
    assert fuzz.fuzz(fuzz.build(tmp_path), seed=1, rounds=ROUNDS) == ""
