"""Makes one proposal a cycle, and applies it."""
