"""Guests: the engine's actions inside a VM; a Protocol, and ssh behind it."""
