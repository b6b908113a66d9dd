"""Which hosts: the target with the cheapest plan, and how far from the best it can be."""
