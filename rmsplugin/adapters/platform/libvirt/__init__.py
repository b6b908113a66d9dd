"""Libvirt as a platform: one module a part; ``platform.py`` has the engine's calls."""
