"""Simulation: what becomes of a workload on a cluster under a policy, in virtual time. Pure."""
