"""Makes vjobs agree with the world."""
