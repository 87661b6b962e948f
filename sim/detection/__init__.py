"""Measures how soon random seeds find each planted bug: searches, their processes, and the table of results."""
