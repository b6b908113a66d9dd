"""The program `carry_out`, which runs the client of Slurm that was asked for in the VM."""
