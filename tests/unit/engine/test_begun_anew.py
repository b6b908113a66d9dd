"""A group's engine that a host of its own refuses begins its turn anew, once, and not at once."""

from __future__ import annotations

import logging

import pytest

from rmsplugin.engine.territory.begun_anew import LEAST_S, BegunAnew


def test_a_turn_begins_anew_once_where_a_host_refuses_and_not_soon_after_its_begin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    begun: list[float] = []
    anew = BegunAnew(lambda: begun.append(now[0]), {"n9"}, lambda: now[0])
    for now[0], hosts in [
        (100.0 + LEAST_S - 1, ["n2"]),
        (100.0 + LEAST_S, []),
        (110.0 + LEAST_S, ["n9"]),
        (200.0 + LEAST_S, ["n3", "n2"]),
        (999.0, ["n2"]),
    ]:
        anew.where_refused(hosts)
    assert begun == [200.0 + LEAST_S]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("n2, n3 obey an engine of a higher epoch, as hosts that come from another group")
