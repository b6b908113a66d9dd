"""Calibration: fits the model of durations to measurements, and compares context switches with their ideal. Pure."""
