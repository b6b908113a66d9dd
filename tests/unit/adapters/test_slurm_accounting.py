"""Slurm's accounting: what is asked of sacct, and how its answer is read."""

from __future__ import annotations

import math
from pathlib import Path

from unit.reported import NOON

from rmsplugin.adapters.rms.slurm_accounting import Run, SlurmAccounting, read_runs


def test_what_sacct_prints_is_read() -> None:
    text = (
        "12|physics|1762171200|1762171210|100|00:01:40|60|COMPLETED\n"
        "13||1762171200|Unknown|0|00:00:00|UNLIMITED|CANCELLED by 2001\n"
        "14|a|1762171200|1762171210|7|1-00:00:01|Partition_Limit|RUNNING\n"
        "15|a|1762171200|1762171210|7|00:00:00|525600|RUNNING\n"
        "12.batch|physics|1762171200|1762171210|100|00:00:00||COMPLETED\n"
        "rubbish\n"
    )
    first, second, third, fourth = read_runs(text)
    assert first == Run(12, "physics", 1762171200, 1762171210, 100, 100, 3600.0, "COMPLETED")
    assert (second.start, second.limit_s, second.state) == (0, math.inf, "CANCELLED")
    assert third.asleep_s == 86401 and math.isnan(third.limit_s)
    assert fourth.limit_s == math.inf  # a year: Slurm's other word for it


def test_sacct_is_asked_week_by_week_for_the_partitions_and_the_time(tmp_path: Path) -> None:
    sacct, asked = tmp_path / "sacct", tmp_path / "asked"
    sacct.write_text(f'#!/bin/sh\necho "$TZ $SLURM_TIME_FORMAT $*" >> {asked}\n')
    sacct.chmod(0o755)
    parts: list[float] = []
    week_s = 7 * 86400
    assert (
        list(SlurmAccounting(str(tmp_path)).runs(["vjob", "vlong"], NOON + 0.5, NOON + 1.5 * week_s, parts.append))
        == []
    )
    first, second = asked.read_text().splitlines()
    assert first.startswith(
        "UTC %s -n -P -X -D -a -r vjob,vlong -S 2025-11-03T12:00:00 -E 2025-11-10T12:00:01 -o JobID"
    )
    assert " -S 2025-11-10T12:00:00 -E 2025-11-14T00:00:00 " in second
    assert parts[-1] == 1.0
