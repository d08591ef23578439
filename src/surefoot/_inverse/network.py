"""``LearnedInverse``: the unrolled inverse with coefficients that may be trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from .._core.io import reading, write_tensors
from .._core.validate import nonnegative, real, unknown
from .._linalg import norms
from .._linalg.arguments import compute_dtype, double_dtype, matrix_argument, power_of_two_scale
from .._linalg.info import Info, Method, Status
from .._linalg.operator import may_branch, own_precision
from .._linalg.spectral import adjoint
from . import coefficients as tables
from . import iteration, starts
from .implicit import differentiable
from .interval import as_interval
from .stored import save_certificate
from .training import train

if TYPE_CHECKING:
    from .._core.certificate import Certificate
    from .._learning.run import TrainRun
    from .floor import Floor
    from .operators import LinearSolution

Backward = Literal["implicit", "unroll"]
Scale = float | str
"""c0: the name of a rule of ``starts.RULES``, or a number that serves all matrices."""


class LearnedInverse(nn.Module):
    """The Moore-Penrose inverse of matrices of any shape and rank by K layers of matrix products.

    X_{k+1} = X_k Σ_{l<L} C_kl (I - AX_k)^l from X_0 = Aᴴ/c0: LD-Minv, the paper's equation (3); D-Minv, equation (2), where all C
    are 1.

    For what is guaranteed of it see ``sf.certify(net, interval=(l, u))``: the worst ‖AA⁺ - AX_k‖ over all matrices
    whose nonzero squared singular values lie in c0 [l, u].

    Args:
        coefficients: C (K, L), the float64 parameter; at most 64 layers and 64 terms.
        c0: how X_0 is scaled. A rule gives an upper bound of ‖A‖², rounding included, for each matrix, so that σ²/c0 ≤
            1: "gram" is ‖(AAᴴ)²‖_F^½ (typically 1.1 to 1.6 times ‖A‖²), "gram4" ‖(AAᴴ)⁴‖_F^¼ (1.0 to 1.2 times),
            "frobenius" ‖A‖_F², "svd" ‖A‖² itself as LAPACK computes it, the paper's choice. A number serves all
            matrices, and must exceed ‖A‖²/2 for convergence.
        interval: (l, u), the σ²/c0 that the coefficients are meant for; ``sf.certify`` takes it where it is given none.
        backward: "implicit": the gradient in A is the closed form at the result, right for every rank if the layers
            converge, and there is none in the coefficients; each matrix stops at convergence. "unroll": all K layers are
            differentiated, for training; the gradient in A is then wrong where A is rank-deficient (docs/errata.md).

    Attributes:
        coefficients, c0, interval, backward: the arguments; ``backward`` may be changed.

    Raises:
        TypeError: coefficients that are not real numbers, or another kind of c0 or interval.
        ValueError: an empty or non-finite table, too many layers or terms, an unknown rule, a c0 that is not positive.

    Example:
        >>> A = torch.randn(5, 3, 4, dtype=torch.float64)  # a batch of five
        >>> net = sf.nn.LearnedInverse.ones(layers=20, terms=4)
        >>> X, info = net.invert_ex(A)
        >>> torch.allclose(X, torch.linalg.pinv(A), atol=1e-8), bool((info.error_bound < 1e-8).all())
        (True, True)
    """

    __call__: Callable[..., Tensor]

    coefficients: nn.Parameter

    def __init__(
        self,
        coefficients: Any,
        c0: Scale = "gram",
        *,
        interval: tuple[float, float] | None = None,
        backward: Backward = "implicit",
    ) -> None:
        super().__init__()
        C = real("coefficients", coefficients, 2)
        tables.sizes(*C.shape)
        self.coefficients = nn.Parameter(C.clone(memory_format=torch.contiguous_format))
        self.c0 = _scale(c0)
        self.interval = None if interval is None else as_interval(interval)
        if backward not in ("implicit", "unroll"):
            raise ValueError(f"backward is {backward!r}; it must be 'implicit' or 'unroll'")
        self.backward: Backward = backward

    @classmethod
    def ones(cls, layers: int, terms: int, c0: Scale = "gram", *, backward: Backward = "implicit") -> LearnedInverse:
        """All coefficients 1: each layer raises the residual to the power L (Lemma 1). Robust: converges for every
        σ²/c0 in (0, 2).

        Raises:
            ValueError: layers or terms that are no integers from 1 to 64.
        """
        return cls(tables.ones(*tables.sizes(layers, terms)), c0, backward=backward)

    @classmethod
    def chebyshev(
        cls,
        layers: int,
        terms: int,
        interval: tuple[float, float],
        c0: Scale = "gram",
        *,
        backward: Backward = "implicit",
    ) -> LearnedInverse:
        """The coefficients with the smallest worst residual on an interval, 1/T_{L^K}((u+l)/(u-l)): no others have a
        smaller one.

        Smaller singular values are inverted too little, harmlessly; beyond u+l the residual explodes. Use L ≤ 5 in
        float32: the coefficients of the first layer grow with L.

        Args:
            layers, terms: K and L.
            interval: (l, u) of σ²/c0. A rule for c0 guarantees σ²/c0 ≤ 1, and u must then be at least 1; with a number
                for c0 it is yours to know that ‖A‖² ≤ c0 u.
            c0, backward: as for the class.

        Raises:
            TypeError, ValueError: arguments out of range, or a rule for c0 and u < 1.
        """
        layers, terms = tables.sizes(layers, terms)
        lower, upper = as_interval(interval)
        if isinstance(c0, str) and upper < 1.0:
            raise ValueError(
                f"interval is {interval} with c0={c0!r}; a rule for c0 guarantees no more than sigma^2/c0 <= 1, and beyond "
                "the interval Chebyshev coefficients explode: use an interval up to 1, or a number for c0"
            )
        return cls(tables.chebyshev(layers, terms, lower, upper), c0, interval=(lower, upper), backward=backward)

    @property
    def layers(self) -> int:
        """K."""
        return self.coefficients.shape[0]

    @property
    def terms(self) -> int:
        """L."""
        return self.coefficients.shape[1]

    def extra_repr(self) -> str:
        return f"layers={self.layers}, terms={self.terms}, c0={self.c0!r}, interval={self.interval}, backward={self.backward!r}"

    # -- use -----------------------------------------------------------------------------------------------------------

    def forward(self, A: Tensor, start: Tensor | None = None) -> Tensor:
        """X ≈ A⁺ (..., n, m) of A (..., m, n).

        Args:
            A: float32, float64, complex64 or complex128; half and bfloat16 are computed in float32.
            start: an inverse of a nearby matrix (..., n, m), as for ``invert_ex``.

        Raises:
            TypeError, ValueError: another kind of argument. No matrix's values raise: see the statuses of ``invert_ex``.
        """
        if self.backward == "unroll":
            if start is not None:
                raise ValueError("start needs backward='implicit': a warm start does not use the coefficients")
            return self.unroll(A)[-1]
        return self._computed(A, start)[0]

    def invert_ex(self, A: Tensor, start: Tensor | None = None) -> tuple[Tensor, Info]:
        """X, and what is known of each matrix. Each stops when its residual has the size of rounding, at the latest
        after K layers.

        ``info.residual`` is ‖AXA - A‖_F/‖A‖_F, ``info.iterations`` the layers used, and ``info.error_bound`` a rigorous
        bound of ‖X - A⁺‖ for full rank, finite whenever ‖I - AX‖ (tall: ‖I - XA‖) is certainly below 1, whatever the status
        (docs/theorems/inverse.md, Theorem 6). Statuses: OK; RANK_DEFICIENT (converged); NOT_CONVERGED, usual for few
        layers, where X is the layers' result and the residual says how good; NON_FINITE (X is NaN).

        Args:
            A: as for ``forward``.
            start: an inverse of a nearby matrix. It is used where ‖I - A·start‖ is certainly below 1 (for wide A, with
                the part of ``start`` outside the row space of A removed, which no layer would correct), with K layers
                of L coefficients 1, whose residual is then at most that norm to the power L^k. Elsewhere X_0 = Aᴴ/c0
                and the net's own coefficients are used.

        Raises:
            TypeError, ValueError: arguments of another kind or shape.
        """
        value, status, rank, used, residual = self._computed(A, start)
        with torch.no_grad():
            finite = A.isfinite().all(-1).all(-1)
            status = torch.where(value.isfinite().all(-1).all(-1), status, int(Status.OUT_OF_RANGE))
            bound = self.error_bound(A, value)
            size = norms.frobenius(value.detach()) + torch.where(bound.isfinite(), bound, 0.0)
            condition = norms.up(norms.frobenius(A.detach()) * size)
            info = Info(
                status=torch.where(finite, status, int(Status.NON_FINITE)),
                rank=torch.where(finite, rank, 0),
                iterations=used,
                residual=torch.where(finite, residual, torch.nan),
                error_bound=bound,
                condition=torch.where(condition.isfinite(), condition, torch.inf),
                method_code=torch.full_like(status, Method.ITERATION if self.interval is None else Method.CHEBYSHEV),
            )
        return value, info

    @own_precision
    def unroll(self, A: Tensor, c0: Tensor | None = None) -> list[Tensor]:
        """X_1 … X_K, differentiable in A and in the coefficients; no matrix stops early.

        Args:
            A: (..., m, n).
            c0: (...), in place of the rule, one for each matrix.

        Raises:
            TypeError, ValueError: another kind of argument.
        """
        matrix_argument(A)
        wide, scale, tall = _prepared(A)
        if c0 is not None and scale is not None:
            c0 = c0 * scale[..., 0, 0].square()
        inverses = iteration.unrolled(wide, self.initial(wide, scale, c0), self.coefficients)
        inverses = [X if scale is None else X * scale for X in inverses]
        return [(adjoint(X) if tall else X).to(A.dtype) for X in inverses]

    def solve_spd(self, operator: Callable[[Tensor], Tensor], b: Tensor, bounds: tuple[float, float]) -> LinearSolution:
        """B⁻¹b for a symmetric positive definite operator that is only known by its products, from X_0 = 2I/(λ_min+λ_max).

        It takes L^K - 1 products, each of a polynomial in B whose worst residual on the spectrum is that of the
        coefficients on [2λ_min/(λ_min+λ_max), 2λ_max/(λ_min+λ_max)]. See ``operators.solve_spd``.
        """
        from .operators import solve_spd

        return solve_spd(self.coefficients, operator, b, bounds, self.backward)

    @staticmethod
    def error_bound(A: Tensor, X: Tensor) -> Tensor:
        """Rigorous bound of ‖X - A⁺‖ (...) for any X (..., n, m) and A (..., m, n), rounding included; infinite where
        full rank of A is not certain (docs/theorems/inverse.md, Theorem 6)."""
        A, X = (value.detach().to(double_dtype(value.dtype)) for value in (A, X))
        if A.shape[-2] > A.shape[-1]:
            A, X = A.mH, X.mH
        scale = power_of_two_scale(A, always=not may_branch(A))
        if scale is not None:
            A, X = A * scale, X * scale.reciprocal()
        # any Y will do in the bound; its rounding is none of an error
        bound = norms.pinv_error(A, X, X.mH @ X).error
        if scale is not None:
            # plus what underflows
            bound = norms.up(bound * scale[..., 0, 0]) + torch.finfo(torch.float64).tiny
        return bound

    # -- training, certificates, files -----------------------------------------------------------------------------------

    def fit(self, matrices: Tensor, validation: Tensor | None = None, **options: Any) -> TrainRun:
        """Train the coefficients in place on matrices (N, m, n), with the options of ``training.train``: optimizer,
        learning_rate, epochs, patience, objective, domain, directory, resume, callbacks.

        Raises:
            TypeError, ValueError, RunDirectoryError, OSError: as said there.
        """
        return train(self, matrices, validation, **options)

    def floor(self, matrices: Tensor) -> Floor:
        """Below what no training brings the loss (4) of these matrices (N, m, n), for any coefficients of these sizes; see
        ``floor.floor``. The paper's Theorem 1 says that there is no such number.

        Raises:
            TypeError, ValueError: as for ``fit``.
        """
        from .floor import floor
        from .spectra import Spectra

        return floor(Spectra.of(matrices, self.c0), self.layers, self.terms)

    def save_certificate(
        self, directory: str | Path, interval: tuple[float, float] | None = None, theorem: str | None = None
    ) -> Certificate:
        """Certify, and write a directory that ``surefoot-check`` accepts: certificate.json, problem.safetensors (the
        interval) and initial.safetensors (the coefficients).

        Raises:
            ValueError: a certificate that does not hold, or bad arguments.
            RunDirectoryError: the directory exists and is not empty.
            OSError: it cannot be written.
        """
        return save_certificate(self, directory, interval, theorem)

    def save(self, path: str | Path) -> None:
        """Write coefficients, c0 and interval to a safetensors file.

        Raises:
            OSError: it cannot be written; an old file is untouched.
        """
        tensors = {"coefficients": self.coefficients.detach()}
        if isinstance(self.c0, str):
            tensors[f"c0.{self.c0}"] = torch.ones(())
        else:
            tensors["c0"] = torch.tensor(self.c0, dtype=torch.float64)
        if self.interval is not None:
            tensors["interval"] = torch.tensor(self.interval, dtype=torch.float64)
        write_tensors(Path(path), tensors)

    @classmethod
    def load(cls, path: str | Path) -> LearnedInverse:
        """Read what ``save`` wrote.

        Raises:
            RunDirectoryError: missing, damaged, or another kind of file.
        """
        with reading(path, "learned inverse") as tensors:
            rules = [name.removeprefix("c0.") for name in tensors if name.startswith("c0.")]
            c0 = rules[0] if rules else float(tensors["c0"])
            interval = as_interval(tensors["interval"].tolist()) if "interval" in tensors else None
            return cls(tensors["coefficients"], c0, interval=interval)

    # -- the run -----------------------------------------------------------------------------------------------------------

    @own_precision
    def _computed(self, A: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """X, status, rank, layers and residual; a matrix that is not finite counts as 0, and its X is NaN."""
        matrix_argument(A)
        if start is not None:
            start = _checked_start(A, start)
        wide, scale, tall = _prepared(A)
        finite = wide.detach().isfinite().all(-1).all(-1)
        usable = wide
        if not may_branch(wide) or not bool(finite.all()):
            usable = wide.masked_fill(~finite[..., None, None], 0.0)
        if start is not None:
            start = (start.mH if tall else start).to(wide.dtype)
            # a product: the quotient of complex numbers is lost where the square of the divisor leaves the range
            start = start if scale is None else start * scale.reciprocal()
        C = self.coefficients.detach()
        C = C.reshape((1,) * (A.ndim - 2) + C.shape)
        rule, c0 = (self.c0, 0.0) if isinstance(self.c0, str) else ("", self.c0)
        X, _, status, rank, used, residual = differentiable(usable, start, scale, C, rule, c0)
        X = X.masked_fill(~finite[..., None, None], torch.nan)
        value = X if scale is None else X * scale
        return (adjoint(value) if tall else value).to(A.dtype), status, rank, used, residual

    def initial(self, wide: Tensor, scale: Tensor | None = None, c0: Tensor | None = None) -> Tensor:
        """X_0 = Aᴴ/c0 (..., n, m) of A (..., m, n), m ≤ n. c0 has no gradient.

        Args:
            wide: A, times ``scale``.
            scale: (..., 1, 1); 1 where it is None.
            c0: (...), for the scaled matrix; by default of the net's rule or number.
        """
        if c0 is not None:
            return starts.over(wide, c0)
        return starts.initial(wide, self.c0, starts.squared(scale))


def _prepared(A: Tensor) -> tuple[Tensor, Tensor | None, bool]:
    """A wide, in the dtype of the computation, and scaled; the scale (..., 1, 1), None where it is 1; whether A is tall."""
    tall = A.shape[-2] > A.shape[-1]
    wide = A.to(compute_dtype(A.dtype))
    wide = wide.mH if tall else wide
    scale = power_of_two_scale(wide, always=not may_branch(wide))
    return (wide if scale is None else wide * scale), scale, tall


def _checked_start(A: Tensor, start: Any) -> Tensor:
    if not isinstance(start, Tensor) or start.dtype != A.dtype or start.device != A.device:
        raise TypeError("start must be a tensor of the dtype and on the device of A: the inverse of a nearby matrix")
    if start.shape != (*A.shape[:-2], A.shape[-1], A.shape[-2]):
        raise ValueError(
            f"start has shape {tuple(start.shape)}; for A of shape {tuple(A.shape)} it must be (..., n, m)"
        )
    return start.detach()


def _scale(c0: Any) -> Scale:
    if isinstance(c0, str):
        if c0 not in starts.RULES:
            raise unknown("rule for c0", c0, starts.RULES)
        return c0
    value = nonnegative("c0", c0)
    if value == 0.0:
        raise ValueError("c0 is 0; it must be positive")
    return value
