"""The live page: nodes, VMs, queue and context switches as one HTML document, made on the engine's host."""
