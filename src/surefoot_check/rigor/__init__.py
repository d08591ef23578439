"""The arithmetic that is trusted: rounding, bounds of norms and singular values, exact integers."""
