"""On the node: the half of libvirt that node agent and room hooks need, of the standard library alone."""
