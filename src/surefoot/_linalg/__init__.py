"""Differentiable linear algebra: what ``surefoot.linalg`` re-exports and what the learned solvers share."""
