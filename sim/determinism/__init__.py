"""Proves that a seed is one run: every seed runs twice, in two interpreters that differ in all that must not matter."""
