"""Feed-forward networks with windows and blocks: "Convolutions, pooling, residual blocks" of docs/theorems/feed-forward.md.

Everything is done sample by sample, with lists of numbers in 100 digits: J column by column, C(W) by its images of unit vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import mpmath
import numpy as np
from mpmath import mp, mpf

from .feed_forward import LOSS, NORMS, Arrays, largest_symmetric, newton_step
from .feed_forward_activations import ACTIVATIONS, Activation, Settings
from .reference import UNIT, Matrix, Reference, eigenvalues, exact, frobenius, norm, root_of_squares

Vector = list[mpf]
DENSE, CIRCULAR, MAXIMUM = 0, 2, 3


@dataclass
class Layer:
    """One layer; W as a list of rows, None of a maximum."""

    activation: Activation
    settings: Settings
    geometry: list[int]
    skip: int
    W: list[Vector] | None
    b: Vector | None
    trains_W: bool
    trains_b: bool

    def windows(self, a: Vector) -> list[list[mpf | None]]:
        """What each window holds of the maps of a sample, channel by channel."""
        kind, channels, height, width, tall, wide, step, across, above, left, down, right = self.geometry
        if kind == DENSE:
            return [list(a)]
        found: list[list[mpf | None]] = []
        for y in range(down):
            for x in range(right):
                window: list[mpf | None] = []
                for c in range(channels):
                    for i in range(tall):
                        for j in range(wide):
                            row, column = y * step - above + i, x * across - left + j
                            if kind == CIRCULAR:
                                row, column = row % height, column % width
                            inside = 0 <= row < height and 0 <= column < width
                            window.append(a[(c * height + row) * width + column] if inside else None)
                found.append(window)
        return found

    def per_channel(self, a: Vector) -> list[list[mpf | None]]:
        """The windows of a maximum, one channel after the other."""
        size = self.geometry[4] * self.geometry[5]
        every = self.windows(a)
        return [w[c * size : (c + 1) * size] for c in range(self.geometry[1]) for w in every]

    def winners(self, a: Vector) -> list[int]:
        """Of each window of a maximum."""
        low = mpf(-mp.inf)
        return [max(range(len(w)), key=lambda j, w=w: low if w[j] is None else w[j]) for w in self.per_channel(a)]

    def linear(self, v: Vector, at: Vector) -> Vector:
        """C(W)v, or what the choice at ``at`` makes of v."""
        if self.W is None:
            return [w[j] for w, j in zip(self.per_channel(v), self.winners(at), strict=True)]  # pyright: ignore[reportReturnType]
        return [
            mpmath.fsum(x * y for x, y in zip(row, w, strict=True) if y is not None)
            for row in self.W
            for w in self.windows(v)
        ]

    def seen(self, a: Vector) -> list[Vector]:
        """E of a sample: a row for each window, of what is trained."""
        ones = [mpf(1)] if self.trains_b else []
        values = [[mpf(0) if x is None else x for x in w] for w in self.windows(a)]
        return [[*(w if self.trains_W else []), *ones] or [mpf(0)] for w in values]

    @property
    def overlap(self) -> int:
        """Windows that an entry lies in, at most."""
        if self.geometry[0] == DENSE:
            return 1
        _, _, height, width = self.geometry[:4]
        hits = [0] * (height * width)
        for w in self.windows([mpf(p) for p in range(self.geometry[1] * height * width)]):
            for x in w:
                if x is not None and x < height * width:
                    hits[int(x)] += 1
        return max(hits)


@dataclass
class Sample:
    """Inputs, pre-activations and outputs of all layers for one row of X."""

    inputs: list[Vector] = field(default_factory=list)
    z: list[Vector] = field(default_factory=list)
    outputs: list[Vector] = field(default_factory=list)


class Network:
    """At given weights, exact numbers."""

    def __init__(self, problem: Arrays, weights: Mapping[str, Matrix]) -> None:
        frozen = {name: exact(A) for name, A in problem.items() if name[0] in "Wb" and name[1:].isdigit()}
        every, count = {**frozen, **weights}, len(problem["layers"])
        geometry = problem["geometry"].tolist() if "geometry" in problem else [[0] * 12] * count
        skips = problem["skips"][:, 0].tolist() if "skips" in problem else [-1] * count
        self.layers = []
        for number in range(1, count + 1):
            W, b = every.get(f"W{number}"), every.get(f"b{number}")
            self.layers.append(
                Layer(
                    ACTIVATIONS[int(problem["layers"][number - 1, 2])],
                    tuple(map(mpf, problem["settings"][number - 1].tolist())),  # pyright: ignore[reportArgumentType]
                    geometry[number - 1],
                    skips[number - 1],
                    None if W is None else [list(W[i, :]) for i in range(W.rows)],
                    None if b is None else list(b),
                    f"W{number}" in weights,
                    f"b{number}" in weights,
                )
            )
        X = exact(problem["X"])
        self.Y = exact(problem["Y"])
        self.samples = [self.run(list(X[i, :])) for i in range(X.rows)]

    def run(self, x: Vector) -> Sample:
        """One row of X."""
        found, outputs = Sample(), [x]
        for layer in self.layers:
            a = outputs[-1]
            z = layer.linear(a, a)
            if layer.b is not None:
                each = len(z) // len(layer.b)
                z = [v + layer.b[i // each] for i, v in enumerate(z)]
            found.inputs.append(a)
            found.z.append(z)
            out = [layer.activation.value(v, layer.settings) for v in z]
            if layer.skip >= 0:
                out = [v + w for v, w in zip(out, outputs[layer.skip], strict=True)]
            outputs.append(out)
            found.outputs.append(out)
        return found

    def still(self, sample: Sample, index: int) -> Vector:
        """1 for every input of a layer that a linear piece of an activation keeps constant, else 0."""
        before = self.layers[index - 1] if index else None
        if before is None or before.skip >= 0 or before.activation.largest_bend(before.settings) != 0:
            return [mpf(0)] * len(sample.inputs[index])
        return [mpf(before.activation.slope(z, before.settings) == 0) for z in sample.z[index - 1]]

    @property
    def residual(self) -> Matrix:
        """f - Y."""
        return mpmath.matrix([sample.outputs[-1] for sample in self.samples]) - self.Y

    def column(self, sample: Sample, at: int, unit: int, place: int) -> Vector:
        """The derivative of a row of f in one number of a layer."""
        outputs: dict[int, Vector] = {}
        for index in range(at, len(self.layers)):
            layer = self.layers[index]
            if index == at:
                seen = layer.seen(sample.inputs[index])
                units = len(sample.z[index]) // len(seen)
                z = [seen[p][place] if m == unit else mpf(0) for m in range(units) for p in range(len(seen))]
            else:
                z = layer.linear(outputs[index], sample.inputs[index])
            slopes = [layer.activation.slope(v, layer.settings) for v in sample.z[index]]
            out = [s * v for s, v in zip(slopes, z, strict=True)]
            if layer.skip in outputs:
                out = [v + w for v, w in zip(out, outputs[layer.skip], strict=True)]
            outputs[index + 1] = out
        return outputs[len(self.layers)]

    @cached_property
    def jacobian(self) -> Matrix:
        """J (N k, p)."""
        columns = [
            [v for sample in self.samples for v in self.column(sample, at, unit, place)]
            for at, unit, place in self.places()
        ]
        return mpmath.matrix(columns).T

    def places(self) -> Iterator[tuple[int, int, int]]:
        """Layer, unit and place of every number that is trained."""
        for at, layer in enumerate(self.layers):
            count = len(self.samples[0].z[at]) // len(layer.windows(self.samples[0].inputs[at]))
            for unit in range(count if layer.W is not None else 0):
                trained = (len(layer.W[0]) if layer.trains_W else 0) + layer.trains_b  # pyright: ignore[reportOptionalSubscript]
                yield from ((at, unit, place) for place in range(trained))

    def matrix(self, index: int) -> Matrix:
        """C(W) of a layer with weights."""
        a = self.samples[0].inputs[index]
        columns = [self.layers[index].linear([mpf(i == j) for i in range(len(a))], a) for j in range(len(a))]
        return mpmath.matrix(columns).T

    @cached_property
    def norms(self) -> list[tuple[mpf, mpf, list[mpf]]]:
        """For each layer ‖C(W)‖, its largest column and its rows in norm; √o of a maximum, which has no rows."""
        found = []
        for index, layer in enumerate(self.layers):
            if layer.W is None:
                found.append((mp.sqrt(layer.overlap), mp.sqrt(layer.overlap), []))
                continue
            C = self.matrix(index)
            rows = [root_of_squares(C[i, :]) for i in range(C.rows)]
            found.append((norm(C), max(root_of_squares(C[:, j]) for j in range(C.cols)), rows))
        return found

    @property
    def amplification(self) -> mpf:
        """What errors of pre-activations do to what comes after."""
        factor = mpf(1)
        for index, (size, _, _) in enumerate(self.norms):
            factor *= 2 + size * (1 + mpmath.fsum(root_of_squares(s.z[index]) for s in self.samples) * UNIT * 4096)
        return factor

    @property
    def moved(self) -> mpf:
        """By how much floats may miss the residual."""
        size = mpmath.fsum(root_of_squares([*s.inputs[i], *s.z[i]]) for s in self.samples for i in range(len(s.z)))
        return 4096 * UNIT * (size + frobenius(self.Y)) * self.amplification


def lipschitz(at: Network, radius: mpf) -> mpf:
    """Λ by the recursions of Lemma 4."""
    count = len(at.layers)
    zero, square = mpmath.zeros(count, 1), mpmath.zeros(count)
    outputs = [(zero, zero, square, square)]
    M = square
    for index, layer in enumerate(at.layers):
        C, R, F, G = outputs[-1]
        e = mpmath.matrix([mpf(j == index) for j in range(count)])
        size, column, _ = at.norms[index]
        spread, shift = mp.sqrt(layer.overlap), radius if layer.trains_W else mpf(0)
        w, omega = size + (spread * shift if layer.W is not None else 0), column + shift
        A = alpha = mpf(0)
        if layer.W is not None:
            seen = [layer.seen(s.inputs[index]) for s in at.samples]
            A = norm(mpmath.matrix([row for E in seen for row in E])) + spread * frobenius(C) * shift
            alpha = max(norm(mpmath.matrix(E)) for E in seen) + spread * frobenius(R) * shift
        c, r = w * C + A * e, w * R + alpha * e
        M = omega * F + w * G
        if layer.trains_W:
            M += 2 * spread * C * e.T
        slope, largest = layer.activation.largest_slope(layer.settings), layer.activation.largest_bend(layer.settings)
        out = (slope * c, slope * r, largest * r * c.T, slope * M)
        if layer.skip >= 0:
            out = tuple(x + y for x, y in zip(out, outputs[layer.skip], strict=True))
        outputs.append(out)  # pyright: ignore[reportArgumentType]
    return largest_symmetric(M)


def kink_margin(at: Network, radius: mpf) -> tuple[mpf | None, mpf]:
    """The least quotient of (5), and the least change on the ball that it rests on."""
    margins: list[mpf] = []
    least = mp.inf
    for sample in at.samples:
        outputs: list[tuple[Vector, mpf]] = [([mpf(0)] * len(sample.inputs[0]), mpf(0))]
        trained = False
        for index, layer in enumerate(at.layers):
            mu, nu = outputs[-1]
            trained = trained or layer.trains_W or layer.trains_b
            size, _, rows = at.norms[index]
            if layer.W is None:
                both = layer.per_channel(sample.inputs[index])
                still = layer.per_channel(at.still(sample, index))
                bounds, winners = layer.per_channel(mu), layer.winners(sample.inputs[index])
                m = [max(x for x in w if x is not None) for w in bounds]
                n = size * nu
                for values, moves, rest, j in zip(both, bounds, still, winners, strict=True):
                    for i, value in enumerate(values if trained else []):
                        if value is not None and i != j and not (rest[i] and rest[j]):
                            change = radius * sum(moves[k] for k in (i, j) if not rest[k])  # pyright: ignore[reportCallIssue, reportArgumentType]
                            margins.append((values[j] - value) / change)  # pyright: ignore[reportOperatorIssue]
                            least = min(least, change)
            else:
                shift = radius if layer.trains_W else mpf(0)
                seen = layer.seen(sample.inputs[index])
                m = [mp.hypot((row + shift) * nu, root_of_squares(seen[i % len(seen)])) for i, row in enumerate(rows)]
                n = mp.hypot((size + mp.sqrt(layer.overlap) * shift) * nu, norm(mpmath.matrix(seen)))
            for z, move in zip(sample.z[index], m, strict=True):
                for kink in layer.activation.kinks(layer.settings) if trained else ():
                    margins.append(abs(z - kink) / (radius * move))
                    least = min(least, radius * move)
            slope = layer.activation.largest_slope(layer.settings)
            out = ([slope * x for x in m], slope * n)
            if layer.skip >= 0:
                other = outputs[layer.skip]
                out = ([x + y for x, y in zip(out[0], other[0], strict=True)], out[1] + other[1])
            outputs.append(out)
    return (min(margins), least) if margins else (None, least)


def quantities(problem: Arrays, weights: Mapping[str, Matrix], published: Mapping[str, float]) -> dict[str, Reference]:
    """Those of the ball for its published radius."""
    at = Network(problem, weights)
    J, residual = at.jacobian, at.residual
    values = eigenvalues(J * J.T)
    least, largest = max(values[-1], mpf(0)), values[0]
    error = LOSS * (1 + frobenius(J) ** 2) * at.amplification
    below = mp.sqrt(max(least * (1 - NORMS) - error, mpf(0)))
    found = {
        "initial_gap": Reference(frobenius(residual) ** 2 / 2, frobenius(residual) * at.moved + at.moved**2),
        "sigma_min_J": Reference(mp.sqrt(least), mp.sqrt(least) - below),
        "norm_J": Reference(mp.sqrt(largest), mp.sqrt(largest * (1 + NORMS) + error) - mp.sqrt(largest)),
        "newton_step": newton_step(at, residual, J, below, error),
    }
    if "ball" in published:
        radius = mpf(published["ball"])
        bound = lipschitz(at, radius)
        margin, change = kink_margin(at, radius)
        seen = largest_change(at, problem, weights, radius) if margin is None or margin > 1 else None
        found["lipschitz_J"] = Reference(bound, NORMS * bound, attained=seen)
        if margin is not None:
            lost = at.moved * at.amplification / change
            found["kink_margin"] = Reference(margin, NORMS * margin + min(margin, lost))
    return found


def largest_change(at: Network, problem: Arrays, weights: Mapping[str, Matrix], radius: mpf) -> mpf:
    """‖J(θ) - J(θ0)‖_F/(√n ρ) for a random θ at the distance ρ: at most the spectral norm."""
    draw = np.random.default_rng(0)
    step = {name: exact(draw.standard_normal((W.rows, W.cols))) for name, W in weights.items()}
    size = root_of_squares([frobenius(S) for S in step.values()])
    there = Network(problem, {name: W + radius / size * step[name] for name, W in weights.items()}).jacobian
    return frobenius(there - at.jacobian) / mp.sqrt(there.rows) / radius


def gap(problem: Arrays, weights: Mapping[str, Matrix]) -> mpf:
    """The loss."""
    return frobenius(Network(problem, weights).residual) ** 2 / 2
