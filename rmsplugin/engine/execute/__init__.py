"""Steps of a context switch, and the operations that carry them out."""
