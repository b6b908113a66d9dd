"""The minicluster: a real Slurm, libvirt and QEMU cluster on one machine, each host in namespaces of its own."""
