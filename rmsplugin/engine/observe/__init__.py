"""One look at the cluster, and what it proves."""
