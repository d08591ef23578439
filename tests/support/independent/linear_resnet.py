"""Deep linear ResNets f(x) = B P_L … P_1 A x, P_l = I + W_l: the table, Lemma 1, 2 and 3 of docs/theorems/linear-resnet.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import mpmath
import numpy as np
from mpmath import mp, mpf

from .batches import bound_of_norm_square, every_batch, largest_norm_square
from .losses import Arrays, loss_of
from .reference import (
    UNIT,
    Array,
    Matrix,
    Reference,
    eigenvalues,
    exact,
    frobenius,
    norm,
    of_norms,
    singular_values,
    solve,
)

SHARP = mpf("1.0400001")
"""Norms of products of two and more layers are measured up to this factor."""
SAMPLES = 3
NEARLY = 1 - mpf(10) ** -50

Values = list[mpf]


def last(A: Matrix, rank: int) -> mpf:
    """The singular value number ``rank``, 0 where there are fewer."""
    values = singular_values(A)
    return values[rank - 1] if rank <= len(values) else mpf(0)


@dataclass(frozen=True)
class Layers:
    """The matrices of the table at given weights; lists over l = 1 … L."""

    A: list[Matrix]
    B: list[Matrix]
    P: list[Matrix]

    @classmethod
    def of(cls, inputs: Matrix, weights: Mapping[str, Array], W: list[Matrix]) -> Layers:
        """For inputs as columns."""
        P = [mpmath.eye(layer.rows) + layer for layer in W]
        A, B = [exact(weights["A"]) * inputs], [exact(weights["B"])]
        for layer in P[:-1]:
            A.append(layer * A[-1])
        for layer in P[:0:-1]:
            B.append(B[-1] * layer)
        return cls(A, B[::-1], P)

    def between(self, i: int, j: int) -> Matrix:
        """M_ij for i < j, counted from 0."""
        return reduce(lambda value, layer: layer * value, self.P[i + 1 : j], mpmath.eye(self.P[0].rows))


@dataclass(frozen=True)
class Measured:
    """Largest, and r-th, k-th and last singular values of A_l, B_l and P_l, and ‖M_ij‖ for i < j."""

    a: Values
    a_low: Values
    b: Values
    b_low: Values
    p: Values
    p_low: Values
    m: dict[tuple[int, int], mpf]

    @classmethod
    def of(cls, layers: Layers) -> Measured:
        depth = range(len(layers.P))
        return cls(
            [norm(A) for A in layers.A],
            [last(A, A.cols) for A in layers.A],
            [norm(B) for B in layers.B],
            [last(B, B.rows) for B in layers.B],
            [norm(P) for P in layers.P],
            [singular_values(P)[-1] for P in layers.P],
            {(i, j): norm(layers.between(i, j)) for j in depth for i in range(j)},
        )

    def in_floats(self, size_A: Values, size_B: Values) -> Measured:
        """The same as far outwards as floats may put it; ``size_A``, ``size_B`` bound what the A_l and B_l were computed from."""

        def up(values: Values, sizes: Values) -> Values:
            return [v + of_norms(v, s, 1e-9) for v, s in zip(values, sizes, strict=True)]

        def down(values: Values, sizes: Values) -> Values:
            return [max(v - of_norms(v, s, 1e-9), mpf(0)) for v, s in zip(values, sizes, strict=True)]

        return replace(
            self,
            a=up(self.a, size_A),
            a_low=down(self.a_low, size_A),
            b=up(self.b, size_B),
            b_low=down(self.b_low, size_B),
            p=up(self.p, self.p),
            p_low=down(self.p_low, self.p),
            m={(i, j): v * (SHARP if j - i > 2 else 1 + mpf(10) ** -9) for (i, j), v in self.m.items()},
        )


@dataclass(frozen=True)
class Constants:
    """μ = Σw², Σz², λ_max(M)."""

    pl_constant: mpf
    gauss_newton: mpf
    bilinear: mpf


def constants(measured: Measured, radius: mpf) -> Constants:
    """Lemma 3 with ρ_l = ∞ and the joint radius."""
    layers = range(len(measured.a))
    a_bar, b_bar, m_bar = list(measured.a), list(measured.b), dict(measured.m)

    def root(terms: list[mpf]) -> mpf:
        return mp.sqrt(mpmath.fsum(t * t for t in terms))

    delta, epsilon = [mpf(0)] * len(measured.a), [mpf(0)] * len(measured.a)
    for j in layers:
        delta[j] = radius * root([measured.m[i, j] * a_bar[i] for i in range(j)])
        a_bar[j] += delta[j]
    for i in reversed(layers):
        epsilon[i] = radius * root([b_bar[j] * measured.m[i, j] for j in layers if j > i])
        b_bar[i] += epsilon[i]
    for j in layers:
        for i in range(j - 1):
            m_bar[i, j] += radius * root([measured.m[t, j] * m_bar[i, t] for t in range(i + 1, j)])

    def product(without: tuple[int, ...]) -> mpf:
        p = [measured.p[t] for t in layers if t not in without]
        if not all(p):
            return mp.inf
        return measured.b[-1] * measured.a[0] * mpmath.fprod(p) * mp.exp(radius * root([1 / x for x in p]))

    def product_below(layer: int) -> mpf:
        p = [measured.p_low[t] for t in layers if t != layer]
        if not all(p):
            return mpf(0)
        return (
            measured.b_low[-1]
            * measured.a_low[0]
            * mpmath.fprod(p)
            * max(1 - radius * root([1 / x for x in p]), mpf(0))
        )

    z = [min(b_bar[i] * a_bar[i], product((i,))) for i in layers]
    w = [
        max(max(measured.b_low[i] - epsilon[i], mpf(0)) * max(measured.a_low[i] - delta[i], mpf(0)), product_below(i))
        for i in layers
    ]
    M = mpmath.zeros(len(z))
    for i, j in measured.m:
        M[i, j] = M[j, i] = min(b_bar[j] * m_bar[i, j] * a_bar[i], product((i, j)))
    return Constants(mpmath.fsum(x * x for x in w), mpmath.fsum(x * x for x in z), eigenvalues(M)[0])


def at_point(measured: Measured) -> Constants:
    """Σσ_k(B_l)²σ_r(A_l)², Σ‖B_l‖²‖A_l‖² and λ_max of ‖B_j‖‖M_ij‖‖A_i‖ at the weights themselves."""
    return constants(measured, mpf(0))


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    if kind == "fitted":
        return of_batches(kind, problem, weights, published)
    loss, A, B, X = loss_of(kind, problem), exact(weights["A"]), exact(weights["B"]), exact(problem["X"])
    W = [exact(layer) for layer in weights["W"]]
    centre = Layers.of(X.T, weights, W)
    p, gap = [norm(P) for P in centre.P], loss.gap(end_to_end(centre, weights))
    size_A = [norm(A) * norm(X) * mpmath.fprod(p[:layer]) for layer in range(len(p))]
    size_B = [norm(B) * mpmath.fprod(p[layer + 1 :]) for layer in range(len(p))]
    size = mp.sqrt(mpmath.fsum(frobenius(layer) ** 2 for layer in W))
    references = {
        "initial_gap": Reference(gap, loss.gap_slack(gap, norm(A) * norm(B) * mpmath.fprod(p))),
        "weight_norm": Reference(size, 1e-12 * size),
    }
    for name, matrix, low in (("A", A, last(A, A.cols)), ("B", B, last(B, B.rows)), ("X", X, singular_values(X)[-1])):
        high = norm(matrix)
        references[f"norm_{name}"] = Reference(high, of_norms(high, high))
        references[f"sigma_min_{name}"] = Reference(low, of_norms(low, high))
    if "radius" in published:
        references |= _on_ball(X.T, weights, centre, mpf(published["radius"]), size_A, size_B)
    return references


def _on_ball(
    inputs: Matrix, weights: Arrays, centre: Layers, radius: mpf, size_A: Values, size_B: Values
) -> dict[str, Reference]:
    """Lemma 3 from exact singular values, and from those that floats give; beside what points of the ball take."""
    measured = Measured.of(centre)
    bound, loosest = constants(measured, radius), constants(measured.in_floats(size_A, size_B), radius)
    points = [at_point(measured)]
    points += [at_point(Measured.of(Layers.of(inputs, weights, W))) for W in points_of(centre, radius)]
    references = {}
    for name, take, sign in (("pl_constant", min, -1), ("gauss_newton", max, 1), ("bilinear", max, 1)):
        value, far = getattr(bound, name), getattr(loosest, name)
        seen = take(getattr(point, name) for point in points) * (NEARLY if sign > 0 else 1 / NEARLY)
        slack = abs(far - value) + 1e-6 * value + UNIT * mpf(10) ** -100
        references[name] = Reference(value, slack, contained=False, attained=seen)
    return references


def kernel(layers: Layers) -> Matrix:
    """𝒦 = Σ (B_lB_lᵀ)⊗(A_lᵀA_l), of residuals row by row."""
    k, r = layers.B[0].rows, layers.A[0].cols
    total = mpmath.zeros(k * r)
    for A, B in zip(layers.A, layers.B, strict=True):
        G, H = A.T * A, B * B.T
        for i, j in np.ndindex(k * r, k * r):
            total[i, j] += H[i // r, j // r] * G[i % r, j % r]
    return total


def second_moment(Q: Matrix, batch: int) -> mpf:
    """(N/B) λ_max of the mean of (Q_SᵀQ_S)² over all batches."""
    total, count = mpmath.zeros(Q.cols), 0
    for S in every_batch(Q * Q.T, 1, batch):
        rows = mpmath.matrix([[Q[i, j] for j in range(Q.cols)] for i in S])
        square, count = rows.T * rows, count + 1
        total += square * square
    return eigenvalues(total)[0] * Q.rows / (batch * count)


def of_batches(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    """Of rows X = QX̃ᵀ with orthonormal columns of Q, X̃ a Cholesky factor of XᵀX."""
    X, W = exact(problem["X"]), [exact(layer) for layer in weights["W"]]
    inputs = mpmath.cholesky(X.T * X)
    Q = X * mpmath.inverse(inputs).T
    centre, batch = Layers.of(inputs, weights, W), int(published["batch"])
    residual = (end_to_end(centre, weights) - exact(problem["optimum"])).T * inputs
    r = mpmath.matrix([residual[i, j] for i in range(residual.rows) for j in range(residual.cols)])
    K = kernel(centre)
    values, gap = eigenvalues(K), (r.T * r)[0, 0] / 2
    p, measured = [norm(P) for P in centre.P], Measured.of(centre)
    ends = norm(exact(weights["A"])) * norm(inputs), norm(exact(weights["B"]))
    size_A = [ends[0] * mpmath.fprod(p[:layer]) for layer in range(len(p))]
    size_B = [ends[1] * mpmath.fprod(p[layer + 1 :]) for layer in range(len(p))]
    loosest, least = measured.in_floats(size_A, size_B), mp.sqrt(max(values[-1], mpf(0)))
    lost = 1e-6 * mp.sqrt(values[0])
    chi, moment = bound_of_norm_square(Q * Q.T, 1, batch), second_moment(Q, batch)

    def on_ball(at: Measured, name: str) -> dict[str, mpf]:
        radius = mpf(published[name])
        found = constants(at, radius)
        squares, bend = found.gauss_newton, found.bilinear
        return {
            "norm_J_ball": mp.sqrt(squares),
            "lipschitz_J": bend,
            "lipschitz_batch": mp.sqrt(chi) * bend,
            "norm_batch": mp.sqrt(chi * squares),
            "second_moment": min(moment, chi) * squares,
            "sigma": max(mp.sqrt(found.pl_constant), least - radius * bend, mpf(0)),
        }

    def bound(name: str, key: str) -> Reference:
        value, far = on_ball(measured, name)[key], on_ball(loosest, name)[key]
        slack = abs(far - value) + 2e-6 * value + UNIT * mpf(10) ** -100
        return Reference(value, slack + (lost if key == "sigma" else 0), contained=False)

    solved = solve(K, r) if values[-1] > 0 else None
    newton = mp.sqrt((r.T * solved)[0, 0]) if solved is not None else mp.inf
    found = {
        "initial_gap": Reference(gap, loss_of(kind, problem).gap_slack(gap, ends[1] * norm(exact(weights["A"])))),
        "newton_step": Reference(newton, 1e-6 * newton),
        "sigma_min_J": Reference(max(least, mp.sqrt(constants(measured, mpf(0)).pl_constant)), lost),
        "lipschitz_fit": bound("fit_ball", "lipschitz_J"),
        "sigma_ball": bound("ball", "sigma"),
        "sigma_inner": bound("inner_ball", "sigma"),
    }
    found |= {
        name: bound("ball", name)
        for name in ("norm_J_ball", "lipschitz_J", "lipschitz_batch", "norm_batch", "second_moment")
    }
    true = mp.sqrt(largest_norm_square(Q * Q.T, 1, batch))  # at the weights themselves at least σ_0 of that
    found["norm_batch"] = replace(found["norm_batch"], attained=true * least * NEARLY)
    return found


def points_of(centre: Layers, radius: mpf) -> list[list[Matrix]]:
    """Weights on the sphere of that radius: random ones, and those that shrink the last singular value of a layer."""
    draw = np.random.default_rng(0)
    P = [np.array(layer.tolist(), dtype=np.float64) for layer in centre.P]
    steps = [draw.standard_normal((len(P), *P[0].shape)) for _ in range(SAMPLES)]
    for layer in range(len(P)):
        U, _, Vt = np.linalg.svd(P[layer])
        steps.append(np.zeros((len(P), *P[0].shape)))
        steps[-1][layer] = -np.outer(U[:, -1], Vt[-1])
    W = [layer - mpmath.eye(layer.rows) for layer in centre.P]
    if radius == 0:
        return [W]
    points = []
    for step in steps:
        length = mp.sqrt(mpmath.fsum(mpf(float(x)) ** 2 for x in step.ravel())) / (radius * NEARLY)
        points.append([layer + exact(move) / length for layer, move in zip(W, step, strict=True)])
    return points


def end_to_end(layers: Layers, weights: Arrays) -> Matrix:
    """(B P_L … P_1 A)ᵀ (d, k)."""
    return (layers.B[0] * layers.P[0] * exact(weights["A"])).T


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    layers = Layers.of(exact(problem["X"]).T, weights, [exact(layer) for layer in weights["W"]])
    return loss_of(kind, problem).gap(end_to_end(layers, weights))
