"""Libvirt as a platform: one module a part; ``platform.py`` has what the engine calls."""
