"""Runs a scenario against real processes: nodes and clients of their own, with a proxy on each link between them."""
