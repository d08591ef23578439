"""Draws of data and weights, and the certificates of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from surefoot._core.descent import certify, descend
from surefoot._core.evaluation import evaluate
from surefoot._core.refusals import NotCertifiable
from surefoot._core.samples import SampleLoss
from surefoot._core.schedule import iterations_to
from surefoot._implicit.choices import step_choices
from surefoot._implicit.network import ImplicitReLU
from surefoot_check.implicit import gd as implicit_gd
from surefoot_check.implicit import measured as implicit_measured
from surefoot_check.implicit import spectral as implicit_spectral
from surefoot_check.statement import Theorem

from .implicit_data import TwoClass

SPECTRAL, MEASURED, GD = implicit_spectral.THEOREM, implicit_measured.THEOREM, implicit_gd.THEOREM


LABELS = {SPECTRAL.id: "implicit/spectral", MEASURED.id: "implicit/measured", GD.id: "paper, implicit/gd"}


RATIO = 1e-3
"""Loss relative to the initial one to which iterations are counted."""


PAPER_CONTRACTION = 0.1
"""γ‖A‖ for the paper's theorem: that of its experiments."""


LARGEST = 40
"""log2 of the scale that stands for an infinite one."""


LOOSE = 1.01
"""Counts this close to that of an infinite scale are taken as equal."""


RESOLUTION = 2.0**-4
"""Of log2 of a least scale."""


POWERS = {"gamma": -1, "norm_A": 1, "norm_W": 1, "sigma_min_Z": 1, "norm_Z": 1}
"""How base quantities depend on β where W and A are multiplied by it, γ is divided by it, and b = 0."""


Size = tuple[int, int]


DIGITS_SIZE: Size = (10, 40)
"""Largest N and m of ``tradeoff`` on digits: their 64 pixels make rows so alike that runs of 50 samples take minutes each."""


@dataclass(frozen=True)
class Draw:
    """One draw of data and weights.

    Attributes:
        counts, scales: guaranteed iterations and β by theorem; ``None`` where it fails for every β.
        executed: whether the run under ``implicit/spectral`` was made.
        needed: its iterations; ``None`` if it did not reach the ratio in the guaranteed ones.
        violations: found by its audit.
    """

    counts: dict[str, float | None]
    scales: dict[str, float | None]
    executed: bool = False
    needed: int | None = None
    violations: int = 0


def scaled(net: ImplicitReLU, factor: float, contraction: float | None = None) -> ImplicitReLU:
    """Weights times ``factor`` (b = 0), γ divided by it, or such that γ‖A‖ is ``contraction``, for A a multiple of I."""
    A = factor * net.A.detach()
    gamma = net.gamma / factor if contraction is None else contraction / float(A.diagonal().max())
    return ImplicitReLU(factor * net.W.detach(), A, torch.zeros_like(net.b), gamma)


def least_scale(statement: Theorem, base: Mapping[str, float]) -> float | None:
    """The least factor of the weights at which the theorem's count is about that of an infinite one, to 2^(1/16)."""

    def count(exponent: float) -> float:
        quantities = {name: value * 2.0 ** (exponent * POWERS.get(name, 0)) for name, value in base.items()}
        schedules = [
            evaluate(statement, {**quantities, **choices})[2] for choices in step_choices(statement.id, quantities)
        ]
        return min((iterations_to(schedule, RATIO) for schedule in schedules if schedule), default=math.inf)

    limit = count(LARGEST)
    if not math.isfinite(limit):
        return None
    low, high = -float(LARGEST), float(LARGEST)
    while high - low > RESOLUTION:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if count(middle) <= LOOSE * limit else (middle, high)
    return 2.0**high


def smallest_certified(net: ImplicitReLU, loss: SampleLoss) -> float | None:
    """The least factor of the weights at which ``implicit/spectral`` holds, to 2^(1/16); ``None`` where it fails at 1."""
    low, high = -1.0, 0.0
    if not certify(net, loss, SPECTRAL.id).holds:
        return None
    while certify(scaled(net, 2.0**low), loss, SPECTRAL.id).holds:
        low, high = 2.0 * low, low
    while high - low > RESOLUTION:
        middle = 0.5 * (low + high)
        holds = certify(scaled(net, 2.0**middle), loss, SPECTRAL.id).holds
        low, high = (low, middle) if holds else (middle, high)
    return 2.0**high


def draw_seed(generator: torch.Generator) -> int:
    """Of the weights, after the data."""
    return int(torch.randint(2**31, (1,), generator=generator))


def computed_draw(name: str, width: int, seed: int, executed: bool, **data: Tensor) -> dict[str, Any]:
    """What a file keeps of a draw; ``data`` are the tensors of ``TwoClass``."""
    return asdict(_one_draw(TwoClass(name, **data), width, seed, executed))


def _one_draw(drawn: TwoClass, width: int, seed: int, executed: bool) -> Draw:
    counts: dict[str, float | None] = dict.fromkeys(LABELS)
    scales: dict[str, float | None] = dict.fromkeys(LABELS)
    try:
        spectral = ImplicitReLU.certifiable(drawn.X, drawn.Y, width, seed=seed)
    except NotCertifiable:
        return Draw(counts, scales)
    networks: dict[str, ImplicitReLU | None] = {SPECTRAL.id: spectral}
    for statement, contraction in ((MEASURED, None), (GD, PAPER_CONTRACTION)):
        start = scaled(spectral, 1.0, contraction)
        quantities = certify(start, drawn.loss, statement.id).quantities
        factor = least_scale(statement, {name: quantities[name] for name in statement.base})
        networks[statement.id] = None if factor is None else scaled(start, factor * (1.0 + 1e-3))
    for name, net in networks.items():
        certificate = None if net is None else certify(net, drawn.loss, name)
        if net is not None and certificate is not None and certificate.holds:
            counts[name], scales[name] = certificate.iterations_to(RATIO), scale_of(net)
    guaranteed = counts[SPECTRAL.id]
    if not executed or guaranteed is None:
        return Draw(counts, scales)
    run = descend(spectral, drawn.loss, max_iterations=int(guaranteed), tolerance=RATIO, progress=False)
    needed = run.iterations if run.gaps[-1] <= RATIO * run.gaps[0] else None
    return Draw(counts, scales, True, needed, sum(not line.holds for line in run.audit().lines))


def scale_of(net: ImplicitReLU) -> float:
    """β of initial weights A = β I."""
    return float(net.A.detach().diagonal()[0])
