"""The simulated world: one seed, one run, byte for byte."""
