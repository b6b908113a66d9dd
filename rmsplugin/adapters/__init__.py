"""Adapters: thin, typed access to Slurm, libvirt, guests and nodes; one Protocol each."""
