"""Draws the plan of faults of a scenario: kinds of faults, the shape of the plan, and the time of each fault."""
