"""The simulator: runs the product in a simulated world; two runs with the same seed are equal, byte for byte."""
