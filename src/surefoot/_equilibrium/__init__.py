"""A layer whose output is the fixed point of any map: solvers, implicit derivatives and the transforms of torch."""
