"""Problem: many least-squares or LASSO problems of one kind. Method: step sizes that a network chooses for each coordinate.

Guarantee: with steps in [0, 2]/β the objective never increases, whatever the weights of the network; training cannot break it.
What it means: the guarantee is safety, not speed. The tables show the methods without learning beside the learned one, also on
problems that nothing was trained on: least squares belongs to conjugate gradients (CGLS); on LASSO learning can pay.
"""

import surefoot as sf


def least_squares(seed: int) -> sf.learned.LeastSquares:
    """16 problems with 20 rows and 32 columns."""
    return sf.learned.LeastSquares.random(16, 20, 32, seed=seed)


def lasso(seed: int) -> sf.learned.Lasso:
    """8 problems with 40 rows and 80 columns, 10 % of the coordinates not zero."""
    return sf.learned.Lasso.random(8, 40, 80, seed=seed)


# Least squares: train the steps on 16 problems, compare on 3 fresh sets
net = sf.nn.StepSizeNet.orthogonal((2, 2, 64), range=(1.5, 1.95), expansion=50.0)
problems = least_squares(0)
print(sf.learned.train(net, problems, "armijo", epochs=5, iterations=50))
comparison = sf.learned.compare(problems, 50, net, fresh=lambda k: least_squares(1000 + k), sets=3)
print(comparison)
comparison.plot("least_squares.png")

# The guarantee, on fresh problems: no iteration raised the objective
objectives = net.solve(least_squares(2000), 50).objectives
assert bool((objectives[1:] <= objectives[:-1] * (1.0 + 1e-12)).all())

# LASSO: the learned solver proposes, and a step is taken only where it is proved to be as good as the safe one
solver = sf.learned.LassoSolver()
comparison = sf.learned.compare(lasso(0), 40, solver, fresh=lambda k: lasso(1000 + k), sets=2)
print(comparison)
learned, fista = (comparison[name].fresh for name in ("LassoSolver", "restarted FISTA"))
assert learned is not None and fista is not None and learned.gap < fista.gap
