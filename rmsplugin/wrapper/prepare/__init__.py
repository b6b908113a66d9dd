"""The program `prepare`, which puts together what the start of the script needs in the guest."""
