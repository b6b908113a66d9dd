"""Hypervisors of the nodes: the Protocol, libvirt behind it, and a simulated one."""
