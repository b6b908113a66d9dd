"""The resource management system (Slurm): the Protocol, and two implementations."""
