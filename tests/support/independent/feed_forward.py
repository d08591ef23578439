"""Feed-forward networks, docs/theorems/feed-forward.md: a_l = φ_l(a_{l-1}W_lᵀ + 1b_lᵀ), r = a_L - Y, loss ½‖r‖²_F.

The Jacobian is formed, row by row, and its change on the ball bounded by the recursions of the lemma, in 100 digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType

import mpmath
import numpy as np
from mpmath import mp, mpf

from .batches import bound_of_norm_square, largest_norm_square, mean_square
from .feed_forward_activations import ACTIVATIONS
from .feed_forward_sharper import norms_of_rows, sharper_change, sharper_lipschitz
from .reference import UNIT, Array, Matrix, Reference, eigenvalues, exact, frobenius, norm, root_of_squares, solve

Arrays = Mapping[str, Array]
STEP = mpf(10) ** -25
"""Of differences, which err by its square."""
LOSS = mpf(10) ** -11
"""Relative loss of a few products in floats, generously."""
NORMS = mpf(10) ** -7
"""Relative loss of published norms, and of products of them."""


class Network:
    """At given weights, exact numbers: pre-activations, inputs of each layer with a 1 where there is a bias, the Jacobian."""

    def __init__(self, problem: Arrays, weights: Mapping[str, Matrix]) -> None:
        self.X, self.Y = exact(problem["X"]), exact(problem["Y"])
        numerator, denominator = problem["multiple"][0].tolist() if "multiple" in problem else (1, 1)
        self.multiple = mpf(numerator) / denominator
        self.trains = [
            (f"W{number}" in weights, f"b{number}" in weights) for number in range(1, len(_rows(problem)) + 1)
        ]
        weights = {**_exact(problem), **weights}
        self.W: list[Matrix] = []
        self.activations = [(ACTIVATIONS[int(row[2])], tuple(map(mpf, of))) for row, of in _rows(problem)]
        self.biased = [bool(row[1]) for row, _ in _rows(problem)]
        self.z: list[Matrix] = []
        self.inputs: list[Matrix] = []
        a = self.X
        for index, (activation, settings) in enumerate(self.activations):
            W, b = weights[f"W{index + 1}"], weights.get(f"b{index + 1}")
            assert (b is not None) == self.biased[index]
            z = a * W.T
            if b is not None:
                z = mpmath.matrix([[z[i, j] + b[j] for j in range(z.cols)] for i in range(z.rows)])
            self.W.append(W)
            self.z.append(z)
            self.inputs.append(_extended(a, *self.trains[index]))
            a = z.apply(lambda x, of=activation, s=settings: of.value(x, s))
        self.residual = a - self.Y

    @property
    def back(self) -> list[list[Matrix]]:
        """For each layer and row of X, ∂f/∂z (k, width)."""
        found = [[mpmath.eye(self.Y.cols) for _ in range(self.X.rows)]]
        for index in range(len(self.W) - 1, 0, -1):
            activation, settings = self.activations[index - 1]
            part = []
            for i, B in enumerate(found[0]):
                P = B * self.W[index]
                slopes = [activation.slope(z, settings) for z in self.z[index - 1][i, :]]
                part.append(mpmath.matrix([[P[o, j] * slopes[j] for j in range(P.cols)] for o in range(P.rows)]))
            found.insert(0, part)
        return found

    @property
    def jacobian(self) -> Matrix:
        """J (N k, p), output by output, row by row of X."""
        rows = []
        back = self.back
        for i in range(self.X.rows):
            for o in range(self.Y.cols):
                rows.append(
                    [
                        back[index][i][o, j] * x
                        for index in range(len(self.W))
                        for j in range(self.W[index].rows)
                        for x in self.inputs[index][i, :]
                    ]
                )
        return mpmath.matrix(rows)

    def to_kinks(self) -> Iterator[tuple[mpf, mpf]]:
        """Every pre-activation with each kink of its activation."""
        for Z, (activation, settings) in zip(self.z, self.activations, strict=True):
            yield from ((z, kink) for z in Z for kink in activation.kinks(settings))

    @property
    def rounding(self) -> mpf:
        """Of J Jᵀ in floats."""
        back = self.back
        sizes = [
            mpmath.fsum(frobenius(B) ** 2 for B in back[index]) * frobenius(a) ** 2
            for index, a in enumerate(self.inputs)
        ]
        return LOSS * self.multiple * mpmath.fsum(sizes) * self.amplification

    @property
    def amplification(self) -> mpf:
        """What errors of pre-activations do to what comes after."""
        factor = mpf(1)
        for W, z in zip(self.W, self.z, strict=True):
            factor *= 1 + norm(W) * (1 + frobenius(z) * UNIT * 4096)
        return factor

    @property
    def moved(self) -> mpf:
        """By how much floats may miss the residual."""
        size = mpmath.fsum(frobenius(a) * frobenius(W) for a, W in zip(self.inputs, self.W, strict=True))
        return 512 * UNIT * mp.sqrt(self.multiple) * (size + frobenius(self.Y)) * self.amplification


def merged(at: Network) -> tuple[Matrix, Matrix]:
    """Residual and Jacobian with one row, times √(cm), in place of m equal rows of X, and the mean of their targets; the loss is
    ½c times a sum of squares."""
    k, groups = at.Y.cols, dict[tuple[mpf, ...], list[int]]()
    for i in range(at.X.rows):
        groups.setdefault(tuple(at.X[i, :]), []).append(i)
    f, J = at.residual + at.Y, at.jacobian
    roots = [mp.sqrt(at.multiple * len(own)) for own in groups.values()]
    residual = [
        [root * (f[own[0], o] - mpmath.fsum(at.Y[i, o] for i in own) / len(own)) for o in range(k)]
        for own, root in zip(groups.values(), roots, strict=True)
    ]
    rows = [
        [root * x for x in J[own[0] * k + o, :]]
        for own, root in zip(groups.values(), roots, strict=True)
        for o in range(k)
    ]
    return mpmath.matrix(residual), mpmath.matrix(rows)


def _rows(problem: Arrays) -> list[tuple[list[int], list[float]]]:
    return list(zip(problem["layers"].tolist(), problem["settings"].tolist(), strict=True))


def _extended(a: Matrix, with_a: bool, with_ones: bool) -> Matrix:
    """The inputs where the weights are trained, and a 1 in every row where the bias is; a column of zeros in place of neither."""
    rows = [[*(a[i, :] if with_a else []), *([mpf(1)] if with_ones else [])] or [mpf(0)] for i in range(a.rows)]
    return mpmath.matrix(rows)


def _exact(weights: Arrays) -> dict[str, Matrix]:
    return {name: exact(W) for name, W in weights.items() if name[0] in "Wb" and name[1:].isdigit()}


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    """Those of the ball for its published radius."""
    if "objective" in problem:
        return of_objective(problem, weights, published)
    if "geometry" in problem or "skips" in problem:
        return _windows().quantities(problem, _exact(weights), published)
    at = Network(problem, _exact(weights))
    residual, J = merged(at)
    values = eigenvalues(J * J.T)
    least, largest, error = max(values[-1], mpf(0)) if J.rows <= J.cols else mpf(0), values[0], at.rounding
    if min((abs(z - kink) for z, kink in at.to_kinks()), default=1) <= at.moved / mp.sqrt(at.multiple):
        error = 4 * largest  # on which side of a kink a pre-activation is, an enclosure need not know
    found = {
        "initial_gap": Reference(frobenius(residual) ** 2 / 2, frobenius(residual) * at.moved + at.moved**2),
        "sigma_min_J": Reference(mp.sqrt(least), mp.sqrt(least) - mp.sqrt(max(least * (1 - NORMS) - error, mpf(0)))),
        "norm_J": Reference(mp.sqrt(largest), mp.sqrt(largest * (1 + NORMS) + error) - mp.sqrt(largest)),
    }
    if least > 0:
        found["newton_step"] = newton_step(at, residual, J, mp.sqrt(max(least * (1 - NORMS) - error, mpf(0))), error)
    if "ball" in published:
        radius = mpf(published["ball"])
        root = mp.sqrt(at.multiple)
        first = root * lipschitz(at, radius)
        bend = min(first, root * sharper_lipschitz(at, radius))
        unsure = first - bend if error == 4 * largest else 0  # of which slopes the sharper one is
        margin, slack = kink_margin(at, radius)
        inside = margin is None or margin > 1
        seen = root * largest_change(at, problem, _exact(weights), radius) if inside and radius > 0 else None
        found["lipschitz_J"] = Reference(bend, NORMS * bend + unsure, attained=seen)
        if margin is not None:
            found["kink_margin"] = Reference(margin, slack)
        if "batch" in published:
            found |= of_batches(at, J, published, found, error, problem, _exact(weights))
    return found


def of_batches(
    at: Network,
    J: Matrix,
    published: Mapping[str, float],
    found: Mapping[str, Reference],
    error: mpf,
    problem: Arrays,
    weights: dict[str, Matrix],
) -> dict[str, Reference]:
    """Of mini-batches: values at the weights, moved by Λρ for a ball of radius ρ."""
    K, rows, batch, root = J * J.T, at.Y.cols, int(published["batch"]), mp.sqrt(at.multiple)
    norm_square, mean = bound_of_norm_square(K, rows, batch), mean_square(K, rows, batch)

    def bend(name: str) -> mpf:
        radius = mpf(published[name])
        return root * min(lipschitz(at, radius), sharper_lipschitz(at, radius))

    def moved(value: mpf, lost: mpf, name: str, sign: int, seen: mpf | None = None) -> Reference:
        way = bend(name) * mpf(published[name])
        return Reference(max(value + sign * way, mpf(0)), lost + NORMS * (value + way), attained=seen)

    at_most = mp.sqrt(norm_square * (1 + NORMS) + 4 * error) - mp.sqrt(norm_square)
    norm_batch = moved(mp.sqrt(norm_square), at_most, "ball", 1, mp.sqrt(largest_norm_square(K, rows, batch)))
    root_mean = moved(mp.sqrt(mean), mp.sqrt(mean * (1 + NORMS) + 4 * error) - mp.sqrt(mean), "ball", 1)
    square = root_mean.value**2
    least, largest = found["sigma_min_J"], found["norm_J"]
    near = bend("fit_ball")
    seen = (
        root * largest_change(at, problem, weights, mpf(published["fit_ball"])) if published["fit_ball"] > 0 else None
    )
    return {
        "lipschitz_fit": Reference(near, NORMS * near, attained=seen),
        "lipschitz_batch": found["lipschitz_J"],
        "norm_J_ball": moved(largest.value, largest.slack, "ball", 1),
        "norm_batch": norm_batch,
        "second_moment": Reference(square, 3 * mp.sqrt(square) * root_mean.slack, attained=mean),
        "sigma_ball": moved(least.value, least.slack, "ball", -1),
        "sigma_inner": moved(least.value, least.slack, "inner_ball", -1),
    }


def _windows() -> ModuleType:
    """The definitions for networks with windows or blocks, which import what they share from here."""
    from . import feed_forward_windows

    return feed_forward_windows


def newton_step(at: Network, residual: Matrix, J: Matrix, sigma: mpf, error: mpf) -> Reference:
    """‖J⁺r‖, and what is lost by errors of r and JJᵀ, on which a solution depends by no more than 1/σ."""
    x = solve(J * J.T, mpmath.matrix(list(residual)))
    size = frobenius(J.T * x)
    lost = mp.sqrt(error) * frobenius(x) + (2 * at.moved + 2 * error * frobenius(x)) / sigma if sigma > 0 else mp.inf
    return Reference(size, NORMS * size + lost)


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    """The loss less its least possible value; of a training objective ½‖∇L‖²."""
    if "objective" in problem:
        return frobenius(Objective(problem, weights).gradient(_exact(weights))) ** 2 / 2
    if "geometry" in problem or "skips" in problem:
        return _windows().gap(problem, _exact(weights))
    return frobenius(merged(Network(problem, _exact(weights)))[0]) ** 2 / 2


def along(at: Network, radius: mpf) -> Iterator[tuple[Matrix, Matrix, Matrix]]:
    """c_l, r_l and M_l as the lemma has them."""
    count = len(at.W)

    def unit(index: int) -> Matrix:
        return mpmath.matrix([mpf(j == index) for j in range(count)])

    c = norm(at.inputs[0]) * unit(0)
    r = max(norms_of_rows(at.inputs[0])) * unit(0)
    M = mpmath.zeros(count)
    yield c, r, M
    for index in range(1, count):
        activation, settings = at.activations[index - 1]
        slope, bend = activation.largest_slope(settings), activation.largest_bend(settings)
        moved = radius if at.trains[index][0] else mpf(0)
        w, omega = norm(at.W[index]) + moved, max(norms_of_rows(at.W[index].T)) + moved
        M = slope * w * M + omega * bend * r * c.T
        if at.trains[index][0]:
            M += 2 * slope * c * unit(index).T
        A = norm(at.inputs[index]) + slope * frobenius(c) * moved
        alpha = max(norms_of_rows(at.inputs[index])) + slope * frobenius(r) * moved
        c, r = slope * w * c + A * unit(index), slope * w * r + alpha * unit(index)
        yield c, r, M


def lipschitz(at: Network, radius: mpf) -> mpf:
    """Λ = λ_max of the symmetric part of M_L."""
    *_, (_, _, M) = along(at, radius)
    return largest_symmetric(M)


def largest_symmetric(M: Matrix) -> mpf:
    """Largest eigenvalue of the symmetric part, or 0."""
    return max(eigenvalues((M + M.T) / 2)[0], mpf(0))


class Objective:
    """c Σ ℓ(f(x_i), y_i) + ½ decay ‖θ‖²: ℓ = ½‖f - y‖² with c = 2, or the cross-entropy with c = 1; a mean divides c.

    With class weights w and label smoothing s, ℓ = (1-s) w_y (-log p_y) + s/k Σ w_c (-log p_c), and a mean divides by Σ w_y.
    """

    def __init__(self, problem: Arrays, weights: Arrays) -> None:
        self.entropy = "labels" in problem
        k = int(problem["layers"][-1, 0])
        Y = np.eye(k)[problem["labels"]] if self.entropy else problem["Y"]
        self.problem = {**problem, "Y": Y}
        self.decay = mpf(float(problem["objective"][0, 0]))
        mean = bool(problem["objective"][0, 1])
        divisor = mpf(len(Y) if self.entropy else Y.size)
        self.targets, self.masses = exact(Y), [mpf(1)] * len(Y)
        if "classes" in problem:
            w, s = [mpf(x) for x in problem["classes"][0].tolist()], mpf(float(problem["objective"][0, 2]))
            divisor = mpmath.fsum(w[y] for y in problem["labels"].tolist())
            rows = [[(1 - s) * w[y] * (c == y) + s / k * w[c] for c in range(k)] for y in problem["labels"].tolist()]
            self.targets, self.masses = mpmath.matrix(rows), [mpmath.fsum(row) for row in rows]
        self.scale = mpf(1 if self.entropy else 2) / (divisor if mean else 1)

    def at(self, weights: dict[str, Matrix]) -> Network:
        return Network(self.problem, weights)

    def softmax(self, at: Network) -> Matrix:
        """Of f, row by row; the residual of the network is f - Y."""
        f = at.residual + at.Y
        rows = [[mp.exp(z) for z in f[i, :]] for i in range(f.rows)]
        return mpmath.matrix([[x / mpmath.fsum(row) for x in row] for row in rows])

    def slopes(self, at: Network) -> Matrix:
        """∇ℓ, row by row."""
        return mpmath.diag(self.masses) * self.softmax(at) - self.targets if self.entropy else at.residual

    def gradient(self, weights: dict[str, Matrix]) -> Matrix:
        """∇L, unit by unit: the row of W, then the bias."""
        at = self.at(weights)
        slopes = mpmath.matrix(list(self.slopes(at)))
        return self.scale * (at.jacobian.T * slopes) + self.decay * mpmath.matrix(list(_flat(at, weights)))

    def hessian(self, weights: dict[str, Matrix]) -> Matrix:
        """By central differences in 100 digits."""
        columns = []
        for name, W in weights.items():
            for place in ((i, j) for i in range(W.rows) for j in range(W.cols)):
                ends = []
                for sign in (1, -1):
                    there = W.copy()
                    there[place] += sign * STEP
                    ends.append(self.gradient({**weights, name: there}))
                columns.append((ends[0] - ends[1]) / (2 * STEP))
        order = list(_order(self.at(weights), weights))
        return mpmath.matrix([[columns[j][i] for j in order] for i in range(len(columns))])

    def least(self, at: Network, H: Matrix) -> mpf:
        """The least eigenvalue on the complement of what shifts all outputs alike, which a cross-entropy without decay does not
        see."""
        trains_W, trains_b = at.trains[-1]
        k, inputs = at.W[-1].rows, at.W[-1].cols * trains_W
        seen = inputs + trains_b
        if not self.entropy or self.decay > 0 or k < 2:
            return eigenvalues(H)[-1]
        first, projector = H.rows - k * seen, mpmath.eye(H.rows)
        for m in range(seen):
            for i, j in ((i, j) for i in range(k) for j in range(k)):
                projector[first + i * seen + m, first + j * seen + m] -= mpf(1) / k
        values = sorted(eigenvalues(projector * H * projector), key=abs)
        return min(values[seen:])

    def change(self, at: Network, radius: mpf) -> mpf:
        """The smaller bound of the change of the Hessian, by the recursion of the lemma or row by row."""
        found = [(frobenius(c), frobenius(r), largest_symmetric(M)) for c, r, M in along(at, radius)]
        q = mpf(0)
        for index in range(1, len(at.W)):
            c, r, m = found[index - 1]
            activation, settings = at.activations[index - 1]
            assert activation.largest_third is not None
            slope, bend, third = (
                of(settings) for of in (activation.largest_slope, activation.largest_bend, activation.largest_third)
            )
            moved = radius if at.trains[index][0] else mpf(0)
            w, omega = norm(at.W[index]) + moved, max(norms_of_rows(at.W[index].T)) + moved
            q = slope * w * q + omega * (third * r**2 * c + 3 * bend * r * m)
            q += 3 * (bend * r * c + slope * m) if at.trains[index][0] else 0
        c, r, m = found[-1]
        most = max(self.masses)
        second, third = (most / 2, most * mp.sqrt(6) / 9) if self.entropy else (mpf(1), mpf(0))
        slopes = frobenius(self.slopes(at)) + second * c * radius
        first = self.scale * (third * r * c**2 + 3 * second * c * m + slopes * q)
        return min(first, sharper_change(self, at, radius, r, m, self.scale * slopes * q)) if len(at.W) > 1 else first


def _order(at: Network, weights: dict[str, Matrix]) -> Iterator[int]:
    """Where the numbers of each unit, as the Jacobian has them, are among all weights by their names."""
    first, place = {}, 0
    for name, W in weights.items():
        first[name], place = place, place + W.rows * W.cols
    for index, W in enumerate(at.W, 1):
        for j in range(W.rows):
            if f"W{index}" in weights:
                yield from (first[f"W{index}"] + j * W.cols + m for m in range(W.cols))
            if f"b{index}" in weights:
                yield first[f"b{index}"] + j


def _flat(at: Network, weights: dict[str, Matrix]) -> Iterator[mpf]:
    every = [x for W in weights.values() for x in W]
    return (every[place] for place in _order(at, weights))


def of_objective(problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    """The quantities of a minimum."""
    objective, at_weights = Objective(problem, weights), _exact(weights)
    at, gradient, H = objective.at(at_weights), objective.gradient(at_weights), objective.hessian(at_weights)
    values = eigenvalues(H)
    least, largest = max(objective.least(at, H), mpf(0)), max(values[0], -values[-1])
    sizes = objective.scale * frobenius(at.jacobian) ** 2 * (1 + frobenius(objective.slopes(at))) + frobenius(H)
    lost = LOSS * sizes * at.amplification**2
    square = frobenius(gradient) ** 2 / 2
    found = {
        "initial_gap": Reference(square, 8 * UNIT * square),
        "lambda_min_H": Reference(least, min(least, lost)),
        "norm_H": Reference(largest, lost),
    }
    if "ball" in published:
        radius = mpf(published["ball"])
        bound = objective.change(at, radius)
        seen = None
        if radius > 0:
            draw = np.random.default_rng(0)
            step = {name: exact(draw.standard_normal((W.rows, W.cols))) for name, W in at_weights.items()}
            size = root_of_squares([frobenius(S) for S in step.values()])
            there = objective.hessian({name: W + radius / size * step[name] for name, W in at_weights.items()})
            seen = norm(there - H) / radius
        found["lipschitz_H"] = Reference(bound, NORMS * bound, attained=seen)
    return found


def kink_margin(at: Network, radius: mpf) -> tuple[mpf | None, mpf]:
    """The least quotient of a distance to a kink and the change of the pre-activation on the ball, with what floats lose."""
    margins: list[mpf] = []
    least = mp.inf
    size = mpmath.fsum(frobenius(z) for z in at.z) + 1
    for i in range(at.X.rows):
        v: list[mpf] = []
        slope = mpf(0)
        for index in range(len(at.W)):
            activation, settings = at.activations[index]
            row = root_of_squares(at.inputs[index][i, :])
            shift = radius if at.trains[index][0] else mpf(0)
            moving = activation.kinks(settings) and any(any(of) for of in at.trains[: index + 1])
            for j in range(at.W[index].rows if moving else 0):
                steep = slope * (root_of_squares(at.W[index][j, :]) + shift)
                moved = radius * root_of_squares([*(steep * x for x in v), row])
                distance = min(abs(at.z[index][i, j] - kink) for kink in activation.kinks(settings))
                least = min(least, moved)
                margins.append(distance / moved if moved > 0 else mpf(0))
            v = [*(slope * (norm(at.W[index]) + shift) * x for x in v), row]
            slope = activation.largest_slope(settings)
    if not margins:
        return None, mpf(0)
    margin = min(margins)
    lost = LOSS * size * at.amplification / least if least > 0 else margin
    return margin, NORMS * margin + min(margin, lost)


def largest_change(at: Network, problem: Arrays, weights: dict[str, Matrix], radius: mpf) -> mpf:
    """‖(J(θ) - J(θ0))u‖/ρ for a few unit vectors u, θ = θ0 + ρu."""
    draw, seen = np.random.default_rng(0), mpf(0)
    J = at.jacobian
    for _ in range(3):
        step = {name: exact(draw.standard_normal((W.rows, W.cols))) for name, W in weights.items()}
        size = root_of_squares([frobenius(S) for S in step.values()])
        there = Network(problem, {name: weights[name] + radius / size * S for name, S in step.items()}).jacobian
        u = []
        for index in range(len(at.W)):
            S, b = step.get(f"W{index + 1}"), step.get(f"b{index + 1}")
            for j in range(at.W[index].rows):
                u += [*([] if S is None else S[j, :]), *([] if b is None else [b[j]])] or [mpf(0)]
        seen = max(seen, frobenius((there - J) * mpmath.matrix(u)) / size / radius)
    return seen
