"""The sidecar: observe, decide, plan, execute, record. The only place that joins pure and impure code."""
