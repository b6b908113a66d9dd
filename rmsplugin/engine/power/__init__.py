"""Power: nodes that nobody uses are switched off, and on again when they are needed."""
