"""The viewer: reads the trace of a run and writes it as one HTML page that needs nothing else."""
