"""Benchmarks: what the decision, the packing, the placement and the plans cost and are worth, next to something else."""
