"""Planning: finds the way of the cluster from one configuration to another: pure functions to a plan."""
