"""The values everything else speaks about: nodes, VMs, vjobs, configurations. Pure: no clock, no I/O."""
