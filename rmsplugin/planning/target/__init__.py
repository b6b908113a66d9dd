"""Target: the hosts with the cheapest plan, and the distance of the plan from the best one."""
