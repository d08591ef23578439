"""LASSO: networks that unroll ISTA, and a learned solver with a safeguard."""
