"""Simulation: the course of a workload on a cluster under a policy, in virtual time. Pure."""
