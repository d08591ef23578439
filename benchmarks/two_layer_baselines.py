"""Time to a gap of 1e-20 on the paper's setting: ours, torch SGD with a tuned step, scipy's L-BFGS, and the closed form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from report import Report, Shown, orthogonal_problem, parser, seconds
from scipy.optimize import minimize

import surefoot as sf

TARGET = 1e-20
SETTINGS, EXPONENTS = ((500, 1.0), (500, 50.0), (4000, 10.0)), np.arange(-5.0, -1.99, 0.125)
"""Width and noise; logarithms of the learning rates that SGD may choose from."""
SMOKE = ((50, 1.0),), np.array([-3.0, -2.0])


def gap(X: torch.Tensor, Y: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> float:
    """½‖XW1W2ᵀ - Y‖² (the optimal value is 0 here)."""
    return 0.5 * float((X @ W1 @ W2.T - Y).square().sum())


def ours(X: torch.Tensor, Y: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> tuple[int, float]:
    """Certificate, descent and final weights."""
    net, loss = sf.nn.TwoLayerLinear(W1, W2), sf.SquaredLoss(X, Y)
    run = sf.descend(net, loss, tolerance=0.0, absolute_tolerance=TARGET, progress=False)
    return run.iterations, gap(X, Y, net.W1.detach(), net.W2.detach())


def uncertified(X: torch.Tensor, Y: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> tuple[int, float]:
    """The engine alone with exact line search: no certificate, no trace."""
    from surefoot._two_layer.engines import GramEngine

    engine, rule = GramEngine(sf.SquaredLoss(X, Y), W1, W2), sf.steps.ExactLineSearch()
    count = 0
    while engine.iterate.gap > TARGET:
        engine.move(rule.step(engine))
        count += 1
    return count, gap(X, Y, *engine.weights().values())


def sgd(
    X: torch.Tensor, Y: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor, lr: float, limit: int = 2000
) -> tuple[int, float]:
    """torch.optim.SGD on the plain module until the loss is at the target or grows."""
    net = sf.nn.TwoLayerLinear(W1, W2)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    value, first = float("inf"), None
    for count in range(limit + 1):
        optimizer.zero_grad()
        objective = 0.5 * (net(X) - Y).square().sum()
        value = float(objective.detach())
        first = value if first is None else first
        if value <= TARGET or not value <= 1e3 * first:
            return count, value
        objective.backward()
        optimizer.step()
    return limit, value


def lbfgs(X: torch.Tensor, Y: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> tuple[int, float]:
    """scipy's L-BFGS-B on all weights with analytic gradients."""
    x, y, n, h = X.numpy(), Y.numpy(), W1.shape[0], W1.shape[1]

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        a, b = z[: n * h].reshape(n, h), z[n * h :].reshape(-1, h)
        residual = x @ (a @ b.T) - y
        g = x.T @ residual
        return 0.5 * float((residual**2).sum()), np.concatenate([(g @ b).ravel(), (g.T @ a).ravel()])

    start = np.concatenate([W1.numpy().ravel(), W2.numpy().ravel()])
    result = minimize(
        objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 0.0, "gtol": 1e-14}
    )
    return int(result.nit), float(result.fun)


def closed_form(X: torch.Tensor, Y: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> tuple[int, float]:
    """Least squares, and a balanced factorisation by SVD (other weights than gradient descent reaches)."""
    W = torch.linalg.lstsq(X, Y).solution
    U, s, Vh = torch.linalg.svd(W)
    A, B = torch.zeros_like(W1), torch.zeros_like(W2)
    A[:, : len(s)], B[:, : len(s)] = U * s.sqrt(), Vh.T * s.sqrt()
    return 0, gap(X, Y, A, B)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table for each setting."""
    report = Report(parser(__doc__), arguments)
    settings, exponents = SMOKE if report.smoke else (SETTINGS, EXPONENTS)
    for width, noise in settings:
        problem = orthogonal_problem(width, noise, seed=0)
        grid = [10.0**e for e in exponents]
        results = [(sgd(*problem, lr), lr) for lr in grid]
        (_, _), best = min((r for r in results if r[0][1] <= TARGET), key=lambda r: r[0][0], default=results[0])
        rows: list[list[object]] = []
        reference = seconds(lambda p=problem: ours(*p), 3)
        for name, work in (
            ("certified-bb: certificate, run, trace", ours),
            ("exact line search, Gram space, no certificate", uncertified),
            (f"torch SGD, best lr of {len(grid)} ({best:.2g})", lambda *p, lr=best: sgd(*p, lr)),
            ("scipy L-BFGS-B", lbfgs),
            ("closed form (other weights)", closed_form),
        ):
            count, reached = work(*problem)
            took = seconds(lambda w=work, p=problem: w(*p), 3)
            rows.append([name, count, Shown(reached, "{:.1e}"), took * 1e3, Shown(took / reference, "{:.2f}x")])
        report.table(
            f"Time to a gap of {TARGET:g}, n = m = 10, h = {width}, noise {noise:g}",
            ["method", "iterations", "gap reached", "ms", "time / ours"],
            rows,
        )


if __name__ == "__main__":
    main()
