"""Infinite-depth ReLU networks z = relu(γzA + relu(xW)): their equilibrium, its derivatives, and training with a certificate."""
