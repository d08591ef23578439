"""Section 5 of the implicit ReLU paper as numbers: which weights satisfy (17) to (19), and how large random ones are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from surefoot._core import charts
from surefoot_check.implicit import gd

from .draws import gaussian, repeat_generator
from .implicit_data import PAPER
from .implicit_runs import largest_eigenvalue
from .implicit_written import least, norm
from .result import Experiment, Finding, Plot, Progress, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INPUTS = 20
CONTRACTION = 0.5
"""γ0 of section 5."""
NEAR = 0.1
"""A power of the width counts as the stated one where it is measured to within this."""


@dataclass(frozen=True)
class Start:
    """Random weights of section 5.2, (27), and what the paper says of them, in units of what it says they are."""

    width: int
    norm_A: float
    norm_W: float
    norm_b: float
    features: float  # ‖Φ(I - γA)⁻¹‖
    outputs: float  # ‖ŷ(0)‖
    smallest: float  # σ_min(Φ)²
    trace: float  # of ΦΦᵀ, over N m
    ratios: tuple[float, float, float]  # left sides of (17) to (19) over their right sides


def initialisation(
    widths: Sequence[int] = (100, 200, 400, 800, 1600, 3200),
    draws: int = 10,
    samples: Sequence[int] = (5, 10, 20, 40),
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
) -> Experiment:
    """Sections 5.1 and 5.2: the least β of a linear width, and sizes of random weights by width.

    Args:
        widths: of the random networks, for ``samples[1]`` samples.
        draws: of the weights, at each width.
        samples: N of the other tables.
    """
    N = samples[1]
    X, y = inputs(N, seed), labels(N)
    exact = limit_gram(X)
    starts: dict[int, list[Start]] = {}
    for width in widths:
        progress(f"m = {width}")
        starts[width] = [start(X, y, width, repeat_generator(seed, 1 + draw)) for draw in range(draws)]
    smallest = float(torch.linalg.eigvalsh(exact)[0])
    sizes, conditions = sizes_table(starts, X, smallest), conditions_table(starts)
    limits, scales = limits_table(samples, seed), scales_table(samples, seed)
    return Experiment(
        name="implicit/initialisation",
        title="Initial weights of implicit networks beside the conditions of Theorem 4.4",
        reference=f"{PAPER}, section 5",
        tables=(scales, sizes, conditions, limits),
        figures=(Plot("initialisation.png", lambda: _draw(sizes)),),
        findings=(
            _scale_finding(scales),
            *_size_findings(sizes, N),
            *_limit_findings(limits),
            _condition_finding(conditions),
        ),
        settings={
            "inputs": f"N rows of norm 1, uniform on the sphere in {INPUTS} dimensions; labels -1 and 1",
            "N of the tables by width": N,
            "draws": f"{draws} at each width; means over them",
            "weights of section 5.2": "b ~ N(0, 1/m), A half-normal, W ~ N(0, 1); gamma (|A| + 1) = 1/2, C1 = C2 = C3 = 1",
            "weights of section 5.1": "W ~ N(0, 1/m), A = |W| I, b = 0, times beta; m = 4 N, gamma0 = 1/2, C1 = C2 = C3 = 1",
        },
    )


def inputs(N: int, seed: int) -> Tensor:
    """Unit rows (N, d); the first N of a larger draw, so that they do not depend on N otherwise."""
    rows = gaussian(N, INPUTS, repeat_generator(seed, 0))
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)


def labels(N: int) -> Tensor:
    """-1 and 1 in turn (N,)."""
    return torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(N)[:N]


def limit_gram(X: Tensor) -> Tensor:
    """G* = E σ(Xw)σ(Xw)ᵀ (N, N) for w ~ N(0, I) and rows of norm 1: (sin θ + (π - θ) cos θ)/2π at an angle θ."""
    cosine = (X @ X.T).clamp(-1.0, 1.0)
    angle = cosine.arccos().fill_diagonal_(0.0)
    return (angle.sin() + (math.pi - angle) * angle.cos()) / (2.0 * math.pi)


def start(X: Tensor, y: Tensor, m: int, generator: torch.Generator) -> Start:
    """One draw of (27)."""
    b = gaussian(m, 1, generator)[:, 0] / math.sqrt(m)
    A, W = gaussian(m, m, generator).abs(), gaussian(X.shape[1], m, generator)
    size = math.sqrt(largest_eigenvalue(A @ A.T))  # a positive matrix: few iterations
    gamma = CONTRACTION / (size + 1.0)
    Phi = (X @ W).relu()
    Z = torch.linalg.solve(torch.eye(m, dtype=A.dtype) - gamma * A, Phi, left=False)  # Lemma 5.1
    r = Z @ b - y
    norms = size, norm(W), float(b.norm())
    return Start(
        m,
        *norms,
        norm(Z),
        float((Z @ b).norm()),
        least(Phi) ** 2,
        float(Phi.square().mean()),
        _ratios(X, Z, r, norms, gamma),
    )


def _ratios(X: Tensor, Z: Tensor, r: Tensor, norms: Sequence[float], gamma: float) -> tuple[float, float, float]:
    """How far the conditions of Theorem 4.4 are from holding at C1 = C2 = C3 = 1: they hold from 1 on."""
    q = dict(zip(("norm_A", "norm_W", "norm_b"), norms, strict=True)) | {
        "gamma": gamma,
        "C1": 1.0,
        "C2": 1.0,
        "C3": 1.0,
    }
    q |= {"frobenius_X": float(X.norm()), "sigma_min_Z": least(Z), "initial_gap": 0.5 * float(r @ r)}
    sides = {c.name: (float(c.right) / float(c.left) if c.relation == "<=" else math.inf) for c in gd.hypotheses(q)}
    first, second, third = (
        min(ratio for name, ratio in sides.items() if name.startswith(label)) for label in ("(17)", "(18)", "(19)")
    )
    return first, second, third


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def sizes_table(starts: dict[int, list[Start]], X: Tensor, smallest: float) -> Table:
    """Norms of the random weights and of what follows from them, by width."""
    columns = (
        "m",
        "|A|/sqrt(m)",
        "|A|/m",
        "|W|/sqrt(m)",
        "|b|",
        "|Phi (I - gamma A)^(-1)|/|X|_F",
        "|y^(0)|/|X|_F",
        "least sigma_min(Phi)^2/(m lambda*)",
        "tr(Phi Phi^T)/(m N)",
    )
    F = float(X.norm())
    rows = []
    for m, of in starts.items():
        A, root = _mean([s.norm_A for s in of]), math.sqrt(m)
        norms = A / root, A / m, _mean([s.norm_W for s in of]) / root, _mean([s.norm_b for s in of])
        features, outputs = _mean([s.features for s in of]) / F, _mean([s.outputs for s in of]) / F
        rows.append(
            (m, *norms, features, outputs, min(s.smallest for s in of) / (m * smallest), _mean([s.trace for s in of]))
        )
    return Table("section 5.2: random weights", columns, tuple(rows))


def conditions_table(starts: dict[int, list[Start]]) -> Table:
    """Left over right sides of the conditions, on average."""
    rows = tuple((m, *(_mean([s.ratios[k] for s in of]) for k in range(3))) for m, of in starts.items())
    return Table("section 5.2: left over right side", ("m", "(17)", "(18)", "(19)"), rows)


def limits_table(samples: Sequence[int], seed: int) -> Table:
    """The limit of the Gram matrix of Φ, over m."""
    rows = []
    for N in samples:
        values = torch.linalg.eigvalsh(limit_gram(inputs(N, seed)))
        rows.append((N, float(values.sum()) / N, float(values[0]), N * N / float(values[0]) ** 2))
    return Table(
        "section 5.2: the limit of the Gram matrix", ("N", "tr(G*)/N", "lambda*", "N^2/lambda*^2"), tuple(rows)
    )


def scales_table(samples: Sequence[int], seed: int) -> Table:
    """The least β of section 5.1 for each of (24), (25) and (26)."""
    rows = []
    for N in samples:
        X, y, m = inputs(N, seed), labels(N), 4 * N
        W = gaussian(INPUTS, m, repeat_generator(seed, 1)) / math.sqrt(m)
        part, size = 2.0 / 3.0 * least((X @ W).relu()), norm(W)
        F, Y = float(X.norm()), float(y.norm())
        slope = 8.0 * size * F * Y / part**2  # (24): (part β)² ≥ 16 (size β + 1) F Y
        first = slope + math.sqrt(slope**2 + 16.0 * F * Y / part**2)
        scales = first, (128.0 * F * F * Y) ** (1.0 / 3.0) / part, math.sqrt(128.0) * F / part
        rows.append((N, m, 1.5 * part, *scales, min(_scaled_ratios(X, y, max(scales) * W))))
    columns = "N", "m", "sigma_min(Phi)", "(24)", "(25)", "(26)", "left over right of (17) to (19) there"
    return Table("section 5.1: least beta", columns, tuple(rows))


def _scaled_ratios(X: Tensor, y: Tensor, W: Tensor) -> tuple[float, float, float]:
    """``_ratios`` of the weights W, A = ‖W‖I and b = 0 of section 5.1."""
    size = norm(W)
    gamma = CONTRACTION / (size + 1.0)
    return _ratios(X, (X @ W).relu() / (1.0 - gamma * size), -y, (size, size, 0.0), gamma)


# -- findings ----------------------------------------------------------------------------------------------------------


def _column(table: Table, name: str) -> list[float]:
    return [float(str(cell)) for cell in table.column(name)]


def power(widths: Sequence[float], values: Sequence[float]) -> float:
    """The power of the width at which values grow, by least squares of the logarithms."""
    x, y = (torch.tensor(list(v), dtype=torch.float64).log() for v in (widths, values))
    x = x - x.mean()
    return float(x @ y / (x @ x))


def _scale_finding(table: Table) -> Finding:
    scales = [max(values) for values in zip(*(_column(table, name) for name in ("(24)", "(25)", "(26)")), strict=True)]
    ratio = min(_column(table, "left over right of (17) to (19) there"))
    return Finding(
        "A linear width suffices: (17) to (19) hold for a large beta (section 5.1).",
        f"from beta = {', '.join(f'{beta:.3g}' for beta in scales)} on; the least ratio of their sides there is {ratio:.3g}",
        ratio >= 1.0,
        "m = 4 N. How many iterations are guaranteed at such scales, with the best C1, C2, C3: implicit/certificates.",
    )


def _size_findings(table: Table, N: int) -> tuple[Finding, ...]:
    m = _column(table, "m")

    def growth(name: str, stated: float, claim: str, why: str, divided: float = 0.0) -> Finding:
        found = power(m, _column(table, name)) + divided
        return Finding(claim, f"grows like m^{found:.2f}", found <= stated + NEAR, why)

    least_ratio = min(_column(table, "least sigma_min(Phi)^2/(m lambda*)"))
    return (
        growth(
            "|A|/sqrt(m)",
            0.5,
            "|A(0)| = O(sqrt(m)) for half-normal entries (section 5.2).",
            f"Agreement, here and below, means a power of at most {NEAR:g} more. The entries have the mean sqrt(2/pi), so that "
            "|A(0)| is about m sqrt(2/pi).",
            0.5,
        ),
        growth("|W|/sqrt(m)", 0.5, "|W(0)| = O(sqrt(m)) (section 5.2).", f"d = {INPUTS} is fixed.", 0.5),
        growth("|b|", 0.0, "|b(0)| = O(1) (section 5.2).", "Its square has the mean 1."),
        growth(
            "|Phi (I - gamma A)^(-1)|/|X|_F",
            0.0,
            "|Phi (I - gamma A)^(-1)| = O(|X|_F) (section 5.2).",
            "|Phi| itself is of the order sqrt(m) |X|_F.",
        ),
        growth(
            "|y^(0)|/|X|_F",
            0.0,
            "|y^(0)| = O(|X|_F) (section 5.2).",
            "True although it is derived from the line before: the mean of |Zb|^2 is |Z|_F^2/m.",
        ),
        Finding(
            "sigma_min(Phi)^2 >= m lambda*/4 with high probability, for m large enough (section 5.2).",
            f"least ratio to m lambda* {least_ratio:.3g} at N = {N}",
            least_ratio >= 0.25,
            "In every draw, at every width of the table.",
        ),
    )


def _limit_findings(table: Table) -> tuple[Finding, ...]:
    traces, values, N = (_column(table, name) for name in ("tr(G*)/N", "lambda*", "N"))
    return (
        Finding(
            "lambda* <= tr(G*)/N <= 1 (section 5.2).",
            f"tr(G*)/N = {min(traces):.6g} to {max(traces):.6g}",
            all(value <= trace <= 1.0 for value, trace in zip(values, traces, strict=True)),
            "True, not sharp: it is 1/2 for every X with rows of norm 1, since relu(t)^2 + relu(-t)^2 = t^2.",
        ),
        Finding(
            "lambda* = Theta(1) for sub-Gaussian data (section 5.2).",
            "lambda* = " + ", ".join(f"{value:.3g} (N = {n:.0f})" for value, n in zip(values, N, strict=True)),
            None,
            f"In {INPUTS} dimensions it falls as N grows: nearer rows have more similar features.",
        ),
    )


def _condition_finding(table: Table) -> Finding:
    m, first = _column(table, "m")[-1], _column(table, "(17)")[-1]
    third = _column(table, "(19)")[-1]
    return Finding(
        "Random weights satisfy (17) to (19) from a width of the order N^2 on (section 5.2).",
        f"left over right side {first:.2g} in (17), {third:.2g} in (19) at m = {m:.0f}",
        None,
        "An order has no constant that numbers could refute. In the long run the ratio of (17) grows like sqrt(m): by that, from "
        f"the last width on, it holds from about m = {m / first**2:.1g} on.",
    )


def _draw(table: Table) -> Figure:
    figure, axes = charts.grid(1, 1, panel=(5.4, 3.6))
    ax, m = axes[0][0], _column(table, "m")
    shown = {"|A|/sqrt(m)": "o-", "|W|/sqrt(m)": "s-", "|Phi (I - gamma A)^(-1)|/|X|_F": "^-", "|y^(0)|/|X|_F": "x-"}
    for (name, style), colour in zip(shown.items(), charts.COLOURS, strict=False):
        ax.plot(m, _column(table, name), style, color=colour, markersize=4, linewidth=1.4, label=name)
    ax.set(xscale="log", yscale="log", xlabel="width m")
    ax.tick_params(which="minor", labelsize=6)
    charts.style(ax, "all constant, by section 5.2")
    return charts.finish(figure, axes, "Random weights of an implicit network", "size")
