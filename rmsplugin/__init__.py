"""rmsplugin: cluster-wide context switches of virtualised jobs (vjobs) for Slurm."""

__version__ = "0.1.0"
