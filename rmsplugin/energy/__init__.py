"""Energy: when a node that nobody uses is worth switching off, and what that saves (RR-7398, section 2.2). Pure."""
