"""Ranges of bytes that are locked: the later lock has each byte."""

from __future__ import annotations

import random

from minicluster_lib.nfs_client.ranges import ALL, TO_END, Locked, Range, locked, unlocked


def test_each_byte_is_locked_as_it_was_last_told() -> None:
    dice = random.Random(1)
    ranges: Locked = []
    bytes_: dict[int, bool] = {}
    for _ in range(500):
        first = dice.randrange(20)
        what, writes = Range(first, dice.randrange(first, 20)), dice.random() < 0.5
        told = range(what.first, what.last + 1)
        if dice.random() < 0.5:
            ranges = locked(ranges, what, writes=writes)
            bytes_ |= dict.fromkeys(told, writes)
        else:
            ranges = unlocked(ranges, what)
            bytes_ = {at: each for at, each in bytes_.items() if at not in told}
        found = [(at, each) for part, each in ranges for at in range(part.first, part.last + 1)]
        assert sorted(found) == sorted(bytes_.items())
    assert unlocked(ranges, ALL) == []


def test_the_end_of_a_file_is_told_as_nfs_has_it() -> None:
    assert (ALL.length, Range(3, 3).length) == (TO_END, 1)
