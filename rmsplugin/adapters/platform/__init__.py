"""Platforms: what runs the VMs of the nodes. The Protocol, the factory, and a package for each platform."""
