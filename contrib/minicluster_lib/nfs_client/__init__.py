"""NFS client in user space: a FUSE file system over NFS 4.1, for machines whose kernel has none. For tests alone."""
