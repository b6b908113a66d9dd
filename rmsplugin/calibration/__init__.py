"""Calibration: the model of durations fitted to what was measured, and context switches against their ideal. Pure."""
