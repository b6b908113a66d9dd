"""Calibration: whether the durations of the settings still agree with what was measured; proposes others if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmsplugin.calibration.fit import Fitted, fit
from rmsplugin.calibration.samples import samples_of
from rmsplugin.engine.ledger.gathering import reading_all
from rmsplugin.engine.ledger.history import history_in
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.site_ledgers import SiteLedger

_DAY_S = 86400.0
#: What was measured in so many days counts.
_DAYS = 30
#: An action has new durations proposed if these miss by this share less, and so many seconds less, in the median.
_BETTER, _BETTER_S = 0.25, 1.0


def propose_durations(ledger: Ledger, ledgers: Sequence[SiteLedger], now: float, present: Mapping[str, float]) -> str:
    """Compare durations with measurements; an event tells of a proposal. Returns what was found.

    Args:
        ledger: takes the event.
        ledgers: with what was measured, each of which is read apart: nobody waits for it meanwhile.
        now: of the ledger's clock, in seconds since the epoch.
        present: keys and values of section [durations].

    Raises:
        LedgerError: one of the ledgers cannot be read.
    """
    with reading_all(ledgers) as connection:
        history = history_in(connection, now - _DAYS * _DAY_S)
    fitted = fit(samples_of(history.operations, history.actions), present)
    measured = sum(each.count for each in fitted)
    better = [each for each in fitted if _is_better(each)]
    if not better:
        return f"the durations stay as they are: {measured} actions of {_DAYS} days were measured"
    values = (f"{key} = {value:g} (now {present[key]:g})" for each in better for key, value in each.values().items())
    sentence = f"proposed for [durations]: {', '.join(values)}"
    ledger.event("durations-proposed", f"{sentence}; `rmsplugin calibrate --since {_DAYS}d` has the whole section")
    return sentence


def _is_better(each: Fitted) -> bool:
    gained_s = each.error_s - each.fitted_error_s
    return each.is_fitted and gained_s >= _BETTER_S and gained_s >= _BETTER * each.error_s
