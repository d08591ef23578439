"""Softmax regression: a loss without sufficient statistics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .losses import SCALE, LinearMapLoss, check_scale
from .statistics import Cut
from .validate import class_numbers, fits_map, nonnegative, positive_integer, real

LARGEST = 1 << 31
"""Largest number of probabilities, rows times classes."""
WITH_OFFSET = "softmax-offset"
"""The kind of problem where there is a fixed map."""
DENSE_NEWTON = 2000
"""Largest nm for which the Hessian is formed; beyond it L-BFGS finds the minimiser."""


class SoftmaxRegression(LinearMapLoss):
    """(1/N) Σ cross-entropy(softmax(xᵀ(W0 + W)), label) + (l2/2)‖W‖²_F; X (N, n), labels (N,) int64, m = classes.

    K = λ_max(XᵀX)/(2N) + l2, μ = l2. It has no sufficient statistics: every iteration passes over the rows once.

    Args:
        X: float64 or float32 (N, n).
        labels: int64 (N,), values 0 .. classes-1.
        l2: weight of the penalty; without it (0) there is no strong convexity and no guarantee.
        classes: m; by default the columns of ``offset``, or the largest label plus one.
        offset: W0 (n, m), a fixed map to which the network's is added, as in low-rank adapters W0 + BA; by default 0. K and μ
            are the same, and the penalty is of W alone. ``arrays`` holds the logits XW0, and predictions are those of
            X(W0 + W).

    Raises:
        TypeError: wrong dtype of X or labels, or an l2 that is no number.
        ValueError: mismatched, empty, non-finite or badly scaled data, a label out of range, a negative l2, an offset that does
            not fit.

    Example:
        >>> X = torch.randn(30, 3).double()
        >>> loss = sf.SoftmaxRegression(X, (X[:, 0] > 0).long(), l2=0.1)
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> run = sf.descend(net, loss)
        >>> right = (net(X).argmax(1) == 1) == (X[:, 0] > 0)
        >>> run.certified, int(right.sum()) > 25
        (True, True)
    """

    kind = "softmax"
    offset: Tensor | None = None
    """The logits XW0 (N, m) of a fixed map; ``None`` without one."""

    def __init__(self, X: Any, labels: Any, l2: float, classes: int | None = None, *, offset: Any = None) -> None:
        self.X = real("X", X, 2)
        self.labels = labels = class_numbers("labels", labels, self.X)
        fixed = None if offset is None else real("offset", offset, 2)
        if classes is None:
            m = int(labels.max()) + 1 if fixed is None else fixed.shape[1]
        else:
            m = positive_integer("classes", classes)
        if int(labels.min()) < 0 or int(labels.max()) >= m:
            raise ValueError(f"labels run from {int(labels.min())} to {int(labels.max())}; they must lie in 0..{m - 1}")
        if m * len(self.X) > LARGEST:
            raise ValueError(
                f"{m} classes for {len(self.X)} rows do not fit in memory; renumber the labels from 0 without gaps"
            )
        self.l2 = nonnegative("l2", l2)
        self.shape = (self.X.shape[1], m)
        self._targets = torch.nn.functional.one_hot(self.labels, m).to(self.X.dtype)
        top = float(torch.linalg.matrix_norm(self.X, 2))
        check_scale("X", top)
        self.smoothness = top * top / (2 * len(self.X)) + self.l2
        self.strong_convexity = self.l2
        if fixed is not None:
            fits_map(fixed, self.shape, self.X.device)
            self._add(self.X @ fixed)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> SoftmaxRegression:
        """The loss whose ``arrays()`` these are."""
        loss = cls(arrays["X"], arrays["labels"], float(arrays["l2"]), arrays["optimum"].shape[1])
        if "offset" in arrays:
            loss._add(real("offset", arrays["offset"], 2))
        return loss

    def _sizes(self) -> str:
        n, m = self.shape
        return f"X {len(self.X)}x{n}, {m} classes, l2={self.l2:g}{'' if self.offset is None else ', offset'}"

    def _add(self, logits: Tensor) -> None:
        """Logits to which those of W are added."""
        if not bool(logits.abs().max() <= SCALE):
            raise ValueError(f"X @ offset reaches beyond {SCALE:.0e}: products would overflow; scale the data")
        self.kind, self.offset = WITH_OFFSET, logits
        also = "the network's map is added to a fixed one, W0: its logits X W0 are stored"
        self.cut = Cut.of_nothing(self.shape[0], also)

    @property
    def gap_resolution(self) -> float:
        """As for every loss, and at least what the residual gradient at the computed minimiser leaves open."""
        if self.l2 == 0.0:
            return super().gap_resolution
        residual = float(torch.linalg.vector_norm(self.gradient(self.optimum)))
        return max(super().gap_resolution, residual * residual / (2.0 * self.l2))

    def _log_probabilities(self, W: Tensor) -> Tensor:
        logits = self.X @ W
        return torch.log_softmax(logits if self.offset is None else logits + self.offset, 1)

    def value(self, W: Tensor) -> float:
        cross_entropy = -(self._targets * self._log_probabilities(self._check(W))).sum() / len(self.X)
        return float(cross_entropy + 0.5 * self.l2 * (W**2).sum())

    def gradient(self, W: Tensor) -> Tensor:
        residual = self._log_probabilities(self._check(W)).exp_().sub_(self._targets)
        return self.X.T @ residual / len(self.X) + self.l2 * W

    def gap(self, W: Tensor) -> float:
        """ℓ(W) - ℓ* as the Bregman divergence mean KL(p*‖p) + (l2/2)‖W - W*‖², which does not cancel near W*.

        Without a minimiser (l2 = 0) it is the loss itself, an upper bound of the gap.
        """
        if self.l2 == 0.0:
            return self.value(W)
        step = self._check(W) - self.optimum
        shift = self.X @ step
        p = self._optimal_probabilities
        centred = shift - (p * shift).sum(1, keepdim=True)
        # log Σ p exp(c) - Σ p c with Σ p c = 0, through exp(c) - 1 - c; far from W*, where exp could overflow, directly
        near = torch.log1p((p * _exp_minus_linear(centred.clamp(max=1.0))).sum(1))
        far = torch.logsumexp(self._log_probabilities(self.optimum) + centred, 1)
        divergence = torch.where(centred.amax(1) <= 1.0, near, far).mean()
        return float(divergence + 0.5 * self.l2 * (step**2).sum())

    @cached_property
    def _optimal_probabilities(self) -> Tensor:
        return self._log_probabilities(self.optimum).exp()

    @property
    def optimal_value(self) -> float:  # type: ignore[override]
        """ℓ*; 0, a lower bound, where l2 = 0 (the infimum need not be attained)."""
        return self.value(self.optimum) if self.l2 > 0.0 else 0.0

    def _find_optimum(self) -> Tensor:
        """W*, by Newton's method (L-BFGS first for large nm), to a gradient at rounding level. Zero where l2 = 0."""
        W = torch.zeros(self.shape, dtype=self.X.dtype, device=self.X.device)
        if self.l2 == 0.0:
            return W
        if self.shape[0] * self.shape[1] > DENSE_NEWTON:
            return self._by_lbfgs(W)
        gradient = self.gradient(W)
        value = self.value(W)
        for _ in range(100):
            direction = self._newton_direction(W, gradient)
            slope = float((gradient * direction).sum())
            step = 1.0
            while step > 1e-6 and self.value(W - step * direction) > value - 0.25 * step * slope + 1e-15 * abs(value):
                step *= 0.5
            candidate = W - step * direction
            improved = self.gradient(candidate)
            if float(improved.norm()) >= float(gradient.norm()) and float(gradient.norm()) < 1e-10:
                break
            W, gradient, value = candidate, improved, self.value(candidate)
        return W

    def _newton_direction(self, W: Tensor, gradient: Tensor) -> Tensor:
        hessian = self._hessian(W)
        factor, failed = torch.linalg.cholesky_ex(hessian)
        if not bool(failed):
            return torch.cholesky_solve(gradient.reshape(-1, 1), factor).reshape(self.shape)
        # l2 is lost to rounding beside the largest curvature: put it back, as no eigenvalue lies below it
        values, vectors = torch.linalg.eigh(hessian)
        return (vectors @ ((vectors.T @ gradient.reshape(-1)) / values.clamp(min=self.l2))).reshape(self.shape)

    def _hessian(self, W: Tensor) -> Tensor:
        """∇²ℓ (nm, nm): for classes a, b the block Xᵀ diag(p_a(δ_ab - p_b)) X / N, rows and columns ordered as W."""
        n, m = self.shape
        p = self._log_probabilities(W).exp()
        hessian = torch.empty(n, m, n, m, dtype=W.dtype, device=W.device)
        for a in range(m):
            for b in range(a, m):
                weight = p[:, a] * ((1.0 if a == b else 0.0) - p[:, b])
                block = self.X.T @ (self.X * weight[:, None]) / len(self.X)
                hessian[:, a, :, b] = block
                hessian[:, b, :, a] = block.T
        flat = hessian.reshape(n * m, n * m)
        flat.diagonal().add_(self.l2)
        return flat

    def _by_lbfgs(self, W: Tensor) -> Tensor:
        W = W.clone().requires_grad_(True)
        optimizer = torch.optim.LBFGS(
            [W],
            max_iter=5000,
            max_eval=20000,
            tolerance_grad=1e-12,
            tolerance_change=1e-15,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            W.grad = self.gradient(W.detach())
            return torch.tensor(self.value(W.detach()), dtype=W.dtype)

        optimizer.step(closure)
        return self._polished(W.detach())

    def _polished(self, W: Tensor) -> Tensor:
        """Newton steps by conjugate gradients while they halve the gradient: L-BFGS ends where differences of losses are
        rounding noise, at about the root of what the gradient itself can reach."""
        gradient = self.gradient(W)
        for _ in range(50):
            candidate = W - self._newton_by_conjugate_gradients(W, gradient)
            improved = self.gradient(candidate)
            if not float(improved.norm()) <= 0.5 * float(gradient.norm()):
                break
            W, gradient = candidate, improved
        return W

    def _newton_by_conjugate_gradients(self, W: Tensor, gradient: Tensor) -> Tensor:
        """∇²ℓ(W)⁻¹ gradient, to a relative residual of 1e-3."""
        p = self._log_probabilities(W).exp()
        solution, residual = torch.zeros_like(gradient), gradient
        direction = residual
        squared = start = float((residual**2).sum())
        for _ in range(1000):
            if squared <= 1e-6 * start:
                break
            shift = self.X @ direction
            curved = p * (shift - (p * shift).sum(1, keepdim=True))
            image = self.X.T @ curved / len(self.X) + self.l2 * direction
            step = squared / float((direction * image).sum())
            solution, residual = solution + step * direction, residual - step * image
            before, squared = squared, float((residual**2).sum())
            direction = residual + (squared / before) * direction
        return solution

    def arrays(self) -> dict[str, Tensor]:
        return {
            "X": self.X,
            "labels": self.labels,
            "l2": torch.tensor(self.l2, dtype=torch.float64),
            "optimum": self.optimum,
            **({} if self.offset is None else {"offset": self.offset}),
        }


def _exp_minus_linear(x: Tensor) -> Tensor:
    """exp(x) - 1 - x, by its series where |x| < 0.1 (the difference would cancel)."""
    series = torch.zeros_like(x)
    for k in range(12, 1, -1):
        series = (series + 1.0) * x / k
    return torch.where(x.abs() < 0.1, series * x, torch.expm1(x) - x)
