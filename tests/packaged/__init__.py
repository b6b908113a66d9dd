"""The Debian packages, installed into roots that are thrown away."""
