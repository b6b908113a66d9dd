"""A simulated hypervisor: nodes, VMs and state files of a cluster in memory."""
