"""The connection to VM 0: what goes over it to the script, its streams, its steps and its commands."""
