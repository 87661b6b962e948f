"""Runs a cluster of several nodes on one machine: `replog up` and `replog nodes`."""
