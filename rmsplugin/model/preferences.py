"""Preferences: the words by which an operator prefers something about a vjob; the last one takes it back."""

PREFERENCES = ("running", "sleeping", "auto")
