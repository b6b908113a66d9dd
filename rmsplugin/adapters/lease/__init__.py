"""Leases: who may act as the engine. The Protocol, and one module for each kind."""
