"""Learned step sizes, docs/theorems/step-sizes.md.

Problem p is min ½‖Mx - Y‖² + lam‖x‖₁ or, with labels s, min Σ log(1 + exp(-s_i⟨m_i, x⟩)) + lam‖x‖₁ + (l2/2)‖x‖². Least squares
and the LASSO are solved in rational numbers: by projection, and by trying the signs of the solution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import mpmath
from mpmath import mp, mpf

from .reference import UNIT, Array, Reference, eigenvalues, of_norms, root_of_squares

Arrays = Mapping[str, Array]
Vector = list[Fraction]
Rows = list[Vector]
Point = Sequence[Any]
"""Of rational numbers, or in digits."""

NEWTON = 60
"""Steps of Newton's method for one pattern of signs."""


def quantities(kind: object, problem: Arrays, weights: Arrays, published: Mapping[str, float]) -> dict[str, Reference]:
    """Those that the kind of problem has."""
    problems = problems_of(problem)
    beta, low, high = [mpf(b) for b in weights["beta"].tolist()], *(mpf(v) for v in weights["range"].tolist())
    each = list(zip(problems, beta, weights["x"], problem["optimum"], strict=True))
    gaps = [p.gap_reference(x, witness) for p, _, x, witness in each]
    references = {
        "range_low": Reference(low),
        "range_high": Reference(high),
        "smoothness_ratio": _worst([_times(p.smoothness, 1 / b) for p, b, _, _ in each], max),
        "initial_gap": Reference(
            mpmath.fsum(reference.value for reference in gaps), mpmath.fsum(reference.slack for reference in gaps)
        ),
    }
    if not problems[0].proximal:
        # of a matrix of zeros there is nothing to contract
        some = [_times(p.smallest_nonzero, 1 / b) for p, b, _, _ in each if p.rank]
        return references | {"convexity_ratio": _worst(some or [Reference(mpf(0))], min)}
    l2 = [Reference(number(p.l2), 4 * UNIT * number(p.l2)) for p in problems]
    references["loss_convexity_ratio"] = _worst([_times(p.loss_convexity, 1 / b) for p, b, _, _ in each], min)
    references["penalty_convexity_ratio"] = _worst(
        [_times(reference, 1 / b) for reference, b in zip(l2, beta, strict=True)], min
    )
    energies = [_times(p.radius_squared(x, witness), b) for p, b, x, witness in each]
    energy = mpmath.fsum(reference.value for reference in energies)
    if energy < mp.inf:
        reached = mpmath.fsum(b * p.reached(x) ** 2 for p, b, x, _ in each)
        references["radius_energy"] = Reference(
            energy, mpmath.fsum(reference.slack for reference in energies), attained=reached
        )
    return references


def gap(kind: object, problem: Arrays, weights: Arrays) -> mpf:
    """Σ_p F_p(x_p) - F_p*."""
    return mpmath.fsum(p.gap(x) for p, x in zip(problems_of(problem), weights["x"], strict=True))


def _times(reference: Reference, by: mpf) -> Reference:
    return Reference(reference.value * by, reference.slack * by)


def _worst(each: list[Reference], choose: Any) -> Reference:
    """The largest or smallest of several; a slack that all of them have."""
    return Reference(choose(reference.value for reference in each), max(reference.slack for reference in each))


