"""Platforms: the programs that run the nodes' VMs. The Protocol, the factory, and a package for each platform."""
