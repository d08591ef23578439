"""The frame in which learned solvers are trained: the loop, its optimisers, losses that the ranks of a job share, and files."""
