"""Batches of LASSO problems."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from .._core.validate import nonnegative
from .batch import EPS, Problems, per_problem, soft
from .draws import fraction, generator_of, matrices, spread


class Lasso(Problems):
    """min ½‖M_p x - Y_p‖² + λ_p‖x‖₁, for p = 1 … N.

    scikit-learn's ``Lasso(alpha, fit_intercept=False)`` on a matrix of b rows is one problem with λ = b·alpha. There is no
    intercept: where one is wanted, take the means off the columns of M and off Y first; it is the mean of Y less that of M times
    x.

    Args:
        M: (N, b, d) float64 or float32, tensors or arrays, N problems of one size; of one problem ``M[None]``.
        Y: (N, b), of one problem ``Y[None]``.
        lam: λ ≥ 0, one number or one per problem (N,).

    Raises:
        TypeError, ValueError: as ``Problems``; lam negative, non-finite, or of another length.

    Example:
        >>> from sklearn import datasets, linear_model
        >>> X, y = datasets.load_diabetes(return_X_y=True)
        >>> M, Y = X - X.mean(0), y - y.mean()  # in place of an intercept
        >>> x = sf.learned.Lasso(M[None], Y[None], lam=len(X) * 0.5).optimum()[0].numpy()  # a batch of one problem
        >>> model = linear_model.Lasso(alpha=0.5, tol=1e-10).fit(X, y)
        >>> np.allclose(x, model.coef_, rtol=1e-6, atol=1e-6), np.allclose(y.mean() - X.mean(0) @ x, model.intercept_)
        (True, True)
    """

    kind = "lasso-batch"
    lam: Tensor

    def __init__(self, M: Any, Y: Any, lam: Any) -> None:
        super().__init__(M, Y)
        self.lam = per_problem("lam", lam, self.M)

    @classmethod
    def random(
        cls,
        count: int,
        rows: int = 250,
        columns: int = 500,
        sparsity: float = 0.1,
        noise: float = 0.01,
        lam: Any = 0.1,
        seed: int = 0,
    ) -> Self:
        """Sparse recovery, float64: each problem has its own Gaussian M, columns scaled to norm 1, and Y = M x̂ + noise·N(0, I).

        Args:
            count, rows, columns: N, b and d.
            sparsity: each coordinate of x̂ is Gaussian with this probability, else 0.
            noise: its standard deviation.
            lam: λ, as for the class.
            seed: of all draws.

        Raises:
            TypeError, ValueError: bad arguments.
        """
        sparsity, noise, generator = fraction("sparsity", sparsity), nonnegative("noise", noise), generator_of(seed)
        M = matrices(count, rows, columns, generator, unit_columns=True)
        x = torch.randn(count, columns, generator=generator, dtype=torch.float64)
        x = x * (torch.rand(count, columns, generator=generator, dtype=torch.float64) < sparsity)
        error = torch.randn(count, rows, generator=generator, dtype=torch.float64)
        return cls(M, torch.bmm(M, x.unsqueeze(2)).squeeze(2) + noise * error, lam)

    @classmethod
    def from_matrix(cls, matrix: Any, targets: Any = None, *, lam: Any, count: int = 1, seed: int = 0) -> Self:
        """One matrix (b, d) for all problems; λ as for the class, else as ``LeastSquares.from_matrix``."""
        return cls(*spread(matrix, targets, count, seed), lam)

    def smooth_value(self, product: Tensor) -> Tensor:
        return 0.5 * (product - self.Y).square().sum(1)

    def outer_gradient(self, product: Tensor) -> Tensor:
        return product - self.Y

    def penalty(self, x: Tensor) -> Tensor:
        return self.lam * x.abs().sum(1)

    def penalty_gradient(self, x: Tensor) -> Tensor:
        return self.lam[:, None] * x.sign()

    def prox(self, x: Tensor, step: Tensor) -> Tensor:
        return soft(x, step * self.lam[:, None])

    def prox_pullback(self, output: Tensor, step: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        passed = torch.where(output != 0.0, cotangent, 0.0)
        return passed, -self.lam[:, None] * output.sign() * passed

    @property
    def strong_convexity(self) -> Tensor:
        """Lower bounds (N,) float64 of λ_min(MᵀM); 0 where d > b, as f is not strongly convex there."""
        smallest = self._smallest_eigenvalue
        return smallest if self.columns <= self.rows else torch.zeros_like(smallest)

    def gap_bound(self, x: Tensor) -> Tensor:
        """Duality gap at θ = c(Y - Mx), c = min{1, λ/‖Mᵀ(Y-Mx)‖_∞}, written without cancellation:
        ½(1-c)²‖r‖² + λ‖x‖₁ - c⟨Mᵀr, x⟩."""
        p, x = self.double, x.double()
        residual = p.Y - p._image(x)
        back = p._pullback(residual)
        size = residual.norm(dim=1)
        rounding = 2.0 * (self.rows + self.columns) * EPS
        largest = back.abs().amax(1) + rounding * p._column_norms * size  # an infeasible θ would give no bound
        c = (p.lam / largest).nan_to_num(nan=1.0).clamp(max=1.0)[:, None]
        terms = (p.lam[:, None] * x.abs() - c * back * x).sum(1)
        allowance = rounding * (size * (size + p._frobenius * x.norm(dim=1) + p.Y.norm(dim=1)) + p.penalty(x))
        return 0.5 * (1.0 - c.squeeze(1)) ** 2 * size**2 + terms + allowance

    def _with(self, M: Tensor, parts: dict[str, Tensor]) -> Self:
        return type(self)(M, parts["Y"], parts["lam"])

    def _parts(self) -> dict[str, Tensor]:
        return {"Y": self.Y, "lam": self.lam}
