"""Workload: jobs that were once submitted somewhere, read from a trace in the Standard Workload Format. Pure."""
