"""The vjobs that wait, and the configuration that can be decided about."""
