"""Metrics: what the engine has in memory, as Prometheus reads it."""
