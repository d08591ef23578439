"""Prescribed steps of two-layer networks: the recursion of docs/theorems/two-layer-prescribed.md, and exact descent."""

from __future__ import annotations

from collections.abc import Mapping

import mpmath
from mpmath import mp, mpf

from . import blocks
from .losses import Arrays, loss_of
from .reference import UNIT, Matrix, Reference, eigenvalues, exact, frobenius, norm, root_of_squares, solve


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    """The initial gap, the bounds for the published s² and steps, each with the gap of exact descent, and their factor in a
    repetition of the last."""
    loss, W1, W2 = loss_of(kind, problem), exact(weights["W1"]), exact(weights["W2"])
    scale, steps, cycled = mpf(published["scale"]), sequence(published, "step"), sequence(published, "cycle")
    gap, size = loss.gap(W1 * W2.T), norm(W1) ** 2 + norm(W2) ** 2
    references = {"initial_gap": Reference(gap, loss.gap_slack(gap, size))}
    X, Y = exact(problem["X"]), exact(problem["Y"])
    # what rounding moves the gap of a run by: the map by some units of its products, as is the room that is published
    room = 1e4 * loss.smoothness.value * (UNIT * (scale + norm(loss.optimum))) ** 2
    bounds, state = recursion(X, Y, W1, W2, scale, steps) if steps else ([], measured(X, Y, W1, W2, scale))
    if cycled:
        spectrum, star = eigenvalues(X.T * X), norm(solve(X.T * X, X.T * Y)) / scale
        rho, c = blocks.cycle(state, [2 * scale * step for step in cycled], spectrum[-1], spectrum[0], star)
        bounds = [*bounds, *(scale**2 / 2 * x**2 for x in rho[1:])]
        references["cycle_factor"] = Reference(c**2, 1e-6 * c**2, contained=False)
    reached = gaps(loss, X, Y, W1, W2, [*steps, *cycled])
    for t, (value, seen) in enumerate(zip(bounds, reached, strict=True), 1):
        slack = 1e-6 * value + 2 * mp.sqrt(value * room) + room
        references[f"bound[{t}]"] = Reference(value, slack, contained=False, attained=seen)
    return references


def sequence(published: Mapping[str, float], name: str) -> list[mpf]:
    """The published numbers name[0], name[1], …"""
    return [mpf(published[f"{name}[{t}]"]) for t in range(sum(key.startswith(f"{name}[") for key in published))]


def measured(X: Matrix, Y: Matrix, W1: Matrix, W2: Matrix, scale: mpf) -> blocks.State:
    """The state of any weights."""
    H = X.T * X
    w, star = W1 * W2.T / scale, solve(H, X.T * Y) / scale
    R1 = W1 * W1.T / scale - mpmath.eye(W1.rows) - w * w.T / 2
    R2 = W2 * W2.T / scale - mpmath.eye(W2.rows) - w.T * w / 2
    e = w - star
    return blocks.with_edges(frobenius(X * e), frobenius(e), norm(w), frobenius(R1), frobenius(R2), mpf(0))


def gaps(loss: object, X: Matrix, Y: Matrix, W1: Matrix, W2: Matrix, steps: list[mpf]) -> list[mpf]:
    """Of gradient descent after each step."""
    found = []
    for step in steps:
        g = X.T * (X * W1 * W2.T - Y)
        W1, W2 = W1 - step * g * W2, W2 - step * g.T * W1
        found.append(loss.gap(W1 * W2.T))
    return found


def recursion(
    X: Matrix, Y: Matrix, W1: Matrix, W2: Matrix, scale: mpf, steps: list[mpf]
) -> tuple[list[mpf], blocks.State]:
    """Theorem A, from weights that need not be orthonormal, as the page writes it; and the state at its end."""
    H = X.T * X
    lam, V = mpmath.eigsy(H) if H.rows > 1 else (H, mpmath.eye(1))
    n, count = H.rows, len(steps)
    rows = V.T * solve(H, X.T * Y) / scale
    w0 = W1 * W2.T / scale
    K1, K2 = (frobenius(W * W.T / scale - mpmath.eye(W.rows)) for W in (W1, W2))
    tau, length = [2 * scale * step for step in steps], [root_of_squares(rows[i, :]) for i in range(n)]
    P = [[mpf(1)] * n]
    for step in tau:
        P.append([p * (1 - step * lam[i]) for i, p in enumerate(P[-1])])

    def of(c: list[mpf]) -> mpf:
        """‖w*ᵀ diag(c) w*‖."""
        return norm(rows.T * mpmath.diag(c) * rows)

    maps = [mp.sqrt(of([(1 - p) ** 2 for p in row])) for row in P]
    gamma = [[step * lam[i] * p / 2 for i, p in enumerate(row)] for step, row in zip(tau, P[:-1], strict=True)]
    alpha = [mp.sqrt(of([c * c for c in row])) for row in gamma]
    away = frobenius(w0)
    X1, X2 = K1 + away**2 / 2, K2 + away**2 / 2
    u, x = [away] * n, [X1] * n
    total, g, a, d, bounds = mpf(0), [], [], [], []
    for t, step in enumerate(tau):
        rest = [abs(P[t][i]) * length[i] + u[i] for i in range(n)]
        g.append([step * lam[i] * rest[i] / 2 for i in range(n)])
        d.append(step / 2 * root_of_squares(lam[i] * u[i] for i in range(n)))
        a.append(alpha[t] + d[t])
        moved = root_of_squares(u)
        omega = maps[t] + moved
        k1, k2 = (max(omega**2 / 2, total) + X for X in (X1, X2))
        cross = of([(1 - p) * c for p, c in zip(P[t], gamma[t], strict=True)])
        q = min(omega * a[t], cross + maps[t] * d[t] + moved * a[t])
        N = [g[t][i] * (k2 + q) + (abs(1 - P[t][i]) * length[i] + u[i]) * q / 2 + x[i] * a[t] for i in range(n)]
        for j in range(t):
            both = of([b * c for b, c in zip(gamma[j], gamma[t], strict=True)])
            h = min(a[j] * a[t], both + alpha[j] * d[t] + d[j] * a[t])
            N = [N[i] + h * g[j][i] for i in range(n)]
        size = root_of_squares(N)
        u = [abs(1 - step * lam[i]) * u[i] + N[i] for i in range(n)]
        omega = maps[t + 1] + root_of_squares(u)
        after = [abs(1 - P[t + 1][i]) * length[i] + u[i] for i in range(n)]
        x = [x[i] + g[t][i] * k2 * a[t] + (N[i] * omega + after[i] * size + N[i] * size) / 2 for i in range(n)]
        X1, X2 = (X + a[t] ** 2 * k + size * omega + size**2 / 2 for X, k in ((X1, k2), (X2, k1)))
        total += a[t] ** 2
        rest = [abs(P[t + 1][i]) * length[i] + u[i] for i in range(n)]
        rho = mp.sqrt(mpmath.fsum(lam[i] * rest[i] ** 2 for i in range(n)))
        bounds.append(scale**2 / 2 * rho**2)
    assert len(bounds) == count
    return bounds, blocks.with_edges(rho, root_of_squares(rest), omega, X1, X2, total)
