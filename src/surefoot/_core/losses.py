"""Losses as functions of the end-to-end linear map W (n, m), with their constants and minimiser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from .row_shares import reduce_rows, statistics_of_shards
from .small_losses import Array, SmallLoss, SmallQuadratic
from .statistics import (
    Block,
    Cut,
    LeastSquaresStatistics,
    Triangle,
    one_for_each_row,
    reduce_blocks,
    reduction,
    row_blocks,
    triangle,
)
from .validate import as_tensor, kind_of, real

ROUNDING = 64 * torch.finfo(torch.float64).eps
"""Entries of W carry relative errors of this order after a product and a difference; gaps below what it causes are noise."""


SCALE = 1e20
"""Singular values of the data beyond this (or below its inverse) would overflow in the theorems' products."""


def check_scale(name: str, largest: float) -> None:
    """Raise ``ValueError`` for data whose largest singular value is too large or too small for float64 arithmetic."""
    if not 1.0 / SCALE <= largest <= SCALE:
        raise ValueError(
            f"{name} has largest singular value {largest:.3g}, outside {1.0 / SCALE:.0e} to {SCALE:.0e}: products would "
            f"overflow or vanish; scale the data, for example divide by {name}.abs().max()"
        )


def _constants(names: tuple[str, str], design: Tensor, target: Tensor) -> tuple[float, float]:
    """K and μ of ½‖design V - target‖²."""
    s = torch.linalg.svdvals(design)
    check_scale(names[0], float(s[0]))
    largest = float(target.abs().max())
    if not largest <= SCALE:
        raise ValueError(
            f"{names[1]} reaches {largest:.3g}, beyond {SCALE:.0e}: products would overflow; scale the data"
        )
    return float(s[0]) ** 2, float(s[-1]) ** 2


