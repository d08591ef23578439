"""Networks of layers that are convex combinations of safe steps, trained one convex problem after the other."""
