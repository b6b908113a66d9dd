"""The small guest of the minicluster: a Debian kernel, busybox, bash and dropbear in an initial file system."""
