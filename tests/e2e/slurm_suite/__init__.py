"""Slurm's own test suite, of a checkout that somebody names, in the native partition and in that of vjobs."""
