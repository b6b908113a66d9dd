"""The connection to VM 0: the script, its streams, its steps and its commands."""
