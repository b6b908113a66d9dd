"""Coordination: how several engines agree on who acts. The Protocol, and one module for each kind."""
