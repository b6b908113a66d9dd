"""Hypervisors of the nodes: the Protocol, and libvirt behind it."""
