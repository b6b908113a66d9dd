"""What is done at times of day: the jobs of the schedule, their runs, and the scheduler."""
