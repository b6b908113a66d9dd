"""Report: the jobs of the live cluster, next to the same jobs as they would have run without context switches."""
