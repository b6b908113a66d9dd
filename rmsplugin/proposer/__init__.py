"""Proposer: ``propose`` in a process of its own, which may crash, hang or eat memory at the cost of one cycle.

``child`` is the program that runs there, ``process`` holds one such process, ``proposer`` keeps one warm and falls back
to First Fit Decreasing if it fails, ``wire`` has their messages to each other. See docs/decisions/0017.
"""
