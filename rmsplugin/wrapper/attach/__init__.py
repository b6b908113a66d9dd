"""The program `attach`, which stays on the front as long as the job does; it has to be small."""
