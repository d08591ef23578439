"""Whitening of features, with batch statistics in training and running ones in evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.linalg import LinAlgError  # pyright: ignore[reportAttributeAccessIssue]

from .._core.validate import kind_of, positive, positive_integer
from .._linalg.arguments import HALF, compute_dtype
from .._linalg.matrix_function import inv_sqrt
from .._linalg.operator import own_precision


class Whitening(nn.Module):
    """ZCA whitening y = γ·(x − μ)(C + εtI)^−½ + β, with the mean μ and the covariance C of the batch, t = tr C/d.

    Of all linear maps to uncorrelated features of variance 1 this one changes x least. A direction of variance λ gets the
    variance λ/(λ + εt); directions without variance, as there are with fewer samples than features, stay 0. Tied variances are
    nothing special to the gradient (``sf.linalg.inv_sqrt``).

    As in ``torch.nn.BatchNorm``, training uses the batch's statistics and updates the running ones, evaluation uses the latter.

    Args:
        features: d or, with groups, their sum.
        groups: consecutive groups of ``features // groups`` features are whitened each by itself: cheaper, and for when
            there are few samples.
        eps: ε, relative to the mean variance, at least d times the rounding unit of the statistics (it is raised to that).
            Small values amplify directions that had little variance in training.
        momentum: weight of a batch in the running statistics; None for their plain mean over batches.
        affine: whether γ and β are learned, each (features,).

    Shape:
        x (N, features) or (N, features, ...), where the further dimensions are samples too; y has the same shape and dtype. Half
        precision is computed in float32. Deviations whose squares underflow (in single precision below 1e-23) are none.

    Raises:
        TypeError, ValueError: an argument is out of its range; x has another shape, or in training fewer than two samples.
        torch.linalg.LinAlgError: the covariance is not finite: x has infinite or NaN entries, or overflows when squared. The
            running statistics stay as they were.

    Source:
        Kessy, Lewin and Strimmer, Optimal whitening and decorrelation (2018); Huang et al., Decorrelated batch
        normalization (CVPR 2018). The derivative is exact here, not that of an iteration.

    Example:
        >>> layer = sf.nn.Whitening(3)
        >>> y = layer(torch.randn(100, 3) @ torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.5]]))
        >>> torch.allclose(y.T.cov(correction=0), torch.eye(3), atol=1e-3)
        True
    """

    __call__: Callable[..., Tensor]

    running_mean: Tensor
    """(groups, d); in float32 for half precision, and so is the next"""
    running_covariance: Tensor
    """(groups, d, d), unbiased"""
    num_batches_tracked: Tensor
    """how many were seen in training"""

    def __init__(
        self,
        features: int,
        *,
        groups: int = 1,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.features, self.groups = positive_integer("features", features), positive_integer("groups", groups)
        if self.features % self.groups:
            raise ValueError(f"groups is {groups}, which does not divide features = {features}")
        self.eps = positive("eps", eps)
        if momentum is not None and not 0.0 < positive("momentum", momentum) <= 1.0:
            raise ValueError(f"momentum is {momentum}; pass a number in (0, 1], or None for the mean over batches")
        self.momentum = momentum
        size = self.features // self.groups
        self.weight = nn.Parameter(torch.ones(self.features, device=device, dtype=dtype)) if affine else None
        self.bias = nn.Parameter(torch.zeros(self.features, device=device, dtype=dtype)) if affine else None
        kept = compute_dtype(torch.get_default_dtype() if dtype is None else dtype)
        self.register_buffer("running_mean", torch.zeros(self.groups, size, device=device, dtype=kept))
        identity = torch.eye(size, device=device, dtype=kept).repeat(self.groups, 1, 1)
        self.register_buffer("running_covariance", identity)
        self.register_buffer("num_batches_tracked", torch.zeros((), dtype=torch.int64, device=device))

    @own_precision
    def forward(self, x: Tensor) -> Tensor:
        """y, in the shape and dtype of x."""
        samples = self._samples(x)
        if self.training:
            count = samples.shape[1]
            if count < 2:
                raise ValueError(
                    "x has one sample for each feature: a covariance needs at least two; call eval() first"
                )
            mean = samples.mean(1, keepdim=True)
            centred = samples - mean
            covariance = centred.mT @ centred / count
            seen = mean[:, 0], covariance * (count / (count - 1))
        else:
            seen = None
            centred = samples - self.running_mean.to(samples.dtype).unsqueeze(1)
            covariance = self.running_covariance.to(samples.dtype)
        y = centred @ self._root(covariance)
        if seen is not None:
            # after what may raise, so that a bad batch leaves the statistics as they were
            self._update(*seen)
        y = y.transpose(0, 1).flatten(1)
        if self.weight is not None and self.bias is not None:
            y = y * self.weight + self.bias
        others = (x.shape[0], *x.shape[2:])
        return y.reshape(*others, self.features).movedim(-1, 1).to(x.dtype)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = self.running_mean, self.running_covariance
        super()._apply(fn, recurse)
        # in half precision a mean over batches would stand still, and the covariance become indefinite
        if self.running_mean.dtype in HALF:
            self.running_mean, self.running_covariance = (
                statistic.to(self.running_mean.device, compute_dtype(self.running_mean.dtype)) for statistic in before
            )
        return self

    def extra_repr(self) -> str:
        return f"{self.features}, groups={self.groups}, eps={self.eps:g}, momentum={self.momentum}"

    def _samples(self, x: Tensor) -> Tensor:
        """(groups, samples, d), in the precision of the computation."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x is {kind_of(x)}; pass a tensor (N, {self.features}, ...)")
        if not x.is_floating_point():
            raise TypeError(f"x has dtype {x.dtype}; pass real floating-point numbers")
        if x.ndim < 2 or x.shape[1] != self.features:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; it must be (N, {self.features}) or (N, {self.features}, ...)"
            )
        rows = x.movedim(1, -1).reshape(-1, self.groups, self.features // self.groups)
        return rows.transpose(0, 1).to(compute_dtype(x.dtype))

    def _root(self, covariance: Tensor) -> Tensor:
        """(C + εtI)^−½; the error is about x, which the caller knows."""
        try:
            return inv_sqrt(self._shifted(covariance))
        except LinAlgError as error:
            if bool(covariance.isfinite().all()):
                raise
            whose = "of x is not finite (an entry is infinite or NaN, or its square overflows"
            if not self.training:
                whose = "that is kept is not finite (it overflowed its dtype in training"
            raise LinAlgError(f"the covariance {whose}): scale the features, or use float32 or float64") from error

    def _shifted(self, covariance: Tensor) -> Tensor:
        """C + εtI; εI where C is 0. Rounding leaves a singular C eigenvalues down to about −dt units."""
        size = covariance.shape[-1]
        unit = torch.finfo(covariance.dtype if self.training else self.running_covariance.dtype).eps
        mean = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
        ridge = max(self.eps, size * unit) * torch.where(mean > 0, mean, 1.0)
        identity = torch.eye(size, dtype=covariance.dtype, device=covariance.device)
        return covariance + ridge[:, None, None] * identity

    def _update(self, mean: Tensor, covariance: Tensor) -> None:
        with torch.no_grad():
            self.num_batches_tracked += 1
            share = 1.0 / self.num_batches_tracked if self.momentum is None else self.momentum
            self.running_mean += share * (mean - self.running_mean).to(self.running_mean.dtype)
            self.running_covariance += share * (covariance - self.running_covariance).to(self.running_covariance.dtype)
