"""The same job in a native partition and in one of vjobs: cases, what a user sees of each, and what differs."""
