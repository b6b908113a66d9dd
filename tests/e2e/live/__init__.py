"""Faults on a real minicluster of two controllers, for hours: who dies, what follows, and was anything lost."""
