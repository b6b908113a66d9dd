"""One proposal a cycle, applied."""
