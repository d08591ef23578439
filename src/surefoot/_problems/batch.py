"""Batches of problems min f(x) + h(x) of equal size: what solvers and training ask of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from surefoot_check.rigor.bounds import down, up
from surefoot_check.rigor.gram import extreme_bounds

from .._core.validate import as_tensor, finite, integer, nonnegative

EPS = torch.finfo(torch.float64).eps


class Problems(ABC):
    """N problems min F_p(x) = f_p(x) + h_p(x), f_p(x) = ℓ_p(M_p x) smooth and h_p separable.

    ``forward`` and ``adjoint`` are the multiplications with M and Mᵀ; every call adds 1 to ``products``, whatever N. Gap bounds,
    reference minimisers and constants are measurements, which do not count.

    Args:
        M: (N, b, d), float64 or float32, tensors or arrays; the problems compute in its dtype and on its device. One matrix
            (b, d) is the batch of one problem ``M[None]``.
        Y: (N, b), of the same dtype and device; of one problem ``Y[None]``.
        target: what errors call Y.

    Raises:
        TypeError: other dtypes, or two that differ.
        ValueError: empty, non-finite or zero matrices, shapes that do not fit, or entries too large or small to square.

    Example:
        >>> problems = sf.learned.LeastSquares.random(4, 6, 3)
        >>> x = problems.start()  # zeros (4, 3)
        >>> x = x - problems.gradient(x) / problems.smoothness[:, None]
        >>> problems.products, bool((problems.objective(x) < problems.objective(problems.start())).all())
        (2, True)
        >>> problems.select(slice(0, 2)).count
        2
    """

    kind: str
    """Name of the kind in a run directory."""
    curvature_factor: ClassVar[float] = 1.0
    """c with ∇²f ⪯ c MᵀM."""
    quadratic: ClassVar[bool] = True
    """Whether f is quadratic with ∇²f = MᵀM."""

    M: Tensor
    Y: Tensor
    products: int

    def __init__(self, M: Any, Y: Any, target: str = "Y") -> None:
        M, Y = as_tensor("M", M), as_tensor(target, Y)
        if M.ndim != 3:
            hint = "; for one problem pass M[None]" if M.ndim == 2 else ""
            raise ValueError(f"M has shape {tuple(M.shape)}; it must be (problems, rows, columns){hint}")
        if M.numel() == 0:
            raise ValueError(f"M is empty (shape {tuple(M.shape)}); pass at least one problem, one row and one column")
        if Y.shape != M.shape[:2]:
            fits = Y.ndim == 2 and Y.shape == (M.shape[0], M.shape[2])
            hint = "; it fits the columns: transpose M" if fits else ""
            raise ValueError(
                f"M has shape {tuple(M.shape)} and {target} {tuple(Y.shape)}; {target} must be {tuple(M.shape[:2])}, "
                f"one number per problem and row{hint}"
            )
        if M.dtype != Y.dtype or M.device != Y.device:
            raise TypeError(
                f"M is {M.dtype} on {M.device} and {target} {Y.dtype} on {Y.device}; pass the same dtype and device"
            )
        finite("M", M)
        finite(target, Y)
        zero = (M.amax((1, 2)) == 0) & (M.amin((1, 2)) == 0)
        if bool(zero.any()):
            raise ValueError(f"M[{int(zero.nonzero()[0])}] is zero; every point is optimal there: remove the problem")
        self.M, self.Y, self.products = M, Y, 0
        self._best: tuple[float, Tensor] | None = None

    @property
    def count(self) -> int:
        """N."""
        return self.M.shape[0]

    @property
    def rows(self) -> int:
        """b."""
        return self.M.shape[1]

    @property
    def columns(self) -> int:
        """d."""
        return self.M.shape[2]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.count} of {self.rows}x{self.columns}, {self.M.dtype}, {self.M.device})"

    def __len__(self) -> int:
        return self.count

    # ----- values and derivatives

    def forward(self, x: Tensor) -> Tensor:
        """M x (N, b); one product."""
        self.products += 1
        return torch.bmm(self.M, x.unsqueeze(2)).squeeze(2)

    def adjoint(self, r: Tensor) -> Tensor:
        """Mᵀ r (N, d); one product."""
        self.products += 1
        return torch.bmm(r.unsqueeze(1), self.M).squeeze(1)

    @abstractmethod
    def smooth_value(self, product: Tensor) -> Tensor:
        """f (N,) from ``product`` = M x."""

    @abstractmethod
    def outer_gradient(self, product: Tensor) -> Tensor:
        """∇ℓ (N, b) at ``product`` = M x, so that ∇f = Mᵀ∇ℓ."""

    def outer_curvature(self, product: Tensor) -> Tensor:
        """The diagonal of ∇²ℓ (N, b) at ``product``."""
        return torch.ones_like(product)

    def penalty(self, x: Tensor) -> Tensor:
        """h (N,)."""
        return x.new_zeros(len(x))

    def penalty_gradient(self, x: Tensor) -> Tensor | None:
        """A subgradient of h (N, d), 0 where h has a kink; ``None`` where h = 0."""
        return None

    def objective(self, x: Tensor) -> Tensor:
        """F (N,) at x (N, d); one product."""
        return self.smooth_value(self.forward(x)) + self.penalty(x)

    def gradient(self, x: Tensor) -> Tensor:
        """∇f (N, d), of the smooth part, at x (N, d); two products."""
        return self.adjoint(self.outer_gradient(self.forward(x)))

    def evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """F (N,) and ∇f (N, d) at x (N, d); two products."""
        product = self.forward(x)
        return self.smooth_value(product) + self.penalty(x), self.adjoint(self.outer_gradient(product))

    def curvature(self, v: Tensor, product: Tensor | None) -> Tensor:
        """∇²f v (N, d) at the point with ``product`` = M x, which may be ``None`` where f is quadratic; two products."""
        image = self.forward(v)
        return self.adjoint(image if product is None else self.outer_curvature(product) * image)

    def prox(self, x: Tensor, step: Tensor) -> Tensor:
        """prox of ``step``·h, coordinate by coordinate: x and step (N, d) to (N, d)."""
        return x

    def prox_pullback(self, output: Tensor, step: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor | None]:
        """Cotangents (N, d) of x and step in ``output`` = prox(x, step); ``None`` where the step does not enter."""
        return cotangent, None

    # ----- constants

    @cached_property
    def singular_values(self) -> Tensor:
        """(N, 2) float64: lower bound of the smallest singular value of M_p among min(b, d), upper bound of the largest.
        Rigorous."""
        shared = self.M.stride(0) == 0  # one matrix for all, see from_matrix
        matrices = (self.M[:1] if shared else self.M).double().cpu().numpy()
        extremes = []
        for A in matrices:
            (low, _), (_, high) = extreme_bounds(np.ascontiguousarray(A if A.shape[0] <= A.shape[1] else A.T))
            extremes.append((low, high))
        bounds = torch.tensor(extremes, dtype=torch.float64, device=self.M.device)
        return bounds.expand(self.count, 2) if shared else bounds

    @cached_property
    def smoothness(self) -> Tensor:
        """β_p (N,) float64: rigorous upper bounds of the Lipschitz constants of ∇f_p.

        Raises:
            ValueError: a bound or its inverse is not a normal number of the problems' dtype.
        """
        squares = [up(self.curvature_factor * up(high * high), 1) for high in self.singular_values[:, 1].tolist()]
        info = torch.finfo(self.M.dtype)
        for p, square in enumerate(squares):
            if not info.tiny * 4.0 <= square <= info.max / 4.0:
                raise ValueError(f"M[{p}] has the squared norm {square:.3g}, out of range of {self.M.dtype}; rescale M")
        return torch.tensor(squares, dtype=torch.float64, device=self.M.device)

    @property
    def common_smoothness(self) -> float:
        """β = max β_p."""
        return float(self.smoothness.max())

    @property
    @abstractmethod
    def strong_convexity(self) -> Tensor:
        """The constant (N,) float64 that a linear rate may use, rounded down; 0 where none is certified."""

    @cached_property
    def _smallest_eigenvalue(self) -> Tensor:
        """Lower bounds (N,) float64 of the smallest eigenvalue of the smaller of MᵀM and MMᵀ, which is the smallest nonzero one
        of both where it is positive."""
        squares = [max(0.0, down(low * low)) for low in self.singular_values[:, 0].tolist()]
        return torch.tensor(squares, dtype=torch.float64, device=self.M.device)

    # ----- gaps and reference minimisers

    @abstractmethod
    def gap_bound(self, x: Tensor) -> Tensor:
        """Upper bounds (N,) float64 of F_p(x_p) - F_p*, with an allowance for the rounding of their evaluation; x (N, d)."""

    def optimum(self, tolerance: float | None = None, max_iterations: int = 200_000) -> Tensor:
        """Reference minimisers (N, d) float64, with gap bounds of at most ``tolerance`` max(F, 1e-12 F(0)) where they are found
        by iteration; kept for the next call.

        Args:
            tolerance: by default that of an earlier call, and 1e-10 in the first. So certificates, which need a minimiser as a
                witness of any quality, take a coarse one where it was asked for before.
            max_iterations: of the search.

        Raises:
            TypeError, ValueError: bad arguments.
            RuntimeError: the iterations did not suffice.
        """
        if self._best is None or (tolerance is not None and self._best[0] > tolerance):
            wanted = 1e-10 if tolerance is None else nonnegative("tolerance", tolerance)
            most = integer("max_iterations", max_iterations, 0)
            self._best = wanted, self.double._minimisers(wanted, most)
        return self._best[1]

    def _minimisers(self, tolerance: float, max_iterations: int) -> Tensor:
        """The search of ``optimum`` in float64."""
        return accelerated_optimum(self, tolerance, max_iterations, self.start())

    @cached_property
    def double(self) -> Self:
        """The same problems in float64."""
        return self if self.M.dtype == torch.float64 else self.to(dtype=torch.float64)

    @cached_property
    def optimal_value(self) -> Tensor:
        """F_p at the reference minimiser (N,) float64."""
        return self.double._value(self.optimum())

    @property
    def gap_resolution(self) -> Tensor:
        """What the rounding of the reference minimiser's objective can add to a gap (N,) float64.

        With δ the rounding of M x̂, the loss moves by ‖∇ℓ‖δ + δ²/2 at most.
        """
        p, reference = self.double, self.optimum()
        image = p._image(reference)
        delta = EPS * p._frobenius * reference.norm(dim=1)
        return delta * p.outer_gradient(image).norm(dim=1) + 0.5 * delta.square()

    def gap(self, x: Tensor) -> Tensor:
        """F_p(x_p) less ``optimal_value`` (N,) float64; a value, where ``gap_bound`` is a bound."""
        return self.double._value(x.double()) - self.optimal_value

    def _value(self, x: Tensor) -> Tensor:
        """F (N,), not counted."""
        return self.smooth_value(self._image(x)) + self.penalty(x)

    def _image(self, x: Tensor) -> Tensor:
        return torch.bmm(self.M, x.unsqueeze(2)).squeeze(2)

    def _pullback(self, r: Tensor) -> Tensor:
        return torch.bmm(r.unsqueeze(1), self.M).squeeze(1)

    @cached_property
    def _column_norms(self) -> Tensor:
        """Largest Euclidean norm of a column of M_p (N,)."""
        return self.M.norm(dim=1).amax(1)

    @cached_property
    def _frobenius(self) -> Tensor:
        """‖M_p‖_F (N,)."""
        return self.M.flatten(1).norm(dim=1)

    # ----- copies and files

    @abstractmethod
    def _with(self, M: Tensor, parts: dict[str, Tensor]) -> Self:
        """Problems of this kind with other arrays."""

    @abstractmethod
    def _parts(self) -> dict[str, Tensor]:
        """The arrays besides M, each with N as its first dimension."""

    def to(self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Self:
        """A copy in another dtype or on another device. float64 to float32 rounds the data: these are other problems."""
        return self._with(
            self.M.to(dtype=dtype, device=device),
            {name: value.to(dtype=dtype, device=device) for name, value in self._parts().items()},
        )

    def select(self, index: Tensor | slice) -> Self:
        """The problems at ``index`` of the batch."""
        return self._with(self.M[index], {name: value[index] for name, value in self._parts().items()})

    def data(self) -> dict[str, Tensor]:
        """M and the other arrays that define the problems, by name."""
        return {"M": self.M, **self._parts()}

    def arrays(self) -> dict[str, Tensor]:
        """What a run directory keeps: the data in float64 on the CPU, and the reference minimisers as ``optimum``."""
        stored = {**self.data(), "optimum": self.optimum()}
        return {name: value.detach().double().cpu().contiguous() for name, value in stored.items()}

    def start(self, x: Any = None) -> Tensor:
        """A first iterate (N, d): zero, or ``x`` checked.

        Raises:
            TypeError, ValueError: another dtype, device or shape, or non-finite.
        """
        if x is None:
            return self.M.new_zeros(self.count, self.columns)
        x = as_tensor("start", x)
        if x.shape != (self.count, self.columns):
            raise ValueError(f"start has shape {tuple(x.shape)}; these problems need {(self.count, self.columns)}")
        if x.dtype != self.M.dtype or x.device != self.M.device:
            raise TypeError(f"start is {x.dtype} on {x.device}; the problems are {self.M.dtype} on {self.M.device}")
        finite("start", x)
        return x


def per_problem(name: str, value: Any, M: Tensor) -> Tensor:
    """A penalty parameter, one number or one per problem, as a tensor (N,) like M.

    Raises:
        TypeError, ValueError: not numbers, negative, non-finite, or another length.
    """
    if isinstance(value, Tensor | np.ndarray | list | tuple):
        tensor = as_tensor(name, value).to(M)
        if tensor.shape != M.shape[:1]:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; pass a number, or one for each of {len(M)} problems"
            )
        finite(name, tensor)
        if bool((tensor < 0).any()):
            raise ValueError(f"{name} has a negative entry; every one must be at least 0")
        return tensor
    return M.new_full((len(M),), nonnegative(name, value))


def soft(x: Tensor, threshold: Tensor) -> Tensor:
    """sign(x) max(|x| - threshold, 0)."""
    return x - x.clamp(-threshold, threshold)


def accelerated_optimum(problems: Problems, tolerance: float, max_iterations: int, start: Tensor) -> Tensor:
    """Minimisers (N, d) of float64 problems: accelerated proximal gradient from ``start``, restarted in each problem where its
    momentum points uphill (O'Donoghue and Candès, 2015), until each gap bound is at most ``tolerance`` max(F, 1e-12 F(0)).

    Raises:
        RuntimeError: the iterations did not suffice.
    """
    step = (1.0 / problems.smoothness)[:, None].expand(-1, problems.columns)
    x = start
    floor = 1e-12 * problems._value(problems.start())
    best, lowest = x, torch.full_like(floor, math.inf)
    excess = lowest
    y, tau = x, x.new_ones(len(x))
    every = 25  # a gap bound costs as much as a step
    before, iteration = torch.full_like(x, math.inf), 0
    for iteration in range(max_iterations + 1):
        if iteration % every == 0 or iteration == max_iterations:
            bound = problems.gap_bound(x)
            better = bound < lowest
            best, lowest = torch.where(better[:, None], x, best), torch.where(better, bound, lowest)
            allowed = tolerance * torch.maximum(problems._value(best), floor)
            excess = torch.where(lowest <= allowed, 0.0, lowest / allowed)  # both are 0 where F(0) = 0
            if bool((excess <= 1.0).all()):
                return best
            # where rounding holds x in place no bound will fall any more
            settled = ((x - before).abs() <= 2.0 * EPS * x.abs()).all(1)
            if bool((settled | (excess <= 1.0)).all()):
                break
            before = x
        gradient = problems._pullback(problems.outer_gradient(problems._image(y)))
        new = problems.prox(y - step * gradient, step)
        uphill = ((y - new) * (new - x)).sum(1) > 0.0
        tau = torch.where(uphill, 1.0, tau)
        following = 0.5 * (1.0 + (1.0 + 4.0 * tau**2).sqrt())
        momentum = torch.where(uphill, 0.0, (tau - 1.0) / following)
        y, x, tau = new + momentum[:, None] * (new - x), new, following
    worst = int(excess.argmax())
    raise RuntimeError(
        f"the reference minimiser of problem {worst} has gap bound {float(lowest[worst]):.3g} after {iteration} "
        f"iterations, {float(excess[worst]):.3g} times what tolerance={tolerance:g} asks; call problems.optimum with a larger "
        "tolerance or max_iterations, whose result is kept"
    )


def proximal_step(problems: Problems, x: Tensor, gradient: Tensor, step: Tensor) -> Tensor:
    """prox(x - step ∇f(x)) with the same step (N, d) in the prox."""
    return problems.prox(x - step * gradient, step)
