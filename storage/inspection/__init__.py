"""Readers of a log directory that change nothing: dump, verify, stats."""
