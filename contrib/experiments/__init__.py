"""The papers' experiments, repeated in virtual time; run them by contrib/run-experiment."""
