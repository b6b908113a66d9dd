"""Rooms, nodes that VMs leave, checkpoints, and the gate."""
