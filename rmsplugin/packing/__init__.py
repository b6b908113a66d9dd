"""Packing: which VMs fit on which nodes: pure functions, shared by decision and planning."""
