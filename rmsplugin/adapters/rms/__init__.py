"""The resource management system (Slurm): the Protocol, two implementations, and a simulated one."""
