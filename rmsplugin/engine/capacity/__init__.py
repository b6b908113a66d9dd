"""The CPUs and memory that VMs take, and that their hosts have."""
