"""podman: vjobs in containers by podman, runc and CRIU, which share the node's kernel; node agents do the acts."""
