"""The program `carry_out`, which runs Slurm's clients on this host for requests from the VM."""
