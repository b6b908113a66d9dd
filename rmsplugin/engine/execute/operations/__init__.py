"""The operations on a vjob. Each can be begun again from any point at which it was interrupted."""
