"""Deep linear ResNets f(x) = B (I+W_L) … (I+W_1) A x with fixed A and B."""
