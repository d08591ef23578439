"""Optimisation over matrices with orthonormal columns, and the singular value decomposition by it."""
