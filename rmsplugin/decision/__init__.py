"""Decision: chooses the vjobs that run: pure functions from a configuration and a queue to a decision."""
