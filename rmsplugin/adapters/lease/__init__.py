"""Leases: the right to act as the engine. The Protocol, and one module for each kind."""
