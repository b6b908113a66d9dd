"""Calibration: whether the durations in use still agree with what was measured; proposes others, or uses them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from rmsplugin.calibration.fit import Fitted, fit
from rmsplugin.calibration.samples import samples_of
from rmsplugin.engine.context.durations import DurationsInUse, MeasuredDuration
from rmsplugin.engine.context.rest import Rest
from rmsplugin.engine.ledger.gathering import reading_all
from rmsplugin.engine.ledger.history import history_in
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.site_ledgers import SiteLedger, site_ledgers
from rmsplugin.errors import LedgerError
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

_DAY_S = 86400.0
#: After a ledger could not be read, it is read again after so many seconds, then after twice as many.
_AGAIN_S = 60.0
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
    fitted = _fitted(ledgers, now, present)
    measured = sum(each.count for each in fitted)
    better = [each for each in fitted if _is_better(each)]
    if not better:
        return f"the durations stay as they are: {measured} actions of {_DAYS} days were measured"
    values = (f"{key} = {value:g} (now {present[key]:g})" for each in better for key, value in each.values().items())
    sentence = f"proposed for [durations]: {', '.join(values)}"
    ledger.event("durations-proposed", f"{sentence}; `rmsplugin calibrate --since {_DAYS}d` has the whole section")
    return sentence


def measuring_ledgers(settings: Settings, ledger: Ledger) -> list[SiteLedger]:
    """The ledgers with what was measured: the settings have one section of durations for all groups.

    ``ledger``: of this engine.
    """
    return site_ledgers(settings) if settings.territory else [SiteLedger(ledger.path)]


class Calibrating:
    """Once a day, where the site has it so, what was measured often enough is used in place of [durations]."""

    def __init__(
        self, settings: Settings, ledger: Ledger, clock: Callable[[], float], durations: DurationsInUse
    ) -> None:
        """Nothing was read yet. ``clock``: seconds since the epoch."""
        self._settings, self._ledger, self._clock, self._durations = settings, ledger, clock, durations
        self._rest = Rest(self._clock, _AGAIN_S, _DAY_S)
        self._read_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether the ledgers are to be read again."""
        if not self._settings.planning.measured_durations:
            return False
        return self._rest.is_over and self._clock() - self._read_at >= _DAY_S

    def measure(self) -> None:
        """Read the ledgers, and use what they say; an event tells of actions that are used now, or no more."""
        durations, now = self._durations, self._clock()
        try:
            fitted = _fitted(measuring_ledgers(self._settings, self._ledger), now, durations.of_settings)
        except LedgerError as error:
            self._rest.begin()
            log.warning("durations are not measured now: %s", error)
            return
        self._rest.end()
        self._read_at, before = now, durations.measured
        durations.measured = {
            each.action: MeasuredDuration(
                each.action, each.values(), each.count, before[each.action].since if each.action in before else now
            )
            for each in fitted
            if each.is_fitted
        }
        if durations.measured.keys() != before.keys():
            used = (_used(each, durations.of_settings) for each in durations.measured.values())
            said = "; ".join(used) or "none was measured often enough: those of the settings count"
            self._ledger.event("durations-measured", f"durations in use: {said}")


def _fitted(ledgers: Sequence[SiteLedger], now: float, present: Mapping[str, float]) -> tuple[Fitted, ...]:
    with reading_all(ledgers) as connection:
        history = history_in(connection, now - _DAYS * _DAY_S)
    return fit(samples_of(history.operations, history.actions), present)


def _used(each: MeasuredDuration, present: Mapping[str, float]) -> str:
    values = ", ".join(f"{key} = {value:g} (set: {present[key]:g})" for key, value in each.values.items())
    return f"{values}, by {each.count} measured"


def _is_better(each: Fitted) -> bool:
    gained_s = each.error_s - each.fitted_error_s
    return each.is_fitted and gained_s >= _BETTER_S and gained_s >= _BETTER * each.error_s