class Loss(ABC):
    """What is minimised: a loss with its optimal value, and the arrays that a certificate of it speaks of.

    Example:
        >>> loss = sf.SquaredLoss([[1.0], [2.0]], [[2.0], [4.0]])  # one of them
        >>> isinstance(loss, sf.Loss), sorted(loss.arrays())  # what a certificate speaks of
        (True, ['X', 'Y', 'optimum'])
    """

    kind: str
    optimal_value: float
    basis: Tensor | None = None
    """Orthonormal columns of the subspace that the problem was reduced to, if it was."""
    cut: Cut | None = None
    """What the reduction of the data dropped or added; ``None`` where nothing was."""

    @cached_property
    def reduced(self) -> Loss:
        """The loss of the reduced problem; the loss itself where nothing is reduced."""
        return self

    @abstractmethod
    def arrays(self) -> dict[str, Tensor]:
        """What a certificate speaks of: the arrays of the reduced problem."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sizes()})"

    def _sizes(self) -> str:
        """What it is of, in a few words."""
        return f"kind {self.kind}"


class LinearMapLoss(Loss):
    """A smooth loss ℓ(W) of an end-to-end linear map W, with known constants.

    Attributes:
        shape: (n, m), the shape of W.
        smoothness: K, of the gradient.
        strong_convexity: μ > 0 of strong convexity where the minimiser is unique, otherwise the Polyak-Łojasiewicz constant.
        optimal_value: ℓ*.
        optimum: W* (n, m); where it is not unique, the one of least norm. ``arrays`` holds that of the reduced problem.
        unique_optimum: whether the minimiser is unique on the reduced problem.
        basis: (n, r) orthonormal columns where X has rank r < n: all that training can change is Bᵀ W1. ``None`` otherwise.
        l2: of the penalty l2/2 ‖W‖²_F that it contains.

    Example:
        >>> loss = sf.SquaredLoss([[1.0, 0.0], [0.0, 2.0]], [[1.0], [2.0]])  # one of them
        >>> isinstance(loss, sf.extending.LinearMapLoss), loss.shape
        (True, (2, 1))
        >>> round(loss.smoothness, 9), round(loss.strong_convexity, 9)
        (4.0, 1.0)
    """

    quadratic: ClassVar[bool] = False
    l2: float = 0.0
    shape: tuple[int, int]
    unique_optimum: bool = True
    smoothness: float
    strong_convexity: float

    @cached_property
    def optimum(self) -> Tensor:
        """W* (n, m)."""
        return self._find_optimum()

    @abstractmethod
    def _find_optimum(self) -> Tensor: ...

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.optimum.device

    @cached_property
    def reduced(self) -> LinearMapLoss:
        """The loss of BᵀW (r, m); the loss itself where there is no basis."""
        return self

    @abstractmethod
    def value(self, W: Tensor) -> float:
        """ℓ(W)."""

    @abstractmethod
    def gap(self, W: Tensor) -> float:
        """ℓ(W) - ℓ*, in a form that keeps its relative accuracy near the optimum."""

    @abstractmethod
    def gradient(self, W: Tensor) -> Tensor:
        """∇ℓ(W) (n, m)."""

    @property
    def has_intercept(self) -> bool:
        """Whether an intercept was eliminated, which ``intercept`` gives."""
        return self.cut is not None and self.cut.intercept

    def intercept(self, W: Tensor) -> Tensor:
        """What predictions add to XW: the best intercept b (m,) where one was eliminated, else 0."""
        return self._check(W).new_zeros(self.shape[1])

    def restrict(self, W: Tensor) -> Tensor:
        """BᵀW, what the reduced problem sees of W (n, h); W itself where there is no basis."""
        return W if self.basis is None else self.basis.T @ W

    def extend(self, reduced: Tensor, before: Tensor) -> Tensor:
        """The W that training makes of ``before``, of which the reduced problem then sees ``reduced``; the rest stays."""
        return reduced if self.basis is None else before + self.basis @ (reduced - self.restrict(before))

    @cached_property
    def small(self) -> SmallLoss:
        """The same loss on NumPy arrays of the size of W."""
        return SmallGeneral(self)

    @property
    def gap_resolution(self) -> float:
        """Gap that rounding of W alone can cause near W*; below it, gaps are noise. See also ``system.map_resolution``."""
        error = ROUNDING * float(torch.linalg.matrix_norm(self.optimum))
        return 0.5 * self.smoothness * error * error

    def require_net(self, inputs: int, outputs: int, device: torch.device, sizes: tuple[str, str]) -> None:
        """That a network maps what the loss needs, where it is; ``sizes`` are the names of the two numbers in its constructors.

        Raises:
            ValueError: it does not.
        """
        n, m = self.shape
        if (inputs, outputs) != self.shape:
            raise ValueError(
                f"net maps {inputs} inputs to {outputs} outputs, the loss has {n} inputs and {m} outputs; "
                f"build the network with {sizes[0]}={n}, {sizes[1]}={m}"
            )
        if device != self.device:
            raise ValueError(f"net is on {device} and the loss on {self.device}; move one of them")

    def _check(self, W: Tensor) -> Tensor:
        if not isinstance(W, Tensor):
            raise TypeError(f"W is {kind_of(W)}; pass a tensor of shape {self.shape}")
        if tuple(W.shape) != self.shape:
            raise ValueError(f"W has shape {tuple(W.shape)}; this loss needs {self.shape}")
        return W


class SmallGeneral:
    """Any loss, through its own tensors."""

    def __init__(self, loss: LinearMapLoss) -> None:
        self._loss = loss
        self._device = loss.device
        self.smoothness = loss.smoothness

    def gap(self, W: Array) -> float:
        """ℓ(W) - ℓ*."""
        return self._loss.gap(torch.from_numpy(W).to(self._device))

    def gradient(self, W: Array) -> Array:
        """∇ℓ(W)."""
        return self._loss.gradient(torch.from_numpy(W).to(self._device)).cpu().numpy()


class QuadraticLoss(LinearMapLoss):
    """½‖𝒳(W - W*)‖² + ℓ*, 𝒳 linear: squared loss and matrix sensing."""

    quadratic = True

    @abstractmethod
    def image(self, W: Tensor) -> Tensor:
        """𝒳W."""

    @abstractmethod
    def adjoint(self, E: Tensor) -> Tensor:
        """𝒳ᵀE (n, m)."""

    def gap(self, W: Tensor) -> float:
        return 0.5 * float((self.image(self._check(W) - self.optimum) ** 2).sum())

    def value(self, W: Tensor) -> float:
        return self.gap(W) + self.optimal_value

    def gradient(self, W: Tensor) -> Tensor:
        return self.adjoint(self.image(self._check(W) - self.optimum))


class SquaredLoss(QuadraticLoss):
    """½ Σ_i w_i ‖f(x_i) - y_i‖² + l2/2 ‖W‖²_F, summed over samples; by default ½‖f(X) - Y‖²_F.

    For a network that is a linear map, ½‖XW - Y‖², X and Y are read once, in blocks, and reduced to a triangle
    (``LeastSquaresStatistics``); NumPy memory maps are never loaded whole. Rank-deficient X is handled by Theorem 7 of the
    two-layer proofs: the theorems then speak of the reduced problem. float32 data, and memory maps of any real dtype, are
    converted to float64 block by block. What the options below do is exact, up to the rounding of the reduction, and ``cut``
    names it; networks that are no linear map do not take them.

    Args:
        X: (N, n), float64 or float32.
        Y: (N, m) or (N,).
        l2: λ ≥ 0 of the penalty of the end-to-end map W, as in ``SoftmaxRegression`` (scikit-learn's ``Ridge(alpha=l2)``): n
            rows √λ I below X and of 0 below Y (Golub and Van Loan, Matrix Computations, section 6.1.4). ``optimal_value``
            contains the penalty.
        rcond: singular values of X (with the rows of the penalty) of at most this times the largest are dropped; by default
            max(N, n) eps.
        sample_weight: (N,), at least 0: w, by which the squares are weighted. Rows of weight 0 are dropped.
        intercept: add an intercept b (m,) to f, not penalised, and eliminate it: the loss is the least over b, that of X and Y
            less their weighted means (Frisch, Waugh and Lovell). ``intercept(W)`` is the best b; predict with
            ``net(X) + loss.intercept(net.end_to_end())``.
        offset: W0 (n, m), a fixed map to which the network's is added, as in low-rank adapters W0 + BA: f(x) = x(W0 + W), and the
            targets that remain are Y - XW0. The penalty is of W alone; predict with ``X @ W0 + net(X)``.

    Raises:
        TypeError: integer, half-precision or complex data; an option of another kind.
        ValueError: empty, mismatched, non-finite or zero data, or data of a scale outside 1e-20 to 1e20; an option out of range,
            weights that are negative, not finite or all 0, or with an intercept constant X.

    Example:
        >>> X = torch.randn(30, 3).double()
        >>> Y = X @ torch.tensor([1.0, 2.0, 3.0]).double() + 5.0
        >>> loss = sf.SquaredLoss(X, Y, intercept=True)
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> run = sf.descend(net, loss)
        >>> W = net.end_to_end().detach()
        >>> [round(float(value), 3) for value in (*W, loss.intercept(W))]
        [1.0, 2.0, 3.0, 5.0]
    """

    kind = "squared"
    samples: tuple[Tensor | np.ndarray, Tensor | np.ndarray] | None = None
    """X and Y (N, m), for networks that need the rows themselves; ``None`` where only statistics were given."""
    options: tuple[str, ...] = ()
    """Those given that only linear maps take."""

    def __init__(
        self,
        X: Any,
        Y: Any,
        *,
        l2: float = 0.0,
        rcond: float | None = None,
        sample_weight: Any = None,
        intercept: bool = False,
        offset: Any = None,
    ) -> None:
        how = reduction(l2, rcond, intercept, offset)
        x, y, weights = _weighted(X, Y, sample_weight)
        self._set(reduce_rows(x, y, weights, how))
        given = {
            "l2": how.l2,
            "rcond": rcond,
            "sample_weight": weights is not None,
            "intercept": how.intercept,
            "offset": offset is not None,
        }
        self.options = tuple(name for name, value in given.items() if value)
        self.samples = None if self.options else (x, y)

    @classmethod
    def from_blocks(
        cls,
        blocks: Iterable[Block],
        *,
        l2: float = 0.0,
        rcond: float | None = None,
        intercept: bool = False,
        offset: Any = None,
    ) -> SquaredLoss:
        """The loss of the stacked rows of all blocks (X_i (N_i, n), Y_i (N_i, m)) or (X_i, Y_i, w_i (N_i,)) with their weights;
        each block is read once."""
        return cls.from_statistics(reduce_blocks(blocks, reduction(l2, rcond, intercept, offset)))

    @classmethod
    def from_shards(
        cls,
        X: Any,
        Y: Any,
        group: dist.ProcessGroup | None = None,
        *,
        l2: float = 0.0,
        rcond: float | None = None,
        sample_weight: Any = None,
        intercept: bool = False,
        offset: Any = None,
    ) -> SquaredLoss:
        """The loss of the rows of all ranks of a process group, stacked in rank order. Each rank calls this with rows of its own;
        only factors of (n + m)² numbers travel, and every rank gets the loss.

        Args:
            X, Y: the rows of this rank, (N_r, n) and (N_r, m) or (N_r,), in memory or memory-mapped.
            group: by default the world; it needs a backend for the CPU, such as gloo.
            l2, rcond, intercept, offset: as the constructor has them, the same on every rank.
            sample_weight: of the rows of this rank.

        Raises:
            RuntimeError: no process group is initialised.
            ValueError: on every rank, where the rows of one cannot be used.
        """
        how = reduction(l2, rcond, intercept, offset)

        def own() -> Triangle:
            return triangle(row_blocks(*_weighted(X, Y, sample_weight)), intercept=how.intercept)

        return cls.from_statistics(statistics_of_shards(own, group, how))

    @classmethod
    def from_statistics(cls, statistics: LeastSquaresStatistics) -> SquaredLoss:
        """The loss of already reduced data."""
        loss = cls.__new__(cls)
        loss._set(statistics)
        return loss

    def _set(self, statistics: LeastSquaresStatistics) -> None:
        self.statistics = statistics
        self.basis, self.cut = statistics.basis, statistics.cut
        self.l2 = 0.0 if self.cut is None else self.cut.l2
        self.shape = (statistics.columns, statistics.target.shape[1])
        self.optimal_value = statistics.offset
        self.smoothness, self.strong_convexity = _constants(("X", "Y"), statistics.design, statistics.target)

    @cached_property
    def reduced(self) -> SquaredLoss:
        if self.basis is None:
            return self
        s = self.statistics
        return SquaredLoss.from_statistics(
            LeastSquaresStatistics(s.design, s.target, s.offset, None, s.rows, s.design.shape[1])
        )

    def intercept(self, W: Tensor) -> Tensor:
        if self.statistics.means is None:
            return super().intercept(W)
        x, y = self.statistics.means
        return y - x @ self._check(W)

    def _sizes(self) -> str:
        n, m = self.shape
        rows = self.statistics.rows
        options = [f"l2={self.l2:g}"] if self.l2 > 0.0 else []
        options += [name for name in self.options if name not in ("l2", "rcond")]
        return ", ".join([f"X {rows}x{n}", f"Y {rows}x{m}", *options])

    def _find_optimum(self) -> Tensor:
        W = torch.linalg.solve(self.statistics.design, self.statistics.target)
        return W if self.basis is None else self.basis @ W

    def image(self, W: Tensor) -> Tensor:
        return self.statistics.design @ self.restrict(W)

    @cached_property
    def small(self) -> SmallQuadratic:
        design = self.statistics.design if self.basis is None else self.statistics.design @ self.basis.T
        return _small(design, self, vectorised=False)

    def adjoint(self, E: Tensor) -> Tensor:
        W = self.statistics.design.T @ E
        return W if self.basis is None else self.basis @ W

    def arrays(self) -> dict[str, Tensor]:
        return {"X": self.statistics.design, "Y": self.statistics.target, "optimum": self.reduced.optimum}


def _small(design: Tensor, loss: LinearMapLoss, vectorised: bool) -> SmallQuadratic:
    return SmallQuadratic(design.cpu().numpy(), loss.optimum.cpu().numpy(), vectorised, loss.smoothness)


def _pair(X: Any, Y: Any) -> tuple[Tensor | np.ndarray, Tensor | np.ndarray]:
    """Rows and their targets, each in memory or on disk."""
    x, y = _rows("X", X), _rows("Y", Y)
    if x.ndim > 2:
        raise ValueError(
            f"X has shape {tuple(x.shape)}; it must have rows (N, n): pass X.flatten(1), of which a network of maps makes maps "
            "again with nn.Unflatten"
        )
    if x.ndim != 2 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise ValueError(
            f"X has shape {tuple(x.shape)} and Y {tuple(y.shape)}; they must be (N, n) and (N, m) or (N,) with the same N"
        )
    if 0 in x.shape or 0 in y.shape:
        raise ValueError(f"X has shape {tuple(x.shape)} and Y {tuple(y.shape)}; neither may be empty")
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x.device != y.device:
        raise ValueError(f"X is on {x.device} and Y on {y.device}; move one of them")
    return x, y


Rows = Tensor | np.ndarray


def _weighted(X: Any, Y: Any, sample_weight: Any) -> tuple[Rows, Rows, Rows | None]:
    """Rows, targets as columns, and weights; those are looked at as they are read."""
    x, y = _pair(X, Y)
    weights = None if sample_weight is None else _rows("sample_weight", sample_weight)
    if weights is not None:
        one_for_each_row(weights, x.shape[0])
    if isinstance(weights, Tensor) and isinstance(x, Tensor) and weights.device != x.device:
        raise ValueError(f"sample_weight is on {weights.device} and X on {x.device}; move one of them")
    return x, y if y.ndim == 2 else y[:, None], weights


def _rows(name: str, value: Any) -> Tensor | np.ndarray:
    """A tensor, or a memory map left on disk."""
    if not isinstance(value, np.memmap):
        return as_tensor(name, value)
    if value.dtype.kind not in "fiu":
        raise TypeError(f"{name} is a memory map of dtype {value.dtype}; it must hold real numbers")
    return value


class MatrixSensing(QuadraticLoss):
    """½ Σ_k (⟨A_k, W⟩ - y_k)²; A (M, n, m), y (M,).

    With nm or more measurements of full rank the minimiser is unique; otherwise only the Polyak-Łojasiewicz inequality holds,
    and the theorems use their form without a known minimiser.

    Args:
        A: (M, n, m), float64 or float32 (converted to float64): the measurement matrices.
        y: (M,), what was measured.

    Raises:
        TypeError, ValueError: as ``SquaredLoss``.

    Example:
        >>> W = torch.arange(6.0).reshape(3, 2).double()
        >>> A = torch.randn(12, 3, 2).double()  # twelve measurements of six entries
        >>> loss = sf.MatrixSensing(A, (A * W).sum((1, 2)))
        >>> net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=8, std=0.5, seed=0)
        >>> sf.descend(net, loss).certified, torch.allclose(net.end_to_end(), W, atol=1e-3)
        (True, True)
    """

    kind = "sensing"

    def __init__(self, A: Any, y: Any) -> None:
        A, y = real("A", A, 3), real("y", y, 1)
        if len(A) != len(y):
            raise ValueError(f"A has {len(A)} measurements and y {len(y)}; they must be as many")
        if not bool(A.any()):
            raise ValueError(
                "A is zero; there is nothing to learn from it: pass at least one measurement that is not zero"
            )
        self._measurements, n, m = A.shape
        self.shape = (n, m)
        s = reduce_blocks(row_blocks(A.reshape(len(A), n * m), y[:, None]))
        # unlike a rank-deficient X, missing measurements do not reduce W1: undo the rotation, keep full row rank
        self._design = s.design if s.basis is None else s.design @ s.basis.T
        self._target = s.target
        self.optimal_value = s.offset
        # directions that no measurement sees stay: only what was taken for rounding was dropped
        self.cut = s.cut if s.cut is not None and s.cut.below else None
        self.unique_optimum = self._design.shape[0] == n * m
        self.smoothness, self.strong_convexity = _constants(("A", "y"), self._design, self._target)

    def _sizes(self) -> str:
        n, m = self.shape
        return f"A {self._measurements}x{n}x{m}, y {self._measurements}"

    def _find_optimum(self) -> Tensor:
        # the design has full row rank: with its transpose QR, the solution of least norm is Q R⁻ᵀ y
        Q, R = torch.linalg.qr(self._design.T)
        return (Q @ torch.linalg.solve_triangular(R.T, self._target, upper=False)).reshape(self.shape)

    def image(self, W: Tensor) -> Tensor:
        return self._design @ W.reshape(-1, 1)

    def adjoint(self, E: Tensor) -> Tensor:
        return (self._design.T @ E).reshape(self.shape)

    @cached_property
    def small(self) -> SmallQuadratic:
        return _small(self._design, self, vectorised=True)

    def arrays(self) -> dict[str, Tensor]:
        return {
            "A": self._design.reshape(-1, *self.shape),
            "y": self._target[:, 0].contiguous(),
            "optimum": self.optimum,
        }
