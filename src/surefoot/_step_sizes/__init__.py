"""Learned step sizes: a network proposes a step for every coordinate, within a range that theorems cover."""
