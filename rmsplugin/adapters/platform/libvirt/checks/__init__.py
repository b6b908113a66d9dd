"""Checks: what `rmsplugin check` says of libvirt on the nodes, as pure rules on facts."""
