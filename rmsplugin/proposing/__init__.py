"""Proposing: from a configuration to one context switch (decide, place, plan, order), and the check of it. Pure.

`rmsplugin plan`, the simulator and the daemon call the same ``propose``; it belongs to none of them. No module but
``propose`` imports a solver, so that a process which only asks for proposals stays small.
"""
