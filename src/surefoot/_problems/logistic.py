"""Batches of logistic regressions."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from .._core.validate import as_tensor
from .batch import Problems, accelerated_optimum, per_problem, soft
from .draws import fraction, generator_of, matrices

if TYPE_CHECKING:
    from .._logistic.instance import Instance

POLISH = 400
"""Accelerated steps after Newton's method, which has proved all decreases that it can."""


class Logistic(Problems):
    """min Σ_i log(1 + exp(-s_i⟨m_i, x⟩)) + λ‖x‖₁ + (μ/2)‖x‖², for p = 1 … N; the penalties are the h of the proximal step.

    scikit-learn's ``LogisticRegression(C=C, fit_intercept=False)`` with two classes is one problem with μ = 1/C, with an ℓ1
    penalty one with λ = 1/C. There is no intercept; a column of ones in M is one, but is penalised.

    Args:
        M: (N, b, d) float64 or float32; rows are samples; of one problem ``M[None]``.
        labels: s (N, b), each +1 or -1; of one problem ``labels[None]``.
        lam: λ ≥ 0, one number or one per problem (N,).
        l2: μ ≥ 0, likewise.

    Raises:
        TypeError, ValueError: as ``Problems``; labels other than +1 and -1; lam or l2 negative, non-finite, or of another length.

    Example:
        >>> from sklearn import datasets, linear_model
        >>> X, y = datasets.load_breast_cancer(return_X_y=True)
        >>> M = (X - X.mean(0)) / X.std(0)
        >>> problems = sf.learned.Logistic(M[None], 2.0 * y[None] - 1.0, l2=1.0)  # of labels 0 and 1, -1 and 1
        >>> x = torch.from_numpy(linear_model.LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8).fit(M, y).coef_)
        >>> bool((problems.gradient(x) + problems.penalty_gradient(x)).norm() < 1e-3)  # the minimiser of both
        True
    """

    kind = "logistic-batch"
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
        """Float64: Gaussian M, and labels drawn with the odds that an x̂ as in ``Lasso.random`` gives.

        Args:
            count, rows, columns: N, b and d.
            sparsity: of x̂.
            lam, l2: λ and μ, as for the class.
            seed: of all draws.

        Raises:
            TypeError, ValueError: bad arguments.
        """
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
        """Duality gap at θ_i = c/(1 + exp(s_i⟨m_i, x⟩)), with c = 1 where μ > 0 and else c = min{1, λ/‖Mᵀ(s⊙θ̂)‖_∞}, as a sum of
        terms that are not negative; never more than F(x), and F(x) itself where λ = μ = 0."""
        bounds = []
        for instance, row in zip(self.double._instances, x.double().cpu().numpy(), strict=True):
            point = instance.start(row)
            bounds.append(instance.gap(point, instance.gradient(point)[0]))
        return torch.tensor(bounds, dtype=torch.float64, device=x.device)

    @cached_property
    def _instances(self) -> list[Instance]:
        """Each of these float64 problems, for the compiled solver."""
        from .._logistic.instance import Instance

        M, labels = self.M.detach().cpu().numpy(), self.Y.detach().cpu().numpy()
        parameters = zip(self.lam.tolist(), self.l2.tolist(), strict=True)
        return [
            Instance(np.ascontiguousarray(M[p]), np.ascontiguousarray(labels[p]), lam, l2)
            for p, (lam, l2) in enumerate(parameters)
        ]

    def require_penalty(self) -> None:
        """Raise ``ValueError`` where λ = μ = 0."""
        bare = (self.lam == 0.0) & (self.l2 == 0.0)
        if bool(bare.any()):
            raise ValueError(
                f"problem {int(bare.nonzero()[0])} has lam = 0 and l2 = 0; where a hyperplane separates its labels it has no "
                "minimiser: pass lam > 0 or l2 > 0"
            )

    def _minimisers(self, tolerance: float, max_iterations: int) -> Tensor:
        """From where Newton's method gets, accelerated steps have a last digit to find at most."""
        from .._logistic.run import minimise

        self.require_penalty()
        found = [
            minimise(instance, np.zeros(self.columns), tolerance=tolerance).point.x for instance in self._instances
        ]
        start = torch.from_numpy(np.stack(found)).to(self.M.device)
        return accelerated_optimum(self, tolerance, min(max_iterations, POLISH), start)

    def _with(self, M: Tensor, parts: dict[str, Tensor]) -> Self:
        return type(self)(M, parts["labels"], parts["lam"], parts["l2"])

    def _parts(self) -> dict[str, Tensor]:
        return {"labels": self.Y, "lam": self.lam, "l2": self.l2}
