"""Report: what happened on the live cluster, next to what the same jobs would have done without context switches."""
