"""What VMs take, and what their hosts have."""
