"""Thin, typed access to the world outside: Slurm, libvirt, guests, nodes. One Protocol each."""
