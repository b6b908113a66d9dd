"""How the cluster gets from one configuration to another: pure functions to a plan."""
