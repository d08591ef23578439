"""The lemmas of the implicit ReLU paper, and runs under its two theorems, as numbers on networks small enough to write out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from surefoot._core.descent import certify, descend
from surefoot._core.losses import SquaredLoss
from surefoot._implicit.flow import gradient_flow
from surefoot._implicit.network import ImplicitReLU

from .draws import gaussian, repeat_generator
from .implicit_data import PAPER
from .implicit_lemmas_verdict import findings
from .implicit_written import Written, least, norm
from .result import Cell, Experiment, Progress, Table

CONTRACTIONS = (0.1, 0.5, 0.9)
CHANGES = (1e-3, 1e-1, 1.0)
"""Sizes of the changes of the weights in Lemma 4.3, beside entries of N(0, 1)."""
SIZES = (1, 2, 4)
SCALES = {1: 10.0, 2: 10.0, 4: 30.0}
"""β of the runs: the theorems hold at it, by the number of samples."""
RATIO = 1e-3
SHORT = 1e-5
"""Part of the residual by which it moves where velocities along the flow are measured, both ways."""
POINTS = 41
"""In time, of a flow."""

RUN_COLUMNS = (
    "theorem",
    "N",
    "guaranteed",
    "needed",
    "guaranteed / needed",
    "largest loss / bound",
    "norms / lambda at the end",
    "sigma_min(Z) / (alpha0/2) at the end",
)

Instances = dict[str, list[Written]]
"""By name; the draws of one kind."""


def lemmas(
    draws: int = 200,
    sizes: Sequence[int] = SIZES,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
) -> Experiment:
    """Lemmas 3.1 to 5.1, the bounds of section 4.1, and runs under Theorems 4.2 and 4.4.

    Args:
        draws: random instances of each kind.
        sizes: samples of the runs.
    """
    progress("lemmas")
    drawn = instances(draws, seed)
    tables = (
        spectrum_of_Q(drawn),
        lower_bounds(drawn),
        gradients(drawn),
        equilibria(draws, seed),
    )
    progress("runs under Theorems 4.2 and 4.4")
    tables = (*tables, runs(sizes))
    return Experiment(
        name="implicit/lemmas",
        title="Lemmas of the paper on implicit networks as numbers",
        reference=f"{PAPER}, Lemmas 3.1, 3.2, 4.1, 4.3 and 5.1, section 4.1, Theorems 4.2 and 4.4",
        tables=tables,
        figures=(),
        findings=findings(tables),
        settings={
            "draws": draws,
            "random instances": "N = 3, d = 4, m = 6; entries N(0, 1), where positive their absolute values; gamma = gamma0/|A|",
            "runs": "X = I, W = beta I, A = beta I, b = 0, gamma = 0.05/beta, labels 1",
        },
    )


def instances(draws: int, seed: int) -> Instances:
    """Three small networks, and random ones of three kinds for each γ0."""
    one = torch.ones(1, 1, dtype=torch.float64)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    single = {
        "A = I, all units active": Written(
            torch.eye(2, dtype=torch.float64) + 1.0, turn.abs() + 1.0, turn @ turn.mT, one[0].repeat(2), 0.5
        ),
        "rotation by 90 degrees": Written(one, torch.tensor([[1.0, 2.0]]).double(), turn, one[0].repeat(2), 0.5),
        "one unit, A = -1": Written(one, 2.0 * one, -one, one[0], 0.5),
    }
    found = {name: [instance] for name, instance in single.items()}
    for kind in ("Gaussian", "positive", "positive X and W, negative A"):
        for contraction in CONTRACTIONS:
            generator = repeat_generator(seed, 0)
            found[f"{kind}, gamma0 = {contraction:g}"] = [_random(kind, contraction, generator) for _ in range(draws)]
    return found


def _random(kind: str, contraction: float, generator: torch.Generator) -> Written:
    X, W, A, b = (gaussian(*size, generator) for size in ((3, 4), (4, 6), (6, 6), (6, 1)))
    if kind != "Gaussian":
        X, W, A = X.abs(), W.abs(), A.abs()
    if kind.endswith("negative A"):
        A = -A
    return Written(X, W, A, b[:, 0], contraction / norm(A))


def spectrum_of_Q(drawn: Instances) -> Table:
    """Lemma 3.2 beside what holds."""
    columns = (
        "instances",
        "draws",
        "1 - gamma0",
        "least sigma(Q)",
        "least Re lambda(Q)",
        "largest Im lambda(Q)",
    )
    rows: list[tuple[Cell, ...]] = []
    for name, of in drawn.items():
        values = [torch.linalg.eigvals(instance.Q) for instance in of]
        real, imaginary = (min(float(v.real.min()) for v in values), max(float(v.imag.abs().max()) for v in values))
        rows.append((name, len(of), 1.0 - of[0].contraction, min(least(i.Q) for i in of), real, imaginary))
    return Table("Lemma 3.2: the matrix Q", columns, tuple(rows))


def lower_bounds(drawn: Instances) -> Table:
    """The lower bounds of σ_min(M) and σ_min(Π) in section 4.1, where all units are active: else they are 0."""
    columns = (
        "instances",
        "all units active",
        "least sigma_min(M) / printed",
        "least sigma_min(M) / corrected",
        "least sigma_min(Pi) / printed",
        "least sigma_min(Pi) / corrected",
    )
    rows: list[tuple[Cell, ...]] = []
    for name, of in drawn.items():
        active = [instance for instance in of if instance.active]
        if not active:
            continue
        ratios = []
        for part in ("M", "Pi"):
            for sign in (-1.0, 1.0):  # 1/(1 - γ0) as printed, 1/(1 + γ0)
                ratios.append(min(_lower(instance, part, sign) for instance in active))
        rows.append((name, len(active), *ratios))
    return Table("section 4.1: lower bounds", columns, tuple(rows))


def _lower(instance: Written, part: str, sign: float) -> float:
    size = float(torch.linalg.vector_norm(instance.b)) / (1.0 + sign * instance.contraction)
    if part == "M":
        return least(instance.M) / (instance.gamma * size * least(instance.Z))
    return least(instance.Pi) / (size * least(instance.X))


def gradients(drawn: Instances) -> Table:
    """(7) to (9) against the gradient of the library, and (10) against velocities along the flow; relative differences."""
    columns = ("instances", "(7), W", "(8), A", "(9), b", "(11), H", "(10), velocity")
    rows: list[tuple[Cell, ...]] = []
    for name, of in drawn.items():
        worst = [max(values) for values in zip(*(_differences(instance) for instance in of[:20]), strict=True)]
        rows.append((name, *worst))
    return Table("Lemmas 3.2 and 4.1: gradients and velocities", columns, tuple(rows))


def _differences(instance: Written) -> list[float]:
    y = torch.linspace(-1.0, 1.0, len(instance.X), dtype=torch.float64) + 0.5
    r = instance.Z @ instance.b - y
    own = instance.net.gradient(instance.X, y)
    printed = instance.Pi.mT @ r, instance.M.mT @ r, instance.Z.mT @ r
    theirs = own.W.mT.reshape(-1), own.A.mT.reshape(-1), own.b.reshape(-1)
    time = SHORT / norm(instance.H)
    after, before = (moved.Z @ moved.b for moved in (instance.moved(y, sign * time) for sign in (1.0, -1.0)))
    velocity = (after - before) / (2.0 * time)
    pairs = [*zip(printed, theirs, strict=True), (instance.H, instance.net.gram(instance.X))]
    return [_relative(a, b) for a, b in pairs] + [_relative(velocity, -instance.H @ r)]


def _relative(a: Tensor, b: Tensor) -> float:
    return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(b))


def equilibria(draws: int, seed: int) -> Table:
    """Both sides of Lemmas 3.1, 4.3 and 5.1, and of α0 ≥ σ_min(Φ)/(1+γ0) below the last."""
    columns = (
        "gamma0",
        "change of the weights",
        "largest |Z|_F / (Lemma 3.1)",
        "largest |Z_a - Z_b| / (16)",
        "largest distance from Lemma 5.1",
        "least alpha0 (1+gamma0) / sigma_min(Phi)",
    )
    rows = [_row(CONTRACTIONS[1], CHANGES[0], [_single(CONTRACTIONS[1], CHANGES[0])])]
    for contraction in CONTRACTIONS:
        for change in CHANGES:
            generator = repeat_generator(seed, 1)
            rows.append(_row(contraction, change, [_pair(contraction, change, generator) for _ in range(draws)]))
    titles = ["one unit", *["random"] * (len(rows) - 1)]
    return Table(
        "Lemmas 3.1, 4.3 and 5.1: equilibria",
        ("instances", *columns),
        tuple((title, *row) for title, row in zip(titles, rows, strict=True)),
    )


Pair = tuple[Written, Written]


def _single(contraction: float, change: float) -> Pair:
    """One unit with A > 0, of which both weights grow."""
    one = torch.ones(1, 1, dtype=torch.float64)
    gamma = contraction / (1.0 + change)
    return Written(one, one, one, one[0], gamma), Written(
        one, (1.0 + change) * one, (1.0 + change) * one, one[0], gamma
    )


def _pair(contraction: float, change: float, generator: torch.Generator) -> Pair:
    """A draw, and the same weights moved by ``change`` in every entry on average; A of the first without negative entries."""
    X, W, A, b = (gaussian(*size, generator) for size in ((3, 4), (4, 6), (6, 6), (6, 1)))
    A, other = A.abs(), A.abs() + change * gaussian(6, 6, generator)
    gamma = contraction / max(norm(A), norm(other))
    return Written(X, W, A, b[:, 0], gamma), Written(X, W + change * gaussian(4, 6, generator), other, b[:, 0], gamma)


def _row(contraction: float, change: float, pairs: Sequence[Pair]) -> tuple[Cell, ...]:
    first = [a for a, _ in pairs]
    growth = max(
        float(i.Z.norm()) * (1.0 - contraction) / float(i.Phi.norm()) for pair in pairs for i in pair if i.Phi.any()
    )
    moved = max(norm(a.Z - b.Z) / _lipschitz(a, b, contraction) for a, b in pairs)
    identity = torch.eye(len(first[0].A), dtype=torch.float64)
    closed = max(_relative(a.Z, a.Phi @ torch.linalg.inv(identity - a.gamma * a.A)) for a in first if a.Phi.any())
    ranked = [least(a.Z) * (1.0 + contraction) / least(a.Phi) for a in first if least(a.Phi) > 1e-9]
    return contraction, change, growth, moved, closed, min(ranked)


def _lipschitz(a: Written, b: Written, contraction: float) -> float:
    """The right side of (16)."""
    l1, l2 = max(norm(a.W), norm(b.W)), max(norm(a.A), norm(b.A))
    slope = 1.0 - contraction
    change = contraction / slope * l1 / l2 * norm(a.A - b.A) + norm(a.W - b.W)
    return float(a.X.norm()) / slope * change


def runs(sizes: Sequence[int]) -> Table:
    """Both theorems on networks of N samples and units, for which their counts are small enough to be run."""
    rows = [row for N in sizes for row in (_flow(N), _descent(N))]
    return Table(f"Theorems 4.2 (time) and 4.4 (iterations) to a loss ratio of {RATIO:g}", RUN_COLUMNS, tuple(rows))


def _start(N: int) -> tuple[ImplicitReLU, SquaredLoss]:
    identity, beta = torch.eye(N, dtype=torch.float64), SCALES[N]
    net = ImplicitReLU(beta * identity, beta * identity, torch.zeros(N, dtype=torch.float64), 0.05 / beta)
    return net, SquaredLoss(identity, torch.ones(N, dtype=torch.float64))


def _flow(N: int) -> tuple[Cell, ...]:
    net, loss = _start(N)
    certificate = certify(net, loss, "implicit/flow")
    q = certificate.quantities
    rate = 0.5 * q["sigma_min_Z"] ** 2
    guaranteed = math.log(1.0 / RATIO) / rate
    times = torch.linspace(0.0, guaranteed, POINTS, dtype=torch.float64)
    flow = gradient_flow(net, loss, times)
    ratios = [gap / flow.gaps[0] for gap in flow.gaps]
    needed = _time_of(flow.times.tolist(), ratios)
    bound = max(ratio * math.exp(rate * float(t)) for t, ratio in zip(flow.times, ratios, strict=True))
    return "4.2", N, guaranteed, needed, guaranteed / needed, bound, *_end(net, q)


def _time_of(times: Sequence[float], ratios: Sequence[float]) -> float:
    """When the ratio falls to ``RATIO``; between the times its logarithm is taken as linear."""
    last = next(k for k, ratio in enumerate(ratios) if ratio <= RATIO)
    (t, a), (u, b) = ((times[k], math.log(ratios[k])) for k in (last - 1, last))
    return t + (u - t) * (a - math.log(RATIO)) / (a - b)


def _descent(N: int) -> tuple[Cell, ...]:
    net, loss = _start(N)
    certificate = certify(net, loss, "implicit/gd")
    guaranteed = int(certificate.iterations_to(RATIO))
    run = descend(net, loss, certificate=certificate, tolerance=RATIO, max_iterations=guaranteed, progress=False)
    bound = max(gap / certificate.bound(t) for t, gap in enumerate(run.gaps))
    end = _end(net, certificate.quantities)
    return "4.4", N, guaranteed, run.iterations, guaranteed / run.iterations, bound, *end


def _end(net: ImplicitReLU, q: Mapping[str, float]) -> tuple[float, float]:
    """How much of their bounds norms and features use where the run ended: (i) and (ii) of both theorems."""
    norms = norm(net.W.detach()) / q["l1"], norm(net.A.detach()) / q["l2"], float(net.b.detach().norm()) / q["l3"]
    Z = net.equilibrium(torch.eye(net.width, dtype=torch.float64)).Z
    return max(norms), least(Z) / (0.5 * q["sigma_min_Z"])
