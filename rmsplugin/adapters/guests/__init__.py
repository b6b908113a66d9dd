"""Guests: what the engine does inside a VM; a Protocol, by ssh, and simulated."""
