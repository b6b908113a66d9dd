"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# No test may fail because the machine is busy. All else is as Hypothesis has it, here and in CI.
settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")
