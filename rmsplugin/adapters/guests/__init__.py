"""Guests: what the engine does inside a VM; a Protocol, and ssh behind it."""
