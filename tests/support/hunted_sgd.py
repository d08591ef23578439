"""A hunt for mini-batch runs that leave the ball of their certificate, or exceed its bound more often than it says.

Maps with known constants (diagonal and full quadratic ones) go through ``choose`` and the theorem's formulas, small networks
through ``sf.sgd.certify``. Each problem is scaled to within a factor of two of the edge of the conditions.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

import surefoot as sf
from surefoot._core.certificate import publish
from surefoot._core.minibatch import choose, schedule
from surefoot._core.schedule import gap_at, iterations_to
from surefoot_check.minibatch import DIRECTIONS, Minibatch
from surefoot_check.rigor.approximation import Approximation
from surefoot_check.rigor.batch_norms import blocks_on_diagonal, largest_norm_square, second_moment
from surefoot_check.rigor.bounds import FAST
from surefoot_check.statement import Schedule
from surefoot_experiments.sgd_runs import Certified, Iterates, Networks, run

RUNS = 50
"""Of each problem."""
CHANCES = (0.9, 0.5, 0.1, 0.01)
"""δ."""
AIM = 1e-3
"""Relative gap to which runs are followed."""
LONGEST = 1500
"""Problems with larger counts are passed over."""
ROUNDING = 1e-9
"""Relative, of what is sure."""


@dataclass
class Count:
    """What a hunt found, by δ where it depends on that."""

    problems: Counter[str] = field(default_factory=Counter)
    runs: Counter[float] = field(default_factory=Counter)
    above: Counter[float] = field(default_factory=Counter)
    left: Counter[float] = field(default_factory=Counter)
    looseness: list[float] = field(default_factory=list)
    sure_distance: float = 0.0
    sure_gap: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __iadd__(self, other: Count) -> Count:
        self.problems += other.problems
        self.runs, self.above, self.left = self.runs + other.runs, self.above + other.above, self.left + other.left
        self.looseness += other.looseness
        self.sure_distance = max(self.sure_distance, other.sure_distance)
        self.sure_gap = max(self.sure_gap, other.sure_gap)
        self.violations += other.violations
        return self

    def __str__(self) -> str:
        lines = [f"{self.problems.total()} problems: {dict(self.problems)}; {len(self.violations)} violations"]
        lines += [
            f"  delta {delta}: {self.runs[delta]} runs, above the bound {self.above[delta]}, out of the ball {self.left[delta]}"
            for delta in CHANCES
        ]
        if self.looseness:
            lines.append(f"  guaranteed/taken: median {np.median(self.looseness):.3g}, least {min(self.looseness):.3g}")
        lines.append(f"  sure distance: at most {self.sure_distance:.3g} of the bound; sure gap: {self.sure_gap:.3g}")
        return "\n".join([*lines, *self.violations])


@dataclass(frozen=True)
class Certificate:
    """That of a map with known constants."""

    quantities: Mapping[str, float]
    schedule: Schedule

    def bound(self, t: int) -> float:
        """Of the gap after t iterations."""
        return gap_at(next(segment for segment in reversed(self.schedule) if segment.start <= t), t)

    def iterations_to(self, target: float) -> float:
        """Guaranteed, to a relative gap."""
        return iterations_to(self.schedule, target)


class Known(Minibatch):
    """The theorem about a map with known constants."""

    id = "hunt/known"
    statement = reference = "Theorems S and S'"


class Quadratics:
    """Copies of θ = 0 with the residual r_0 + Jθ + ½(θᵀA_iθ)_i, of which a sample has one row."""

    def __init__(self, r0: np.ndarray, J: np.ndarray, A: np.ndarray, copies: int = RUNS) -> None:
        self._r0, self._J, self._A = (torch.from_numpy(part) for part in (r0, J, A))
        self._theta = torch.zeros(copies, J.shape[1], dtype=torch.float64)

    def _bent(self) -> Tensor:
        """A_iθ (R, q, p)."""
        return torch.einsum("qij,rj->rqi", self._A, self._theta)

    def _residuals(self, bent: Tensor) -> Tensor:
        return self._r0 + self._theta @ self._J.T + 0.5 * torch.einsum("rqi,ri->rq", bent, self._theta)

    def step(self, rows: Tensor, h: float) -> None:
        bent = self._bent()
        taken = torch.zeros(len(rows), len(self._r0), dtype=torch.float64).scatter_(1, rows, 1.0)
        self._theta = self._theta - h * torch.einsum("rq,rqi->ri", taken * self._residuals(bent), self._J + bent)

    def gaps(self) -> Tensor:
        return 0.5 * self._residuals(self._bent()).square().sum(dim=1)

    def distances(self) -> Tensor:
        return self._theta.norm(dim=1)


Made = tuple[Certified, Callable[[], Iterates]]


def hunted(seed: int) -> Count:
    """One problem; none where its count is too large."""
    draw, count = np.random.default_rng(seed), Count()
    samples = int(draw.integers(4, 9))
    size, delta = int(draw.integers(1, samples + 1)), float(draw.choice(CHANCES))
    kind = ("diagonal", "quadratic", "tanh", "linear")[seed % 4]
    make = _network if kind in ("tanh", "linear") else _map
    made = make(kind, draw, samples, size, delta)
    if made is None:
        return count
    certificate, iterates = made
    limit = math.ceil(certificate.iterations_to(AIM))  # pyright: ignore[reportAttributeAccessIssue]
    if limit > LONGEST:
        return count
    generator = torch.Generator().manual_seed(seed)

    def batches(t: int) -> Tensor:
        return torch.rand(RUNS, samples, generator=generator).argsort(dim=1)[:, :size]

    q = certificate.quantities
    found = run(iterates(), batches, certificate, AIM * q["initial_gap"], limit=limit, to_the_end=True)
    count.problems[kind] += 1
    count.runs[delta], count.above[delta], count.left[delta] = RUNS, found.above, found.left
    late = [taken for taken in found.taken if taken is not None]
    if late:
        count.looseness.append(limit / float(np.median(late)))
    if "sure_gap" in q:
        count.sure_distance = found.sure_distance / q["sure_distance"]
        count.sure_gap = found.sure_gap / q["sure_gap"]
        for what, ratio in (("distance", count.sure_distance), ("gap", count.sure_gap)):
            if ratio > 1.0 + ROUNDING:
                count.violations.append(f"problem {seed} ({kind}): the sure {what} is exceeded by the factor {ratio!r}")
    if max(found.above, found.left) > _most(delta):
        count.violations.append(f"problem {seed} ({kind}): {found.above} above, {found.left} left, delta {delta}")
    return count


def _most(delta: float) -> int:
    """Runs that may break a bound of this δ, but for a chance of less than one in a million."""
    tail = 1.0
    for number in range(RUNS + 1):
        tail -= math.comb(RUNS, number) * delta**number * (1.0 - delta) ** (RUNS - number)
        if tail < 1e-6:
            return number
    return RUNS


def _at_the_edge(attempt: Callable[[float], Made | None]) -> Made | None:
    """The first that holds of smaller and smaller residuals."""
    size = 1.0
    for _ in range(8):
        made = attempt(size)
        if made is not None:
            return made
        size *= 0.5
    return None


def _map(kind: str, draw: np.random.Generator, samples: int, size: int, delta: float) -> Made | None:
    if kind == "diagonal":
        J = np.hstack([np.diag(draw.uniform(0.3, 1.0, samples)), np.zeros((samples, samples))])
        bends = draw.uniform(0.2, 1.0, samples)
        A = np.zeros((samples, 2 * samples, 2 * samples))
        for i, bend in enumerate(bends):
            A[i, samples + i, samples + i] = -bend
        moved = J[:, :samples].T @ draw.standard_normal(samples)
        J[:, samples:] = np.diag(0.2 * draw.standard_normal(samples))
    else:
        J = draw.standard_normal((samples, 2 * samples)) + 2.0 * np.eye(samples, 2 * samples)
        A = draw.standard_normal((samples, 2 * samples, 2 * samples))
        A = 0.5 * (A + A.transpose(0, 2, 1)) / samples
        moved = draw.standard_normal(samples)
    bend = math.sqrt(float(np.linalg.eigvalsh(np.einsum("qij,qjk->ik", A, A))[-1])) * (1.0 + 1e-9)
    if kind == "diagonal":
        bend = float(np.abs(A).max())
    values = np.linalg.svd(J, compute_uv=False)
    K = Approximation(0.5 * (J @ J.T + (J @ J.T).T), 1e-14 * float(values[0]) ** 2 * samples)
    largest = float(values[0]) ** 2 * (1.0 + 1e-9)
    norm = math.sqrt(largest_norm_square(K, 1, size, largest, FAST))
    mean = math.sqrt(second_moment(K, blocks_on_diagonal(K, 1), samples, size, largest, FAST))

    def on_ball(radius: float) -> dict[str, float]:
        way = bend * radius
        ends = {
            "norm_J_ball": math.sqrt(largest) + way,
            "lipschitz_J": bend,
            "lipschitz_batch": bend,
            "norm_batch": norm + way,
            "second_moment": (mean + way) ** 2,
            "sigma": max(0.0, float(values[-1]) * (1.0 - 1e-9) - way),
        }
        return publish({name: (end, end) for name, end in ends.items()}, DIRECTIONS | {"sigma": "lower"})

    unit = 0.5 * float(values[-1]) / bend / float(np.linalg.norm(np.linalg.pinv(J) @ moved))

    def attempt(scale: float) -> Made | None:
        r0 = scale * unit * moved
        step = float(np.linalg.norm(np.linalg.pinv(J) @ r0)) * (1.0 + 1e-9)
        start = {
            "initial_gap": 0.5 * float(r0 @ r0) * (1.0 + 1e-9),
            "newton_step": step,
            "sigma_min_J": float(values[-1]) * (1.0 - 1e-9),
        }
        q = choose(Known(), start, on_ball, size, samples, delta, AIM)
        if not all(condition.certain for condition in Known().conditions(q)):
            return None
        found = schedule(Known(), q)
        assert all(obligation.certain for obligation in Known().obligations(q, found))
        return Certificate({**q, **Known().derived(q)}, found), lambda: Quadratics(r0, J, A)  # pyright: ignore[reportReturnType]

    return _at_the_edge(attempt)


def _network(kind: str, draw: np.random.Generator, samples: int, size: int, delta: float) -> Made | None:
    inputs, outputs = samples, int(draw.integers(1, 3))
    widths = [inputs, *[int(draw.integers(12, 33)) for _ in range(int(draw.integers(1, 3)))], outputs]
    modules: list[nn.Module] = []
    for before, width in itertools.pairwise(widths):
        modules += [nn.Linear(before, width, dtype=torch.float64), nn.Tanh()]
    net = nn.Sequential(*[part for part in modules[:-1] if kind == "tanh" or isinstance(part, nn.Linear)])
    gain = draw.uniform(0.7, 1.5)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.from_numpy(gain * draw.standard_normal(tuple(p.shape)) / math.sqrt(p.shape[-1])))
    X = torch.from_numpy(draw.standard_normal((samples, inputs)))
    error = torch.from_numpy(draw.standard_normal((samples, outputs)))
    f = net(X).detach()
    start = 0.1 * float(f.norm())

    def attempt(scale: float) -> Made | None:
        Y = f + scale**3 * start * error / error.norm()
        certificate = sf.sgd.certify(net, X, Y, size, delta=delta, target=AIM)
        return (certificate, lambda: Networks(net, X, Y, RUNS)) if certificate.holds else None

    return _at_the_edge(attempt)
