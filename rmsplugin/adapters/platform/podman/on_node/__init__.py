"""On the node: the half of podman that node agent and room hooks need, of the standard library alone."""
