"""Learned matrix inverses: unrolled polynomial iterations, their coefficients, training and certificates."""
