"""Random instances of the two-layer paper's experiments, and runs on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surefoot._core.certificate import Certificate
from surefoot._core.descent import certify, descend
from surefoot._core.evaluation import evaluate
from surefoot._core.losses import SquaredLoss
from surefoot._core.plans import PLANS
from surefoot._core.run import Run
from surefoot._core.schedule import iterations_to
from surefoot._core.steps import StepRule
from surefoot._two_layer.network import TwoLayerLinear
from surefoot._two_layer.planner import C_EXPONENT, D_EXPONENT, SAFETY, printed_coefficients

from .draws import gaussian

PAPER = "A Local Polyak-Lojasiewicz and Descent Lemma of Gradient Descent for Overparametrized Linear Models"

TARGET = 1e-20
"""Absolute gap at which runs end."""

CORRECTED, DRIFT, CONTRACTION = "two-layer/corrected", "two-layer/drift", "two-layer/contraction"

OPEN: dict[str, Any] = {
    "c": C_EXPONENT,
    "d": D_EXPONENT,
    "first step": f"{SAFETY} eta_max (open in the paper)",
    "repeats use": "seed and repeat number; the same X at every width and noise level",
}
"""Settings common to the experiments."""


def noisy_settings(n: int, widths: Sequence[int], noises: Sequence[float], repeats: int) -> dict[str, Any]:
    """Settings of the experiments on several widths and noise levels."""
    return {
        **OPEN,
        "n = m": n,
        "widths": list(widths),
        "noise sd": f"{list(noises)} (open in the paper)",
        "repeats": repeats,
        "absolute gap reached": TARGET,
    }


def orthogonal(n: int, generator: torch.Generator) -> Tensor:
    """A random orthogonal (n, n) matrix with the Haar distribution."""
    Q, R = torch.linalg.qr(gaussian(n, n, generator))
    return Q * torch.sign(torch.diagonal(R))


@dataclass(frozen=True)
class Instance:
    """Initial weights and a squared loss; ``runs`` start from the same weights each time."""

    W1: Tensor
    W2: Tensor
    loss: SquaredLoss

    @property
    def network(self) -> TwoLayerLinear:
        """A fresh network at the initial weights."""
        return TwoLayerLinear(self.W1, self.W2)

    def certify(self, theorem: str) -> Certificate:
        """The theorem at the initial weights."""
        return certify(self.network, self.loss, theorem)

    def run(
        self,
        steps: StepRule | str | float,
        certificate: Certificate,
        *,
        tolerance: float = 0.0,
        absolute_tolerance: float = TARGET,
        max_iterations: int = 50_000,
    ) -> Run:
        """Gradient descent in Gram space from the initial weights."""
        return descend(
            self.network,
            self.loss,
            steps,
            max_iterations,
            tolerance,
            absolute_tolerance=absolute_tolerance,
            certificate=certificate,
            engine="gram",
            progress=False,
        )


def noisy_teacher(X: Tensor, width: int, noise: float, generator: torch.Generator, std: float = 1.0) -> Instance:
    """Y = X W1(0) W2(0)ᵀ + noise·ε with N(0, std²) weights of that width; X (n, n), so that n = m (section 4)."""
    n = X.shape[1]
    W1, W2 = std * gaussian(n, width, generator), std * gaussian(n, width, generator)
    return Instance(W1, W2, SquaredLoss(X, X @ W1 @ W2.T + noise * gaussian(n, n, generator)))


def section_4(width: int, noise: float, generator: torch.Generator, *, n: int = 10, kappa: float = 1.0) -> Instance:
    """An instance of section 4; X has singular values from κ^(-1/2) to 1, even in logarithm; κ = K/μ."""
    X = orthogonal(n, generator)
    if kappa > 1.0:
        singular = torch.logspace(-0.5 * math.log10(kappa), 0.0, n, dtype=torch.float64)
        X = X * singular @ orthogonal(n, generator)
    return noisy_teacher(X, width, noise, generator)


def guaranteed(certificate: Certificate) -> float:
    """Iterations to the gap ``TARGET`` that the certificate guarantees; ``inf`` without a guarantee."""
    return certificate.iterations_to(TARGET / certificate.initial_gap)


def guaranteed_for_any_loss(certificate: Certificate) -> float:
    """The same for the drift theorem without what it knows of the squared loss (Theorem III)."""
    theorem = PLANS[DRIFT].theorem
    base = {name: certificate.quantities[name] for name in theorem.base}
    sizes = {name: certificate.problem[name] for name in ("n", "m", "h")}
    _, _, schedule = evaluate(theorem, {**base, **sizes, "quadratic": False})
    return iterations_to(schedule, TARGET / certificate.initial_gap) if schedule else math.inf


def reached(run: Run) -> float:
    """Steps until the gap was at most ``TARGET``; ``inf`` if it never was."""
    return next((float(t) for t, gap in enumerate(run.gaps) if gap <= TARGET), math.inf)


def conditioning(certificate: Certificate) -> float:
    """α1/α2, 0 where nothing is guaranteed."""
    q = certificate.quantities
    return q["alpha1"] / q["alpha2"] if q.get("alpha1", 0.0) > 0.0 else 0.0


def local_smoothness(row: dict[str, float], smoothness: float, eta: float) -> float:
    """The paper's K_t(η) from the measurements of one iterate."""
    k = printed_coefficients(smoothness, row["sigma_max_squared"], row["gap"], row["map_norm"])
    return float(k[0] + eta * (k[1] + eta * k[2]))


def final_factor(gaps: Sequence[float]) -> float:
    """Mean factor of the gap per iteration over the last quarter of a run."""
    last = max(1, (len(gaps) - 1) // 4)
    return (gaps[-1] / gaps[-1 - last]) ** (1.0 / last)
