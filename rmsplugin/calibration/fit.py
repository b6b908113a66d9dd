"""Fit: the durations that agree best with the measurements. Pure.

The model of an action is a constant and an amount for each MiB. It is fitted by least absolute deviations: half of the
samples may be later than the line, by however much, and a node that was busy with other work does not bend it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.calibration.samples import Sample
from rmsplugin.model.durations import DEFAULTS, growing, names

#: With fewer samples of an action its present durations stay.
ENOUGH = 10
#: The number of newest samples of each action that are fitted.
NEWEST = 2000
#: Sizes that differ by less than this factor do not separate the constant from the part that grows.
_ONE_SIZE = 1.25
#: The number of halvings of the slope's interval, roughly: far more exact than a clock.
_STEPS = 80
#: A sum of deviations that is greater by less than this is no worse.
_AS_GOOD = 1 + 1e-9
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Line:
    """The duration of an action: ``constant_s``, and ``s_per_mib`` for each MiB."""

    constant_s: float
    s_per_mib: float = 0.0

    def at(self, mib: float) -> float:
        """The seconds for so many MiB."""
        return self.constant_s + self.s_per_mib * mib


@dataclass(frozen=True, slots=True)
class Fitted:
    """One action as it was measured, beside the model as it is and as it fits.

    Attributes:
        action: as in the keys of section [durations]: run, remote_resume, ...
        count: the number of samples.
        median_s: the median of the samples; 0 without samples, as the next three.
        p95_s: 95 of 100 samples were not longer.
        error_s: median of the absolute differences between samples and the present model.
        fitted_error_s: the same for the fitted model.
        present: the model as it is.
        fitted: the model as it fits; the present one where there are too few samples.
        note: the reason why not both numbers were fitted; else empty.
        is_fitted: whether there were enough samples.
    """

    action: str
    count: int
    median_s: float
    p95_s: float
    error_s: float
    fitted_error_s: float
    present: Line
    fitted: Line
    note: str
    is_fitted: bool

    def values(self) -> dict[str, float]:
        """The keys and values of section [durations], to three digits where they were fitted."""
        line = Line(_rounded(self.fitted.constant_s), _rounded(self.fitted.s_per_mib))
        line = line if self.is_fitted else self.fitted
        values = {f"{self.action}_s": line.constant_s}
        return {**values, f"{self.action}_s_per_mib": line.s_per_mib} if self.action in growing() else values


def fit(
    samples: Mapping[str, Sequence[Sample]], present: Mapping[str, float] = DEFAULTS, enough: int = ENOUGH
) -> tuple[Fitted, ...]:
    """Fit the durations of all actions.

    Args:
        samples: by action, oldest first.
        present: keys and values of section [durations].
        enough: with fewer samples of an action its present durations stay; at least 1.

    Returns:
        One Fitted for each action, in the order of the section.
    """
    newest = {name: list(samples.get(name, ()))[-NEWEST:] for name in names()}
    return tuple(_fit(name, own, _present(name, present), enough) for name, own in newest.items())


def _present(name: str, values: Mapping[str, float]) -> Line:
    return Line(values[f"{name}_s"], values[f"{name}_s_per_mib"] if name in growing() else 0.0)


def _fit(name: str, samples: Sequence[Sample], present: Line, enough: int) -> Fitted:
    if len(samples) < enough:
        fitted, note = present, f"kept: {len(samples)} measured, {enough} are needed"
    elif name in growing():
        fitted, note = _line(samples, present)
    else:
        fitted, note = Line(statistics.median(sample.seconds for sample in samples)), ""
    seconds = sorted(sample.seconds for sample in samples)
    return Fitted(
        action=name,
        count=len(samples),
        median_s=statistics.median(seconds) if seconds else 0.0,
        p95_s=seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))] if seconds else 0.0,
        error_s=_error(samples, present),
        fitted_error_s=_error(samples, fitted),
        present=present,
        fitted=fitted,
        note=note,
        is_fitted=len(samples) >= enough,
    )


def _error(samples: Sequence[Sample], line: Line) -> float:
    return statistics.median([abs(sample.seconds - line.at(sample.mib)) for sample in samples] or [0.0])


def _line(samples: Sequence[Sample], present: Line) -> tuple[Line, str]:
    """The line through the samples, and a note if they do not determine it."""
    sizes = sorted(sample.mib for sample in samples)
    tenth = len(sizes) // 10
    if sizes[-1 - tenth] >= _ONE_SIZE * max(1.0, sizes[tenth]):
        return _least_deviations(samples), ""
    usual = statistics.median(sample.seconds for sample in samples)
    expected = present.at(statistics.median(sizes))
    if not expected:
        return Line(usual), "of one size: all is taken to be constant"
    factor = usual / expected
    return Line(factor * present.constant_s, factor * present.s_per_mib), "of one size: both were scaled"


def _least_deviations(samples: Sequence[Sample]) -> Line:
    """The line, with neither number below 0, that has the least sum of absolute deviations.

    For a given slope the best constant is the median of the rests, and the sum at the best constant is convex in the
    slope: a golden section finds its minimum.
    """

    def best(slope: float) -> tuple[float, float]:
        left = [sample.seconds - slope * sample.mib for sample in samples]
        constant = max(0.0, statistics.median(left))
        return sum(abs(each - constant) for each in left), constant

    low, high = 0.0, max(sample.seconds / max(1.0, sample.mib) for sample in samples)
    for _ in range(_STEPS):
        width = _GOLDEN * (high - low)
        if best(high - width)[0] <= best(low + width)[0]:
            high = low + width
        else:
            low = high - width
    # Where nothing grows, the section ends at a slope of almost 0.
    slope = 0.0 if best(0.0)[0] <= best(low)[0] * _AS_GOOD else low
    return Line(best(slope)[1], slope)


def _rounded(value: float) -> float:
    """The value to three significant digits."""
    return float(f"{value:.3g}")
