"""Buggify points: small perturbations of effects, inputs and settings at the ports of simulated hosts."""
