"""The API: requests, the callers' rights, and the answers."""
