"""Who waits, and what can be decided about."""
