"""Patience: how much longer than on two CPUs of its own the campaign waits for anything."""

from __future__ import annotations

import os

VARIABLE = "REAL_SITE_PATIENCE"


def patient(bound_s: float) -> float:
    """The bound, in seconds, on this machine."""
    return bound_s * float(os.environ.get(VARIABLE, "1"))
