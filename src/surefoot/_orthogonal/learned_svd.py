"""D-SVD: a network whose layers are optimisation steps on orthonormal factors that end at the singular value decomposition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from .._core.brief import brief
from .._core.io import reading, write_tensors
from .._core.validate import integer, kind_of, nonnegative, positive_integer
from .._learning.run import TrainRun
from .._linalg.operator import own_precision
from .._linalg.tied_pairs import Ties, check_ties
from .feasible import require_orthonormal
from .svd_accuracy import defects
from .svd_implicit import converged_factors
from .svd_objective import half_step
from .svd_start import normalised
from .svd_training import train_svd

Backward = Literal["implicit", "unroll"]


class SVDStatus(IntEnum):
    """How the decomposition of one matrix ended; an integer, so that a batch of statuses is a tensor."""

    CONVERGED = 0
    NOT_CONVERGED = 1
    NON_FINITE = 2

    @property
    def text(self) -> str:
        """What happened and what to do."""
        return {
            "CONVERGED": "residual and orthogonality are within the tolerance",
            "NOT_CONVERGED": "the residual or the orthogonality is above the tolerance, and the derivative of the decomposition "
            "is not known; use more layers, train them, or take sf.linalg.svd, which is faster and exact",
            "NON_FINITE": "the matrix has infinite or NaN entries, and so have its factors; look for where they come from",
        }[self.name]


class SVDInfo(NamedTuple):
    """What was measured; tensors over the batch dimensions, without gradient."""

    status: Tensor
    """``SVDStatus``, integer"""
    residual: Tensor
    """(‖MV − US‖²_F + ‖MᵀU − VS‖²_F)^½ / ‖M‖_F"""
    orthogonality: Tensor
    """the larger of ‖UᵀU − I‖_F and ‖VᵀV − I‖_F"""

    __repr__ = brief

    @property
    def ok(self) -> bool:
        """Whether every matrix converged."""
        return bool((self.status == SVDStatus.CONVERGED).all())


class LearnedSVDResult(NamedTuple):
    """U (..., m, r), S (..., r) descending and at least 0, Vh (..., r, n), and what was measured."""

    U: Tensor
    S: Tensor
    Vh: Tensor
    info: SVDInfo

    __repr__ = brief


class LearnedSVD(nn.Module):
    """The differentiable SVD of the paper, equations (7) to (12), with learnable step sizes.

    Each layer takes a Cayley step in U and one in V that lower f = ½‖offdiag(UᵀMV)‖²_F − ⟨M, UVᵀ⟩, of which the singular
    vectors are a minimiser. This is a research layer: it is tens of times slower and far less accurate than torch.linalg.svd
    (``surefoot reproduce svd/table3``); ``sf.linalg.svd`` is for use.

    Two corrections of the paper: with negative curvature the printed step ascends, and the cap is taken instead; for square M of
    full rank a start whose determinants have the wrong sign cannot reach the minimum, so one column of it changes sign.

    M is divided by an upper bound of its norm first, so that nothing depends on its scale. With rank r < min(m, n) the factors
    are meant to be the leading ones; ``info`` says that they are singular vectors, not that they are the leading ones.

    Args:
        rows, columns: m and n.
        rank: r ≤ min(m, n), by default that.
        layers: K_svd ≥ 0.
        inverse: layers and order (K, L), L ≥ 2, of the LD-Minv in each Cayley step, or "exact" for a linear solve, which is
            faster and as accurate.
        seed: of the orthonormal factors that every matrix starts from.
        tolerance: of residual and orthogonality, for the status; by default the square root of the dtype's epsilon.
        dtype: float64 or float32.
        backward: "implicit": the gradient in M is that of the singular value decomposition at the factors that the layers end
            at, and there is none in ``steps`` or the start. A matrix that has not converged has none either:
            ``torch.linalg.LinAlgError`` where it is computed. "unroll": all layers are differentiated, for training by a loss of
            one's own; this gradient in M is that of the layers, not of the decomposition, however well they converged
            (docs/errata.md).
        ties: what an implicit gradient is at equal singular values; see ``sf.linalg.svd``.

    Attributes:
        steps: t̃ (layers, 2), learned; added to the guarded step of U and of V.
        coefficients: C (layers, 2, K, L) of the LD-Minv in each layer, ones until ``fit`` trains them.
        backward, ties: the arguments; they may be changed.

    Raises:
        TypeError: another dtype.
        ValueError: arguments out of range.

    Example:
        >>> M = torch.tensor([[3.0, 0.5], [0.2, 1.0], [0.1, 0.3]], dtype=torch.float64)
        >>> U, S, Vh, info = sf.nn.LearnedSVD(3, 2, layers=30, inverse="exact")(M)
        >>> info.ok, torch.allclose(S, torch.linalg.svdvals(M), atol=1e-6)
        (True, True)
        >>> sf.nn.LearnedSVD(3, 2, layers=3, inverse="exact")(M).info.ok  # too few layers, which is said
        False
    """

    __call__: Callable[..., LearnedSVDResult]

    steps: nn.Parameter
    coefficients: Tensor
    start_U: Tensor
    start_V: Tensor

    def __init__(
        self,
        rows: int,
        columns: int,
        rank: int | None = None,
        *,
        layers: int = 10,
        inverse: tuple[int, int] | Literal["exact"] = (6, 4),
        seed: int = 0,
        tolerance: float | None = None,
        dtype: torch.dtype = torch.float64,
        backward: Backward = "implicit",
        ties: Ties = "raise",
    ) -> None:
        super().__init__()
        _real_dtype("dtype", dtype)
        self.rows, self.columns = positive_integer("rows", rows), positive_integer("columns", columns)
        least = min(self.rows, self.columns)
        self.rank = least if rank is None else positive_integer("rank", rank)
        if self.rank > least:
            raise ValueError(f"rank is {rank}; a {rows}x{columns} matrix has at most {least} singular values")
        self.layers = integer("layers", layers, 0)
        self.seed = integer("seed", seed, 0)
        self.tolerance = None if tolerance is None else nonnegative("tolerance", tolerance)
        self.exact = inverse == "exact"
        if backward not in ("implicit", "unroll"):
            raise ValueError(f"backward is {backward!r}; it must be 'implicit' or 'unroll'")
        check_ties(ties)
        self.backward: Backward = backward
        self.ties: Ties = ties
        inner = (0, 0) if self.exact else _inner(inverse)
        generator = torch.Generator().manual_seed(self.seed)
        for name, size in (("start_U", self.rows), ("start_V", self.columns)):
            drawn = torch.randn(size, self.rank, dtype=torch.float64, generator=generator)
            self.register_buffer(name, torch.linalg.qr(drawn)[0].to(dtype))
        self.register_buffer("coefficients", torch.ones(self.layers, 2, *inner, dtype=dtype))
        self.steps = nn.Parameter(torch.zeros(self.layers, 2, dtype=dtype))

    def extra_repr(self) -> str:
        inner = "exact" if self.exact else tuple(self.coefficients.shape[2:])
        sizes = f"{self.rows}x{self.columns}, rank={self.rank}, layers={self.layers}, inverse={inner}"
        return f"{sizes}, backward={self.backward!r}"

    @own_precision
    def forward(self, M: Tensor, start: tuple[Tensor, Tensor] | None = None) -> LearnedSVDResult:
        """The factors after all layers. An implicit derivative exists to every order, where singular values differ; an unrolled
        one to the first (to every with an exact inverse).

        Args:
            M: (..., m, n), of the network's dtype and device. A matrix with a non-finite entry gets NaN factors, and the others
                are not affected.
            start: orthonormal U (..., m, r) and V (..., n, r); by default the network's own.

        Returns:
            U, S, Vh and the info; M ≈ U diag(S) Vh where rank = min(m, n).

        Raises:
            TypeError: no tensor, or another dtype or device.
            ValueError: another shape, or a start that is not orthonormal.
        """
        self._check(M)
        usable = M.isfinite().all((-2, -1), keepdim=True)
        finite = torch.where(usable, M, 0.0)
        U, V = self.orthonormal_start(finite, start)
        if self.backward == "unroll":
            U, S, V, residual, orthogonality = self._factors(finite, U, V)
            Vh = V.mT
        else:
            U, S, Vh, place, residual, orthogonality = converged_factors(
                finite, U.detach(), V.detach(), self._factors, self._tolerance, self.ties
            )
            if self.rank < S.shape[-1]:
                S = S.gather(-1, place)
                U = U.gather(-1, place[..., None, :].expand(*U.shape[:-1], self.rank))
                Vh = Vh.gather(-2, place[..., None].expand(*Vh.shape[:-2], self.rank, self.columns))
        info = SVDInfo(self._status(torch.maximum(residual, orthogonality), usable[..., 0, 0]), residual, orthogonality)
        U, Vh = torch.where(usable, U, torch.nan), torch.where(usable, Vh, torch.nan)
        return LearnedSVDResult(U, torch.where(usable[..., 0], S, torch.nan), Vh, info)

    def _factors(self, M: Tensor, U: Tensor, V: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """U, S, V, residual and orthogonality after all layers from U and V, for finite M."""
        for factors in self.iterates(normalised(M), (U, V)):
            U, V = factors
        values = (U.mT @ M @ V).diagonal(dim1=-2, dim2=-1)
        order = values.detach().abs().argsort(dim=-1, descending=True, stable=True)
        sign = torch.where(values.detach() < 0.0, -1.0, 1.0).to(M.dtype)
        S = (sign * values).gather(-1, order)
        U = (sign[..., None, :] * U).gather(-1, order[..., None, :].expand_as(U))
        V = V.gather(-1, order[..., None, :].expand_as(V))
        return U, S, V, *defects(M.detach(), U.detach(), S.detach(), V.detach())

    def orthonormal_start(self, M: Tensor, start: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """U_0 (..., m, r) and V_0 (..., n, r) for M (..., m, n).

        For square M with r = m the last column of U_0 changes sign where det U_0 det V_0 det M < 0: Cayley steps keep the
        determinant, and from there the objective stays 2σ_min or more above its minimum.
        """
        shapes = (self.rows, self.rank), (self.columns, self.rank)
        U, V = (self.start_U, self.start_V) if start is None else self._checked_start(start, shapes)
        U = U.expand(*M.shape[:-2], *shapes[0])
        V = V.expand(*M.shape[:-2], *shapes[1])
        if self.rows == self.columns == self.rank:
            with torch.no_grad():
                signs = [torch.linalg.slogdet(X)[0] for X in (U, V, M)]
                last = torch.where(signs[0] * signs[1] * signs[2] < 0.0, -1.0, 1.0).to(U.dtype)
                flip = torch.cat((torch.ones_like(U[..., :1, 1:]), last[..., None, None]), -1)
            U = U * flip
        return U, V

    def iterates(self, M: Tensor, start: tuple[Tensor, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """(U_k, V_k), k = 1 … K_svd, for M (..., m, n) of norm at most 1, equation (12)."""
        U, V = start
        for k in range(self.layers):
            U = half_step(M, U, V, self.steps[k, 0], self.inner(k, 0))
            V = half_step(M.mT, V, U, self.steps[k, 1], self.inner(k, 1))
            yield U, V

    def inner(self, layer: int, side: int) -> Tensor | None:
        """Coefficients (K, L) of the LD-Minv of U (side 0) or V (1) in a layer; ``None`` with an exact inverse."""
        return None if self.exact else self.coefficients[layer, side]

    def fit(self, matrices: Tensor, **settings: Any) -> TrainRun:
        """Train ``steps``, and the inner coefficients if asked to; see ``train_svd`` for the arguments and what comes back."""
        return train_svd(self, matrices, **settings)

    def save(self, path: str | Path) -> None:
        """Write sizes, start, steps and coefficients to a safetensors file, atomically."""
        sizes = torch.tensor([self.rows, self.columns, self.rank, self.layers, self.exact, self.seed])
        tolerance = torch.tensor(-1.0 if self.tolerance is None else self.tolerance, dtype=torch.float64)
        write_tensors(Path(path), {**self.state_dict(), "sizes": sizes, "tolerance": tolerance})

    @classmethod
    def load(cls, path: str | Path) -> LearnedSVD:
        """The network that ``save`` wrote.

        Raises:
            RunDirectoryError: missing, damaged, or no such network.
        """
        with reading(path, "learned SVD") as stored:
            rows, columns, rank, layers, exact, seed = stored.pop("sizes").tolist()
            tolerance = float(stored.pop("tolerance"))
            # before memory is taken for what the sizes claim
            shapes = {name: tuple(stored[name].shape) for name in ("start_U", "start_V", "steps")}
            if shapes != {"start_U": (rows, rank), "start_V": (columns, rank), "steps": (layers, 2)}:
                raise ValueError(f"its sizes are not those of its arrays {shapes}")
            inner: Any = "exact" if exact else tuple(stored["coefficients"].shape[2:])
            options: Any = {"layers": layers, "inverse": inner, "seed": seed, "dtype": stored["steps"].dtype}
            net = cls(rows, columns, rank, tolerance=None if tolerance < 0.0 else tolerance, **options)
            net.load_state_dict(stored)
            return net

    def _checked_start(self, start: Any, shapes: tuple[tuple[int, int], tuple[int, int]]) -> tuple[Tensor, Tensor]:
        if not isinstance(start, tuple | list) or len(start) != 2 or not all(isinstance(X, Tensor) for X in start):
            raise TypeError("start must be two tensors, orthonormal U (..., m, r) and V (..., n, r)")
        for name, X, shape in zip(("start U", "start V"), start, shapes, strict=True):
            if X.dtype != self.steps.dtype or X.device != self.steps.device:
                raise TypeError(
                    f"{name} is {X.dtype} on {X.device}; convert it to the network's {self.steps.dtype} on {self.steps.device}"
                )
            if X.shape[-2:] != shape:
                raise ValueError(f"{name} has shape {tuple(X.shape)}; it must end in {shape}")
            require_orthonormal(name, X)
        return start[0], start[1]

    def _check(self, M: Any) -> None:
        if not isinstance(M, Tensor):
            raise TypeError(f"M is {kind_of(M)}; pass a tensor")
        if M.dtype != self.steps.dtype or M.device != self.steps.device:
            raise TypeError(
                f"M is {M.dtype} on {M.device} and the network {self.steps.dtype} on {self.steps.device}; convert one of them"
            )
        if M.shape[-2:] != (self.rows, self.columns):
            raise ValueError(f"M has shape {tuple(M.shape)}; it must end in {(self.rows, self.columns)}")

    @property
    def _tolerance(self) -> float:
        return torch.finfo(self.steps.dtype).eps ** 0.5 if self.tolerance is None else self.tolerance

    def _status(self, error: Tensor, usable: Tensor) -> Tensor:
        status = torch.where(error <= self._tolerance, SVDStatus.CONVERGED, SVDStatus.NOT_CONVERGED)
        return torch.where(usable, status, SVDStatus.NON_FINITE)


def _inner(value: Any) -> tuple[int, int]:
    try:
        layers, order = value
    except (TypeError, ValueError):
        raise ValueError(f"inverse is {value!r}; it must be 'exact' or two integers (layers, order)") from None
    return positive_integer("inverse layers", layers), integer("inverse order", order, 2)


def _real_dtype(name: str, dtype: Any) -> None:
    if dtype not in (torch.float64, torch.float32):
        raise TypeError(f"{name} is {dtype}; it must be torch.float64 or torch.float32")
