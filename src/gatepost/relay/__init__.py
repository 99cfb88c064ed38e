"""Two transports, back-pressure, nothing else."""
