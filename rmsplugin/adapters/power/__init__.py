"""Power: orders to the nodes' BMCs, and what they say of themselves. A BMC is the controller that switches a node."""
