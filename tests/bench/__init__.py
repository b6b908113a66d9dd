"""Benchmarks: what decision, packing, placement and plans cost and are worth, next to something else."""
