"""Model: the values that all other packages use: nodes, VMs, vjobs, configurations. Pure: no clock, no I/O."""
