"""Files on the nodes: the Protocol of the node agents, and ssh behind it."""
