"""Weights as one flat vector, random numbers, registries, errors and the protocols of all parts."""
