"""Simulated neighbours: in memory, failing on command, for tests alone. Nothing that a site runs imports one."""
