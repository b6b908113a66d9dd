"""The program `attach`, which stays on the front as long as the job does; it is to be small."""
