"""A simulated Slurm: its jobs, nodes and priorities in memory."""
