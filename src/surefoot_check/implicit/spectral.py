"""``implicit/spectral``: the count of the frozen-feature linear model plus a certified perturbation (the default of
implicit networks).

Statement. Let Ĝ be symmetric with spectrum in [σ², ẑ²], σ² = node_min > 0, ẑ² = node_max, ‖Ĝ - Z_0Z_0ᵀ‖ ≤ κ, and let
mass_j ≥ r_0ᵀw_j(Ĝ)r_0 for the hat functions w_j of the nodes l_j. With p̃_k = (Σ mass_j (1-ηl_j)^{2k})^½, P ≥ Σηp̃_k,
ν = (Σ mass_j max(1,ηl_j)²/l_j)^½, q = γ(‖A_0‖+ρ) < 1, z = z_0+fσ, z_0² = ẑ²+κ, c = (1+δ)(γ²z²+‖X‖²)/(1-q)², ε =
(2z_0+fσ)fσ + cB² + zτ + κ < σ², S = P/(1-ε/σ²): if η ≤ 2/(σ²+ẑ²), cBS ≤ fσ, (1+δ)γzBS/(1-q) ≤ ρ and B ≥ ‖b_0‖ +
(1+κ/σ²)^½(ν + (ε/σ)S) + (fσ+τ)S, then ‖r_k‖ ≤ p̃_k + T_k and ‖r_{k+1}‖ ≤ (1-η(σ²-ε))‖r_k‖, where T_0 = 0, T_{k+1} =
(1-η(σ²-ε))T_k + ηεp̃_k.
Reference: docs/theorems/implicit.md (Theorem 2 of the project; no counterpart in the paper).

Both (1-ηλ)^{2k} and max(1,ηλ)²/λ are convex in λ, so that the masses at the nodes majorise the spectrum. p̃_k is
log-convex in k: on a block of iterations it lies below the geometric interpolation of its ends, and its sum below the
trapezoid's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..numbers import Number, Quantities, larger, power_of_complement, smaller, sqrt
from ..statement import Inequality, Schedule, Theorem, chain, starts_with
from . import constants as shared

GROWTH = 0.08
"""Relative length of a block of iterations; sums over blocks are off by about its square."""
LONGEST = 1 / 96
"""Longest block, relative to the horizon: the perturbation falls by a fifth on it."""
FARTHEST = 2**53


def marks(horizon: float) -> list[int]:
    """0, 1, 2, …, growing by ``GROWTH``, up to the horizon. Any increasing integers from 0 would do."""
    last = int(min(max(horizon, 1.0), FARTHEST))
    longest = max(1, int(LONGEST * last))
    iterations = [0]
    while iterations[-1] < last:
        iterations.append(min(iterations[-1] + min(1 + int(GROWTH * iterations[-1]), longest), last))
    return iterations


class Majorant:
    """p̃_k and its sums, in floats or balls; ``usable`` is false where the nodes are not."""

    def __init__(self, q: Quantities) -> None:
        places = shared.node_places(float(q["node_min"]), float(q["node_max"]))
        self.usable = places is not None and float(q["eta"]) > 0.0
        self.rates: list[tuple[Number, Number]] = []
        self.nu_squared: Number = 0.0
        if places is None or not self.usable:
            return
        eta = q["eta"]
        for name, place in zip(shared.MASSES, places, strict=True):
            mass, rate = q[name], eta * place
            if mass > 0.0:
                self.rates.append((rate, mass))
                worst = larger(1.0, rate)
                self.nu_squared = self.nu_squared + mass * worst * worst / place

    def __call__(self, k: int) -> Number:
        """p̃_k."""
        total: Number = 0.0
        for rate, mass in self.rates:
            total = total + mass * power_of_complement(rate, 2 * k)
        return sqrt(total)


@dataclass(frozen=True)
class Model:
    """The linear model at the marks: ``values`` p̃, ``total`` P, ``nu`` ν."""

    marks: list[int]
    values: list[Number]
    total: Number
    nu: Number


def model(q: Quantities) -> Model | None:
    """Marks, p̃ there, P = Σηp̃_k by the trapezoid rule over blocks and p̃_K/σ² beyond; ``None`` without usable
    nodes.

    A convex sequence sums to at most the trapezoid's: Σ_{i<n} p̃_{k+i} ≤ (n+1)/2 p̃_k + (n-1)/2 p̃_{k+n}.
    """
    majorant = Majorant(q)
    if not majorant.usable:
        return None
    iterations = marks(float(q["horizon"]))
    values = [majorant(k) for k in iterations]
    total: Number = 0.0
    for start, end, here, there in zip(iterations, iterations[1:], values, values[1:], strict=False):
        total = total + block_sum(end - start, here, there)
    total = q["eta"] * total + values[-1] / q["node_min"]
    return Model(iterations, values, total, sqrt(majorant.nu_squared))


def block_sum(n: int, first: Number, last: Number) -> Number:
    """Bound of the sum of n terms of a convex sequence from ``first``, of which the next is ``last``."""
    return 0.5 * ((n + 1) * first + (n - 1) * last)


def sigma(q: Quantities) -> Number:
    """σ."""
    return sqrt(q["node_min"])


def initial_norm(q: Quantities) -> Number:
    """z_0."""
    return sqrt(q["node_max"] + q["kappa"])


def perturbation(q: Quantities) -> Number:
    """ε."""
    shift, z0 = q["f"] * sigma(q), initial_norm(q)
    z = z0 + shift
    hidden = shared.sensitivity(q, z) * q["B"] * q["B"]
    return (2.0 * z0 + shift) * shift + hidden + z * q["tau"] + q["kappa"]


def path_sum(q: Quantities, blocks: Model) -> Number:
    """S ≥ Σ η‖r_k‖."""
    return blocks.total / (1.0 - perturbation(q) / q["node_min"])


def needed(q: Quantities, blocks: Model) -> tuple[Number, Number, Number]:
    """The least f, ρ and B that the radii in ``q`` admit."""
    S, s, epsilon = path_sum(q, blocks), sigma(q), perturbation(q)
    z = initial_norm(q) + q["f"] * s
    stretch = sqrt(1.0 + q["kappa"] / q["node_min"])
    path = stretch * (blocks.nu + epsilon / s * S) + (q["f"] * s + q["tau"]) * S
    return (
        shared.sensitivity(q, z) * q["B"] * S / s,
        shared.hidden_drift(q, z, S),
        q["norm_b"] + path,
    )


class Spectral(Theorem):
    """The theorem that knows the spectrum of the features and where the residual lies in it."""

    id = "implicit/spectral"
    statement = "The residual follows gradient descent on the frozen features, up to a certified perturbation T_k."
    reference = "surefoot, docs/theorems/implicit.md, Theorem 2"
    rule = "certified-constant"
    constant_steps = True
    base = ("initial_gap", "gamma", "norm_X", "norm_A", "norm_b", "kappa", *shared.MASSES)
    choices = ("eta", "f", "rho", "B", "tau", "delta", "node_min", "node_max", "horizon")

    def derived(self, q: Quantities) -> dict[str, Number]:
        blocks = model(q)
        values: dict[str, Number] = {"q": shared.contraction(q)}
        if blocks is None:
            return values
        values |= {"P": blocks.total, "nu": blocks.nu, "sigma": sigma(q), "z": initial_norm(q) + q["f"] * sigma(q)}
        if values["q"] < 1.0:
            values["c"], values["epsilon"] = shared.sensitivity(q, values["z"]), perturbation(q)
            if values["epsilon"] < q["node_min"]:
                values["S"] = path_sum(q, blocks)
        return values

    def conditions(self, q: Quantities) -> list[Inequality]:
        blocks = model(q)
        conditions = [
            Inequality("the features have full row rank: sigma^2 > kappa", q["node_min"], ">", q["kappa"]),
            Inequality("the map stays a contraction: gamma (|A| + rho) < 1", shared.contraction(q), "<", 1.0),
        ]
        if blocks is None:
            return [
                *conditions,
                Inequality("the nodes lie apart: node_max > 1.001 node_min", q["node_max"], ">", 1.001 * q["node_min"]),
                Inequality("the step is positive: eta > 0", q["eta"], ">", 0.0),
            ]
        if not all(c.certain for c in conditions):
            return conditions
        conditions.append(Inequality("the perturbation: epsilon < sigma^2", perturbation(q), "<", q["node_min"]))
        if not conditions[-1].certain:
            return conditions
        f, rho, B = needed(q, blocks)
        s = sigma(q)
        return [
            *conditions,
            Inequality("the step: eta (sigma^2 + z^2) <= 2", q["eta"] * (q["node_min"] + q["node_max"]), "<=", 2.0),
            Inequality("the features drift by at most f sigma: c B S <= f sigma", f * s, "<=", q["f"] * s),
            Inequality("A drifts by at most rho: (1+delta) gamma z B S/(1-q) <= rho", rho, "<=", q["rho"]),
            Inequality("b stays below B: |b0| + its path <= B", B, "<=", q["B"]),
        ]

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        yield from chain(q, schedule)
        yield from shared.signs(q)
        # counts to a target are relative to the first level: a higher one would let the first block fall by any factor
        yield Inequality("the first level is the initial gap", schedule[0].level, "<=", q["initial_gap"])
        blocks = model(q)
        assert blocks is not None
        yield Inequality("one segment for each block, and an endless one", len(schedule), ">=", len(blocks.marks))
        yield Inequality("no segment beyond", len(schedule), "<=", len(blocks.marks))
        yield Inequality("the blocks reach the horizon", blocks.marks[-1], ">=", q["horizon"])
        yield Inequality("no block lies beyond the horizon", blocks.marks[-1], "<=", q["horizon"])
        step = q["eta"] * (q["node_min"] - perturbation(q))
        for index, ((first, last), segment) in enumerate(zip(levels(q, blocks), schedule, strict=False)):
            where = f"segment {index}"
            yield Inequality(f"{where}: is a block of the model", segment.start, "<=", blocks.marks[index])
            yield Inequality(f"{where}: is a whole block of it", segment.start, ">=", blocks.marks[index])
            yield from starts_with(segment, q["eta"])
            count = blocks.marks[index + 1] - blocks.marks[index]
            yield Inequality(
                f"{where}: ends with its block", -1 if segment.count is None else segment.count, ">=", count
            )
            if index > 0:
                yield Inequality(f"{where}: starts above the model", segment.level, ">=", first)
            else:  # iteration 0 alone: the gap is the initial one, which may be below the model, and one step is left
                last = smaller(last, q["initial_gap"] * (1.0 - step) * (1.0 - step))
            end = segment.level * (1.0 - segment.decrease) ** count
            yield Inequality(f"{where}: ends above the model", end, ">=", last)
        final = schedule[-1]
        yield from starts_with(final, q["eta"])
        yield Inequality("the last decrease is that of one step", step * (2.0 - step), ">=", final.decrease)


def levels(q: Quantities, blocks: Model) -> Iterator[tuple[Number, Number]]:
    """For each block, bounds of the gap at its start and end such that the geometric interpolation of them bounds it
    in between: ½(p̃_k + C)² with C ≥ T_k on the whole block, since p̃_k + C is log-convex."""
    eta, epsilon = q["eta"], perturbation(q)
    # any larger factor below 1 is a bound too; this one keeps the quotient below finite. Not 1 - factor below: in floats the
    # difference loses a small fall, and long blocks with it
    fall = smaller(eta * (q["node_min"] - epsilon), 0.75)
    factor = 1.0 - fall
    T: Number = 0.0
    for start, end, here, there in zip(blocks.marks, blocks.marks[1:], blocks.values, blocks.values[1:], strict=False):
        n = end - start
        highest = T + eta * epsilon * block_sum(n, here, there)
        first, last = here + highest, there + highest
        yield 0.5 * first * first, 0.5 * last * last
        # the terms a^{n-1-i} p̃_{k+i} are log-convex in i too
        decayed = power_of_complement(fall, n - 1)
        T = decayed * factor * T + eta * epsilon * block_sum(n, decayed * here, there / factor)


THEOREM = Spectral()
