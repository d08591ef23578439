"""Batches of logistic regressions."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .._core.validate import as_tensor
from .batch import EPS, Problems, per_problem, soft
from .draws import fraction, generator_of, matrices


class Logistic(Problems):
    """min Σ_i log(1 + exp(-s_i⟨m_i, x⟩)) + λ‖x‖₁ + (μ/2)‖x‖², for p = 1 … N; the penalties are the h of the proximal step.

    Args:
        M: (N, b, d) float64 or float32; rows are samples.
        labels: s (N, b), each +1 or -1.
        lam: λ ≥ 0, one number or one per problem (N,).
        l2: μ ≥ 0, likewise.

    Raises:
        TypeError, ValueError: as ``Problems``; labels other than +1 and -1; lam or l2 negative, non-finite, or of another length.
    """

    kind: ClassVar[str] = "logistic-batch"
    curvature_factor: ClassVar[float] = 0.25  # π(1-π) ≤ ¼
    quadratic: ClassVar[bool] = False
    lam: Tensor
    l2: Tensor

    def __init__(self, M: Any, labels: Any, lam: Any = 0.0, l2: Any = 0.0) -> None:
        if isinstance(labels, Tensor) and not labels.is_floating_point():
            labels = labels.to(as_tensor("M", M).dtype)
        super().__init__(M, labels, "labels")
        if bool((self.Y.abs() != 1.0).any()):
            label = float(self.Y[self.Y.abs() != 1.0][0])
            raise ValueError(f"labels has the value {label:g}; labels are +1 or -1: pass 2*labels - 1 for 0 and 1")
        self.lam, self.l2 = per_problem("lam", lam, self.M), per_problem("l2", l2, self.M)

    @property
    def labels(self) -> Tensor:
        """s (N, b)."""
        return self.Y

    @classmethod
    def random(
        cls, count: int, rows: int, columns: int, sparsity: float = 0.1, lam: Any = 0.1, l2: Any = 0.0, seed: int = 0
    ) -> Self:
        """Float64: Gaussian M, and labels drawn with the odds that an x̂ as in ``Lasso.random`` gives."""
        sparsity, generator = fraction("sparsity", sparsity), generator_of(seed)
        M = matrices(count, rows, columns, generator, unit_columns=False)
        x = torch.randn(count, columns, generator=generator, dtype=torch.float64)
        x = x * (torch.rand(count, columns, generator=generator, dtype=torch.float64) < sparsity)
        odds = torch.sigmoid(torch.bmm(M, x.unsqueeze(2)).squeeze(2))
        draws = torch.rand(count, rows, generator=generator, dtype=torch.float64)
        return cls(M, torch.where(draws < odds, 1.0, -1.0).to(M), lam, l2)

    def smooth_value(self, product: Tensor) -> Tensor:
        return softplus(-self.Y * product, threshold=50.0).sum(1)

    def outer_gradient(self, product: Tensor) -> Tensor:
        return -self.Y * torch.sigmoid(-self.Y * product)

    def outer_curvature(self, product: Tensor) -> Tensor:
        return torch.sigmoid(product) * torch.sigmoid(-product)

    def penalty(self, x: Tensor) -> Tensor:
        return self.lam * x.abs().sum(1) + 0.5 * self.l2 * x.square().sum(1)

    def penalty_gradient(self, x: Tensor) -> Tensor:
        return self.lam[:, None] * x.sign() + self.l2[:, None] * x

    def prox(self, x: Tensor, step: Tensor) -> Tensor:
        return soft(x, step * self.lam[:, None]) / (1.0 + step * self.l2[:, None])

    def prox_pullback(self, output: Tensor, step: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        passed = torch.where(output != 0.0, cotangent, 0.0) / (1.0 + step * self.l2[:, None])
        return passed, -(self.lam[:, None] * output.sign() + self.l2[:, None] * output) * passed

    @property
    def strong_convexity(self) -> Tensor:
        """μ (N,) float64, of the penalty: the loss alone is not strongly convex."""
        return self.l2.double()

    def gap_bound(self, x: Tensor) -> Tensor:
        """Duality gap at θ_i = c/(1 + exp(s_i⟨m_i, x⟩)): the smaller of c = min{1, λ/‖Mᵀ(s⊙θ̂)‖_∞} and, where μ > 0, c = 1."""
        p, x = self.double, x.double()
        margins = p.Y * p._image(x)
        theta = torch.sigmoid(-margins)
        back = p._pullback(p.Y * theta)
        rounding = 2.0 * (self.rows + self.columns) * EPS
        slack = rounding * p._column_norms * theta.norm(dim=1)
        c = (p.lam / (back.abs().amax(1) + slack)).nan_to_num(nan=1.0).clamp(max=1.0)
        lower = (torch.special.entr(c[:, None] * theta) + torch.special.entr(1.0 - c[:, None] * theta)).sum(1)
        # with c = 1, h* takes what exceeds λ; the slack bounds its rounding
        excess = ((back.abs() - p.lam[:, None]).clamp(min=0.0) + slack[:, None]).square().sum(1)
        entropy = (torch.special.entr(theta) + torch.special.entr(torch.sigmoid(margins))).sum(1)
        lower = torch.where(p.l2 > 0.0, torch.maximum(lower, entropy - excess / (2.0 * p.l2)), lower)
        value = softplus(-margins, threshold=50.0).sum(1) + p.penalty(x)
        return value - lower + rounding * (value + entropy + self.rows**0.5 * p._frobenius * x.norm(dim=1))

    def _with(self, M: Tensor, parts: dict[str, Tensor]) -> Self:
        return type(self)(M, parts["labels"], parts["lam"], parts["l2"])

    def _parts(self) -> dict[str, Tensor]:
        return {"labels": self.Y, "lam": self.lam, "l2": self.l2}
