"""Findings about a log directory: where its files contradict each other or the format."""
