"""In which order: the pools of a plan that leads from a configuration to a target, and what its actions wait for."""
