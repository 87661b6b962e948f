"""Verification of a log directory: where its files contradict each other or their format."""