def problems_of(arrays: Arrays) -> list[One]:
    """The problems of a batch: with labels they are logistic, with lam they have a penalty."""
    targets = arrays["labels" if "labels" in arrays else "Y"]
    lam, l2 = (arrays[name] if name in arrays else 0.0 * arrays["M"][:, 0, 0] for name in ("lam", "l2"))
    return [
        One([vector(row) for row in M], vector(target), Fraction(a), Fraction(b), "labels" in arrays, "lam" in arrays)
        for M, target, a, b in zip(arrays["M"], targets, lam.tolist(), l2.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class One:
    """A problem with its numbers as rational numbers."""

    M: Rows
    target: Vector
    lam: Fraction
    l2: Fraction
    logistic: bool
    proximal: bool

    @cached_property
    def columns(self) -> Rows:
        """Of M."""
        return [list(column) for column in zip(*self.M, strict=True)]

    @cached_property
    def rank(self) -> int:
        """Of M, exactly."""
        return len(independent(self.columns))

    @cached_property
    def gram(self) -> Any:
        """MᵀM, of exact entries."""
        return mpmath.matrix([[number(dot(a, b)) for b in self.columns] for a in self.columns])

    @cached_property
    def squares(self) -> list[mpf]:
        """Eigenvalues of MᵀM, descending."""
        return eigenvalues(self.gram)

    @property
    def norm(self) -> mpf:
        """‖M‖."""
        return mp.sqrt(self.squares[0])

    @property
    def smoothness(self) -> Reference:
        """Least Lipschitz constant of the gradient of the smooth part, over all targets."""
        largest = self.squares[0] / (4 if self.logistic else 1)
        return Reference(largest, of_norms(largest, largest))

    @property
    def smallest_nonzero(self) -> Reference:
        """The smallest nonzero eigenvalue of M Mᵀ; how many are 0 is decided by the exact rank, which floats cannot see."""
        value = self.squares[self.rank - 1]
        rows = sum(map(any, self.M))
        full = self.rank == min(rows, sum(map(any, self.columns)))
        return Reference(value, _square_slack(value, self.norm) if full else value)

    @property
    def loss_convexity(self) -> Reference:
        """Largest strong convexity of the smooth part: of the logistic loss it is 0, as it flattens far away."""
        value = mpf(0) if self.logistic or self.rank < len(self.columns) else self.squares[-1]
        return Reference(value, _square_slack(value, self.norm))

    def objective(self, x: Point) -> mpf:
        """F(x)."""
        image = [dot(row, x) for row in self.M]
        if self.logistic:
            loss = mpmath.fsum(
                mpmath.log1p(mpmath.exp(-number(s * v))) for s, v in zip(self.target, image, strict=True)
            )
        else:
            loss = number(sum(((v - y) * (v - y) for v, y in zip(image, self.target, strict=True)), Fraction(0))) / 2
        penalty = number(self.lam) * number(sum(map(abs, x), Fraction(0)))
        return loss + penalty + number(self.l2) * number(dot(x, x)) / 2

    def gap(self, x: Array) -> mpf:
        """F(x) - F*."""
        if not self.proximal:
            return number(self._projected_square(x)) / 2
        return self.objective(vector(x)) - self.objective(self.minimiser)

    def _projected_square(self, x: Array) -> Fraction:
        """‖Π(Mx - Y)‖², Π the projector onto the range of M, exactly."""
        residual = self.residual(vector(x))
        basis = [self.columns[j] for j in independent(self.columns)]
        right = [dot(c, residual) for c in basis]
        return dot(right, solve([[dot(a, b) for b in basis] for a in basis], right))

    def residual(self, x: Point) -> Point:
        """Mx - Y."""
        return [dot(row, x) - y for row, y in zip(self.M, self.target, strict=True)]

    def gap_reference(self, x: Array, witness: Array) -> Reference:
        """F(x) - F*, and how far above it a bound through the witness may lie."""
        gap, value = self.gap(x), self.objective(vector(x))
        if not self.proximal:
            # ‖M(x - ŵ)‖ + ε, ε for the part of Mŵ - Y in the range of M: rounding, or all of it where the rank is not certain
            size = mp.sqrt(2 * value) + self.norm * root_of_squares(map(number, vector(witness)))
            epsilon = 4096 * UNIT * size * self.norm / mp.sqrt(self.squares[self.rank - 1]) if self.rank else mpf(0)
            stationary = 2 * self.smallest_nonzero.slack < self.smallest_nonzero.value
            misfit = mp.sqrt(2 * self.gap(witness)) if stationary else mp.sqrt(2 * self.objective(vector(witness)))
            bound = mp.sqrt(2 * gap) + 2 * (epsilon + misfit)
            above = min(bound, mp.sqrt(2 * value) + epsilon) ** 2 / 2 - gap
            return Reference(gap, above + mpf(10) ** -9 * gap)
        # a dual point made from the witness, off by the root of the gap there, and scaled to be feasible
        at_zero = self.objective([Fraction(0)] * len(x))
        if not (self.lam > 0 or self.l2 > 0):  # the only dual point that is certainly feasible is 0
            return Reference(gap, value - gap + mpf(10) ** -9 * value)
        off = self.gap(witness) + 4096 * UNIT * (value + at_zero)
        scaling = 1 + self.norm * mp.sqrt(2 * at_zero) / max(number(self.lam), number(self.l2))
        return Reference(gap, mpf(10) ** -9 * gap + 10 * scaling * mp.sqrt(off * (value + off)))

    @cached_property
    def minimiser(self) -> Point:
        """A minimiser: the first pattern of signs whose stationary point satisfies the optimality conditions."""
        for signs in self._patterns():
            support = [j for j, s in enumerate(signs) if s]
            x = self._stationary(support, [signs[j] for j in support])
            if x is not None and self._optimal(x):
                return x
        raise AssertionError("no pattern of signs is optimal: the infimum may not be attained")

    def _patterns(self) -> Iterator[tuple[int, ...]]:
        """Signs of a solution; one with independent columns in its support is among the solutions of a LASSO."""
        if self.lam == 0 and self.l2 == 0:
            columns = set(independent(self.columns))
            yield tuple(int(j in columns) for j in range(len(self.columns)))
        elif self.lam == 0:
            yield (1,) * len(self.columns)
        else:
            yield from sorted(product((0, 1, -1), repeat=len(self.columns)), key=lambda signs: sum(map(abs, signs)))

    def _stationary(self, support: list[int], signs: list[int]) -> Point | None:
        """The point with this support where the derivative of the loss is that of the penalty; ``None`` if there is none."""
        if self.logistic:
            return self._newton(support, signs)
        columns = [self.columns[j] for j in support]
        if len(independent(columns)) < len(columns):
            return None
        right = [dot(c, self.target) - self.lam * s for c, s in zip(columns, signs, strict=True)]
        x = [Fraction(0)] * len(self.columns)
        for j, value in zip(support, solve([[dot(a, b) for b in columns] for a in columns], right), strict=True):
            x[j] = value
        return x

    def _newton(self, support: list[int], signs: list[int]) -> Point | None:
        """Damped Newton steps from 0."""
        x = [mpf(0)] * len(self.columns)
        for _ in range(NEWTON if support else 0):
            gradient, weights = self.gradient(x), [p * (1 - p) for p in self._misfits(x)]
            slope = mpmath.matrix([gradient[j] + number(self.lam) * s for j, s in zip(support, signs, strict=True)])
            step = self._solved(support, weights, slope)
            if step is None:
                return None
            decrement = mp.sqrt(abs(mpmath.fsum(a * b for a, b in zip(step, slope, strict=True))))
            for j, value in zip(support, step, strict=True):
                x[j] -= value / (1 + decrement if decrement > 1e-3 else 1)
            if max(map(abs, x)) > 1e12:  # of a wrong pattern
                return None
            if decrement < mpf(10) ** -60:
                break
        return x

    def _solved(self, support: list[int], weights: list[mpf], right: Any) -> Any:
        """The solution with the Hessian on the support; ``None`` where it is singular."""

        def entry(i: int, j: int) -> mpf:
            terms = zip(weights, self.columns[i], self.columns[j], strict=True)
            return mpmath.fsum(w * number(a * b) for w, a, b in terms) + (number(self.l2) if i == j else 0)

        try:
            return mpmath.lu_solve(mpmath.matrix([[entry(i, j) for j in support] for i in support]), right)
        except ZeroDivisionError:
            return None

    def _misfits(self, x: Point) -> list[mpf]:
        """1/(1 + exp(s_i⟨m_i, x⟩))."""
        return [1 / (1 + mp.exp(number(s) * number(dot(row, x)))) for row, s in zip(self.M, self.target, strict=True)]

    def gradient(self, x: Point) -> Point:
        """Of everything but lam‖x‖₁."""
        if not self.logistic:
            return [dot(c, self.residual(x)) for c in self.columns]
        pulls = [-number(s) * p for s, p in zip(self.target, self._misfits(x), strict=True)]
        return [number(dot(c, pulls)) + number(self.l2) * number(x[j]) for j, c in enumerate(self.columns)]

    def _optimal(self, x: Point) -> bool:
        """0 ∈ ∂F(x): exactly in rational numbers, to 50 digits for the logistic loss."""
        gradient = self.gradient(x)
        lam: Any = number(self.lam) if self.logistic else self.lam
        room = mpf(10) ** -50 * self.norm if self.logistic else 0
        return all(
            abs(g) <= lam + room if v == 0 else abs(g + (lam if v > 0 else -lam)) <= room
            for g, v in zip(gradient, x, strict=True)
        )

    def radius_squared(self, x: Array, witness: Array) -> Reference:
        """R², R the documented bound of the distance from a minimiser in {F ≤ F(x)}.

        (F(x) + min(F(x), F(ŵ)))/lam where lam > 0, and (2 gap/μ)^½ where F is μ-strongly convex; infinite where neither is.
        """
        value, l2, gap = self.objective(vector(x)), number(self.l2), self.gap_reference(x, witness)
        least, most = [mp.inf], [mp.inf]
        if self.lam > 0:
            least.append(((value + min(value, self.objective(vector(witness)))) / number(self.lam)) ** 2)
            most.append(least[-1] * (1 + mpf(10) ** -9))
        mu = self.loss_convexity
        if mu.value + l2 > 0:
            least.append(2 * gap.value / (mu.value + l2))
            if mu.slack < mu.value + l2:
                most.append(
                    2 * (gap.value + gap.slack) / (mu.value - min(mu.slack, mu.value) + l2) * (1 + mpf(10) ** -9)
                )
        return Reference(min(least), min(most) - min(least) if min(least) < mp.inf else mpf(0))

    def reached(self, x: Array) -> mpf:
        """The largest distance from the minimiser found in {F ≤ F(x)}: that of x, and along the axes and eigenvectors of MᵀM."""
        centre, level = [number(v) for v in self.minimiser], self.objective(vector(x))
        d = len(centre)
        vectors = mpmath.eigsy(self.gram)[1]
        rays = [[mpf(i == j) for i in range(d)] for j in range(d)] + [list(vectors[:, j]) for j in range(d)]
        far = [self._reach(centre, [sign * v for v in ray], level) for ray in rays for sign in (1, -1)]
        return max(root_of_squares(number(v) - c for v, c in zip(vector(x), centre, strict=True)), *far)

    def _reach(self, centre: Point, ray: Point, level: mpf) -> mpf:
        """A large t with F(centre + t ray) ≤ level."""

        def inside(t: mpf) -> bool:
            return self.objective([c + t * u for c, u in zip(centre, ray, strict=True)]) <= level

        high = mpf(10) ** -6
        while inside(high):
            high *= 4
            assert high < 1e40, "the set is not bounded"
        low = high / 4 if inside(high / 4) else mpf(0)
        for _ in range(10):
            middle = (low + high) / 2
            low, high = (middle, high) if inside(middle) else (low, middle)
        return low


def _square_slack(square: mpf, size: mpf) -> mpf:
    """Of the square of a singular value of a matrix of norm ``size``."""
    value = mp.sqrt(square)
    slack = of_norms(value, size)
    return 2 * value * slack + slack**2


# -- rational numbers ----------------------------------------------------------------------------------------------------


def vector(values: Array) -> Vector:
    """The numbers as they are stored."""
    return [Fraction(v) for v in values.tolist()]


def number(value: Any) -> mpf:
    """In digits."""
    return mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else mpf(value)


def dot(a: Point, b: Point) -> Any:
    """⟨a, b⟩, in the kind of numbers that the entries have."""
    if any(isinstance(v, mpf) for v in (*a, *b)):
        return mpmath.fsum(number(x) * number(y) for x, y in zip(a, b, strict=True))
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def independent(columns: Sequence[Sequence[Fraction]]) -> list[int]:
    """The columns that do not depend on those before them, by exact elimination."""
    kept: list[tuple[int, Vector]] = []
    chosen: list[int] = []
    for j, column in enumerate(columns):
        rest = list(column)
        for pivot, other in kept:
            factor = rest[pivot] / other[pivot]
            rest = [a - factor * b for a, b in zip(rest, other, strict=True)]
        place = next((i for i, v in enumerate(rest) if v), None)
        if place is not None:
            kept.append((place, rest))
            chosen.append(j)
    return chosen


def solve(A: Rows, b: Vector) -> Vector:
    """A⁻¹b by exact elimination; A must be regular."""
    rows = [[*row, value] for row, value in zip(A, b, strict=True)]
    for j in range(len(rows)):
        pivot = next(i for i in range(j, len(rows)) if rows[i][j])
        rows[j], rows[pivot] = rows[pivot], rows[j]
        rows[j] = [v / rows[j][j] for v in rows[j]]
        for i in range(len(rows)):
            if i != j and rows[i][j]:
                rows[i] = [a - rows[i][j] * c for a, c in zip(rows[i], rows[j], strict=True)]
    return [row[-1] for row in rows]
