"""The program `prepare`, which makes the files for the start of the script in the guest."""
