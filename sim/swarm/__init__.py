"""Draws whole runs from a seed and runs many of them: topology, settings, workload, network and a plan of faults."""
