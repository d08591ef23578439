"""Two-layer linear networks f(X) = X W1 W2ᵀ."""
