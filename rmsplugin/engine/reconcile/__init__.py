"""Vjobs are made to agree with the world."""
