"""native: vjobs as plain jobs of Slurm, paused and continued by ``scontrol suspend|resume`` where they are."""
