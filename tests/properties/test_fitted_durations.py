"""For every model, noise and outliers: the fit finds what the samples were made of, and is no worse than what was."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.calibration.fit import ENOUGH, fit
from rmsplugin.calibration.samples import Sample
from rmsplugin.model.durations import DEFAULTS

SIZES = [256, 512, 1024, 2048, 4096, 8192]


@given(
    constant=st.floats(0.5, 60),
    slope=st.floats(0.0005, 0.2),
    count=st.integers(60, 200),
    outliers=st.floats(0, 0.25),
    seed=st.integers(0, 2**32),
)
def test_known_coefficients_come_back_from_noisy_samples_with_outliers(
    constant: float, slope: float, count: int, outliers: float, seed: int
) -> None:
    chance = random.Random(seed)
    samples = []
    for number in range(count):
        mib = SIZES[number % len(SIZES)]
        seconds = (constant + slope * mib) * chance.uniform(0.97, 1.03)
        samples.append(Sample(seconds * chance.uniform(3, 50) if chance.random() < outliers else seconds, mib))
    found = next(each for each in fit({"suspend": samples}, DEFAULTS) if each.action == "suspend")
    for mib in SIZES:
        expected = constant + slope * mib
        assert abs(found.fitted.at(mib) - expected) <= 0.12 * expected + 0.05 * (constant + slope * SIZES[-1])


@given(
    samples=st.lists(
        st.builds(Sample, st.floats(0.001, 1e5, allow_subnormal=False), st.floats(0, 1e6, allow_subnormal=False)),
        min_size=ENOUGH,
        max_size=60,
    ),
    name=st.sampled_from(["migrate", "suspend", "resume", "remote_resume"]),
)
def test_whatever_was_measured_nothing_is_below_zero_and_the_fit_is_no_worse(samples: list[Sample], name: str) -> None:
    found = next(each for each in fit({name: samples}, DEFAULTS) if each.action == name)
    assert found.fitted.constant_s >= 0
    assert found.fitted.s_per_mib >= 0
    if not found.note:  # both numbers are free
        present, fitted = (
            sum(abs(sample.seconds - line.at(sample.mib)) for sample in samples)
            for line in (found.present, found.fitted)
        )
        assert fitted <= present * (1 + 1e-6) + 1e-6
