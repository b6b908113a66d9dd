"""Simulated node agents, on the state files of a simulated hypervisor."""
