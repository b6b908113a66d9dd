"""The job wrapper: the interpreter that Slurm runs on the batch host in place of the user's script."""
