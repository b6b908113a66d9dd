"""Files on the nodes: the Protocol of the node agents, ssh behind it, and a simulated one."""
