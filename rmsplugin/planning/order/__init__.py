"""Order: the pools of a plan that leads from a configuration to a target, and the waits of its actions."""
