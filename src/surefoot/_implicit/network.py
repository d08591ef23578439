"""The network z = relu(γzA + relu(xW)), ŷ = zb."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor, nn

from .._core.samples import SampleLoss
from .._core.validate import as_tensor, finite, positive, positive_integer
from .._equilibrium.failures import EquilibriumError
from . import adjoint
from .adjoint import (
    Adjoint,
    Gradient,
    LinearSolution,
    active_units,
    equilibrium_errors,
    solve_linear,
)
from .autograd import Call, EquilibriumFunction
from .equilibrium import Equilibrium, EquilibriumStatus, solve
from .gram import gram_matrix
from .norms import NormWatch, frobenius_upper, product_row_errors
from .scale import certifiable, check_samples
from .solvers import SolverMemory


class NotWellPosed(ValueError):
    """γ‖A‖ is not below 1, so that the equilibrium need not exist, or need not be the only one.

    Attributes:
        gamma: γ.
        norm_A: upper bound of ‖A‖.
        largest_gamma: γ must be below this, 1/‖A‖.
    """

    def __init__(self, gamma: float, norm_A: float) -> None:
        self.gamma, self.norm_A = gamma, norm_A
        self.largest_gamma = 1.0 / norm_A
        super().__init__(
            f"gamma is {gamma:.6g} and ‖A‖ = {norm_A:.6g}, so that gamma‖A‖ = {gamma * norm_A:.6g}; it must be below 1 for the "
            f"equilibrium to exist: use gamma below {self.largest_gamma:.6g}, or scale A by {0.99 / (gamma * norm_A):.3g}, as "
            "net.contract_() does after a step of an optimiser"
        )


class ImplicitReLU(nn.Module):
    """f(X) = Zb with Z = relu(γZA + relu(XW)), in float64 or float32, on any device.

    ``forward`` is differentiable in X, W, A and b to any order; where a sign of γZA + relu(XW) or XW is 0 the derivative of relu
    is taken as 0. The memory does not depend on the number of iterations.

    Args:
        W: (d, m).
        A: (m, m). γ‖A‖ < 1 is needed for the equilibrium to exist; it is checked at every call, not here.
        b: (m,) for one output, (m, p) for several.
        gamma: γ > 0, not trained; part of ``state_dict``, so that loading one sets it.
        solver: of the equilibrium, ``"auto"`` or the name of one.
        tolerance: of equilibrium and adjoint, relative; by dtype where not given.
        max_iterations: of either, at most; the solver's own limit where not given.

    Raises:
        TypeError: not floats, or of different dtypes.
        ValueError: empty, non-finite, shapes that do not fit, or gamma not positive.

    Example:
        >>> net = sf.nn.ImplicitReLU.gaussian(inputs=3, width=6, gamma=0.3)
        >>> X = torch.randn(5, 3, dtype=torch.float64)
        >>> net(X).shape, net.gamma * net.norm_A() < 1.0  # so that the equilibrium exists
        (torch.Size([5]), True)
        >>> found = net.equilibrium(X)
        >>> found.status.value, found.error < 1e-8
        ('converged', True)
    """

    __call__: Callable[..., Tensor]

    W: nn.Parameter
    A: nn.Parameter
    b: nn.Parameter

    def __init__(
        self,
        W: Any,
        A: Any,
        b: Any,
        gamma: float,
        *,
        solver: str = "auto",
        tolerance: float | None = None,
        max_iterations: int | None = None,
    ) -> None:
        super().__init__()
        weights = {"W": as_tensor("W", W), "A": as_tensor("A", A), "b": as_tensor("b", b)}
        for name, weight in weights.items():
            if weight.numel() == 0:
                raise ValueError(f"{name} is empty (shape {tuple(weight.shape)}); pass at least one row and one column")
            finite(name, weight)
        shapes = [tuple(weight.shape) for weight in weights.values()]
        m = shapes[0][-1] if shapes[0] else 0
        if len(shapes[0]) != 2 or shapes[1] != (m, m) or len(shapes[2]) not in (1, 2) or shapes[2][0] != m:
            raise ValueError(
                f"W has shape {shapes[0]}, A {shapes[1]} and b {shapes[2]}; they must be (d, m), (m, m) and (m,) or (m, p) "
                "with the same width m"
            )
        dtypes = {name: str(weight.dtype).removeprefix("torch.") for name, weight in weights.items()}
        if len(set(dtypes.values())) > 1:
            given = ", ".join(f"{name} is {dtype}" for name, dtype in dtypes.items())
            raise TypeError(f"{given}; the weights must have one dtype: convert them with .double() or .float()")
        gamma = positive("gamma", gamma)
        for name, weight in weights.items():
            setattr(self, name, nn.Parameter(weight.clone()))
        self.gamma = gamma
        self.solver, self.tolerance, self.max_iterations = solver, tolerance, max_iterations
        self._watch: tuple[tuple[Any, ...], NormWatch] | None = None

    @classmethod
    def paper(
        cls,
        inputs: int,
        width: int,
        gamma: float,
        *,
        outputs: int = 1,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> ImplicitReLU:
        """The initialisation of the paper's experiments: W ~ N(0, 1/m), A = I and b = 0, m = ``width``.

        W is drawn in float64 and then rounded, so that float32 starts at the same weights. Randomness comes from ``generator``,
        or from a new one with seed 0.
        """
        _require_sizes(inputs, width, outputs)
        W = _drawn(inputs, width, generator)[0] / math.sqrt(width)
        A = torch.eye(width, dtype=dtype, device=W.device)
        return cls(W.to(dtype), A, _no_outputs(width, outputs, dtype, W.device), gamma)

    @classmethod
    def gaussian(
        cls,
        inputs: int,
        width: int,
        gamma: float = 0.3,
        *,
        outputs: int = 1,
        std: float = 0.5,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> ImplicitReLU:
        """Weights from which features are learned: W ~ N(0, std²), A ~ N(0, std²/m) and b = 0, m = ``width``.

        With A = I, as in ``paper``, the units that a row does not reach lie on a kink of relu at the start; here none does. With
        b = 0 the first steps decide the outputs, so that W and A, and with them the features, follow: see ``sf.watch``.
        ‖A‖ is about 2 std. Randomness comes from ``generator``, or from a new one with seed 0; float64 draws are rounded.
        """
        std = positive("std", std)
        _require_sizes(inputs, width, outputs)
        W, generator = _drawn(inputs, width, generator)
        A = _drawn(width, width, generator)[0] * (std / math.sqrt(width))
        return cls((std * W).to(dtype), A.to(dtype), _no_outputs(width, outputs, dtype, W.device), gamma)

    @classmethod
    def certifiable(cls, X: Tensor, y: Tensor, width: int, *, seed: int = 0) -> ImplicitReLU:
        """A network that ``implicit/spectral`` certifies from the start, with about as few guaranteed iterations as any.

        Weights β(W, I) with W ~ N(0, 1/m), b = 0 and γ = a/β: the least β, and a, as in ``scale.certifiable``; ``sf.certify``
        then chooses the step. At such scales the features hardly move: what is certified is in effect the training of a linear
        readout of random equilibrium features.

        Args:
            X: (N, d) float64; rows of about norm 1, no two of them parallel.
            y: (N,) or (N, p).
            width: m, at least N; 2 N to 4 N is what it takes on images.
            seed: of W.

        Raises:
            NotCertifiable: parallel or zero rows, features without full row rank, or data of extreme scale; the message says
                which and what to do.
            TypeError, ValueError: arguments that do not fit.
        """
        loss = SampleLoss(X, y)
        check_samples(loss, width)
        generator = torch.Generator(device=loss.X.device).manual_seed(seed)
        net = cls.paper(loss.X.shape[1], width, 1.0, outputs=loss.Y.shape[1], generator=generator)
        beta, gamma = certifiable(loss, net.W.detach())
        return cls(beta * net.W.detach(), beta * net.A.detach(), torch.zeros_like(net.b), gamma)

    @property
    def inputs(self) -> int:
        """d."""
        return self.W.shape[0]

    @property
    def width(self) -> int:
        """m."""
        return self.W.shape[1]

    @property
    def outputs(self) -> int:
        """p."""
        return 1 if self.b.ndim == 1 else self.b.shape[1]

    def extra_repr(self) -> str:
        """Sizes and γ."""
        return f"inputs={self.inputs}, width={self.width}, outputs={self.outputs}, gamma={self.gamma:g}"

    def get_extra_state(self) -> Tensor:
        """γ as the state dict keeps it, float64 ()."""
        return torch.tensor(self.gamma, dtype=torch.float64)

    def set_extra_state(self, state: Any) -> None:
        """Take γ from a state dict; ``ValueError`` where it is no positive number."""
        self.gamma = positive("gamma", float(state))

    def contract_(self, limit: float = 0.95) -> bool:
        """Scale A down, in place, where γ‖A‖ exceeds the limit; whether it did.

        For after a step of an optimiser, which knows nothing of γ‖A‖ < 1: below 1 the equilibrium exists, well below 1 it is
        found in few iterations.

        Raises:
            ValueError: a limit that does not lie strictly between 0 and 1.
        """
        if isinstance(limit, bool) or not isinstance(limit, Real) or not 0.0 < limit < 1.0:
            raise ValueError(f"limit is {limit!r}; it must lie strictly between 0 and 1")
        contraction = self.gamma * self.norm_A()
        if contraction > limit:
            with torch.no_grad():
                self.A.mul_(limit / contraction)
        return contraction > limit

    def norm_A(self) -> float:
        """Upper bound of ‖A‖, rounding included."""
        return self._norm(self.A.detach())

    def forward(self, X: Tensor, memory: SolverMemory | None = None) -> Tensor:
        """Outputs (N,), or (N, p) for b (m, p), at X (N, d).

        The rows are scaled together: one that is smaller than the largest by a factor near the range of the dtype (1e300 in
        float64) underflows, to an output of 0; pass such rows in a batch of their own.

        Args:
            X: (N, d).
            memory: what the call at nearby weights and the same X left, to start from; updated, by ``backward`` too. Keep one
                for each batch that comes again. Only the time depends on it, not the guaranteed accuracy.

        Raises:
            NotWellPosed: γ‖A‖ ≥ 1.
            EquilibriumError: the solver did not converge; from ``backward``, that of the adjoint did not.
            TypeError, ValueError: X does not fit.
        """
        self._check(X)
        Z = EquilibriumFunction.apply(self.A, (X @ self.W).relu(), self.gamma, Call(self, memory))
        return Z @ self.b

    def equilibrium(
        self,
        X: Tensor,
        *,
        start: Tensor | None = None,
        memory: SolverMemory | None = None,
        solver: str | None = None,
        tolerance: float | None = None,
        max_iterations: int | None = None,
    ) -> Equilibrium:
        """Z (N, m) at X (N, d) with bounds of its error, for the exact product XW, evaluated in float64; not differentiable.

        Unlike ``forward`` it raises no error where the solver fails: see ``status``.

        Args:
            X: (N, d).
            start: Z from which to start, such as that at nearby weights; 0 by default.
            memory: what the call at nearby weights and the same X left, to start from; updated.
            solver, tolerance, max_iterations: in place of those of the network.
        """
        self._check(X)
        with torch.no_grad():
            X, W = X.detach(), self.W.detach()
            options = {"memory": memory, "solver": solver, "tolerance": tolerance, "max_iterations": max_iterations}
            A = self.A.detach()
            norm_A = self._norm(A)
            result = self._solve(A, (X @ W).relu(), norm_A, product_row_errors(X, W), start, **options)
            if X.dtype == torch.float64 or not math.isfinite(result.error):
                return result
            errors = torch.minimum(result.row_errors, equilibrium_errors(X, W, A, result.Z, self.gamma, norm_A))
            return replace(result, row_errors=errors, error=frobenius_upper(errors))

    def gradient(
        self, X: Tensor, Y: Tensor, *, start: Tensor | None = None, memory: SolverMemory | None = None
    ) -> Gradient:
        """Gradient of ½‖f(X) - Y‖² with bounds of its error: the part of solvers and rounding, and that of uncertain signs.

        Args:
            X: (N, d).
            Y: (N,) or (N, p), as the outputs.
            start: Z from which to start; 0 by default.
            memory: as for ``forward``.

        Raises:
            NotWellPosed, EquilibriumError, TypeError, ValueError: as ``forward``.
        """
        memory = SolverMemory() if memory is None else memory
        equilibrium = self.equilibrium(X, start=start, memory=memory)
        A = self.A.detach()
        norm_A = self._norm(A)
        self._require("the equilibrium", equilibrium, norm_A)
        expected = (len(X),) if self.b.ndim == 1 else (len(X), self.outputs)
        if not isinstance(Y, Tensor) or Y.dtype != self.W.dtype:
            raise TypeError(f"Y must be a tensor with dtype {self.W.dtype}, as the weights")
        if tuple(Y.shape) != expected:
            raise ValueError(f"Y has shape {tuple(Y.shape)}; it must be {expected}, as the outputs")
        finite("Y", Y)
        with torch.no_grad():
            result = adjoint.gradient(
                X.detach(),
                Y.detach().reshape(len(X), -1),
                self.W.detach(),
                A,
                self.b.detach().reshape(self.width, -1),
                self.gamma,
                equilibrium,
                norm_A=norm_A,
                start=memory.V,
                tolerance=self.tolerance,
                model=memory.model,
                **self._limit(),
            )
        self._require("the adjoint", result.adjoint, norm_A)
        memory.V = result.adjoint.V
        return result

    def gram(self, X: Tensor) -> Tensor:
        """H (N, N): inner products of the gradients of the outputs over all weights; one output only.

        Raises:
            NotWellPosed, EquilibriumError, TypeError, ValueError: as ``forward``; ``ValueError`` for several outputs.
        """
        if self.outputs != 1:
            raise ValueError(f"the network has {self.outputs} outputs; the Gram matrix is defined for one")
        memory = SolverMemory()
        equilibrium = self.equilibrium(X, memory=memory)
        A = self.A.detach()
        call = Call(self, norm_A=self._norm(A), model=memory.model)
        self._require("the equilibrium", equilibrium, call.norm_A)
        with torch.no_grad():
            XW = X.detach() @ self.W.detach()
            active = active_units(A, XW.relu(), equilibrium.Z, self.gamma)
            b = self.b.detach().reshape(1, -1).expand(len(X), -1)
            K = call.solve_linear(A, active, b, self.gamma, transposed=True)
            return gram_matrix(X.detach(), equilibrium.Z, K, XW > 0, self.gamma)

    def _check(self, X: Tensor) -> None:
        if not isinstance(X, Tensor) or X.dtype != self.W.dtype:
            given = X.dtype if isinstance(X, Tensor) else type(X).__name__
            raise TypeError(f"X is {given}; pass a tensor with the dtype of the weights, {self.W.dtype}")
        if X.layout != torch.strided:
            raise TypeError("X is a sparse tensor; pass X.to_dense()")
        if X.ndim != 2 or X.shape[1] != self.inputs or len(X) == 0:
            raise ValueError(f"X has shape {tuple(X.shape)}; it must be (N, {self.inputs}) with at least one row")

    def _norm(self, A: Tensor, share: float = 0.0) -> float:
        key = (A.shape, A.dtype, A.device)
        if self._watch is None or self._watch[0] != key:
            self._watch = (key, NormWatch(A))
        return self._watch[1].bound(A, 1.0 / self.gamma, share)

    def _limit(self) -> dict[str, Any]:
        return {} if self.max_iterations is None else {"max_iterations": self.max_iterations}

    def _solve(
        self,
        A: Tensor,
        Phi: Tensor,
        norm_A: float,
        phi_error: float | Tensor = 0.0,
        start: Tensor | None = None,
        **given: Any,
    ) -> Equilibrium:
        options = {"solver": self.solver, "tolerance": self.tolerance, **self._limit()}
        options |= {name: value for name, value in given.items() if value is not None}
        return solve(A, Phi, self.gamma, norm_A=norm_A, start=start, phi_error=phi_error, **options)

    def _solve_linear(self, B: Tensor, active: Tensor, C: Tensor, gamma: float, **given: Any) -> Tensor:
        solution = solve_linear(B, active, C, gamma, tolerance=self.tolerance, **given, **self._limit())
        self._require("the adjoint", solution, given["norm_B"])
        return solution.V

    def _require(self, what: str, solution: Equilibrium | LinearSolution | Adjoint, norm_A: float) -> None:
        """Raise unless it is as accurate as was asked for, or as the dtype allows."""
        status = solution.status
        if status in (EquilibriumStatus.CONVERGED, EquilibriumStatus.LIMITED_BY_ROUNDING):
            return
        if not self.gamma * norm_A < 1.0 and math.isfinite(norm_A):
            raise NotWellPosed(self.gamma, norm_A)
        hints = {
            EquilibriumStatus.MAX_ITERATIONS: f"gamma‖A‖ = {self.gamma * norm_A:.4g}: raise max_iterations or the tolerance",
            EquilibriumStatus.NON_FINITE: "look for NaN or infinity in X and the weights, and for overflow in XW",
            EquilibriumStatus.NOT_CONTRACTING: f"gamma‖A‖ = {self.gamma * norm_A:.4g}",
        }
        message = f"{what} after {solution.iterations} evaluations: {status.text}; {hints[status]}"
        raise EquilibriumError(message, cast(Any, solution))


def _require_sizes(inputs: int, width: int, outputs: int) -> None:
    for name, value in (("inputs", inputs), ("width", width), ("outputs", outputs)):
        positive_integer(name, value)


def _drawn(rows: int, columns: int, generator: torch.Generator | None) -> tuple[Tensor, torch.Generator]:
    """A standard normal matrix, float64, and the generator that drew it: that given, or a new one with seed 0."""
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(rows, columns, generator=generator, dtype=torch.float64, device=generator.device)
    return drawn, generator


def _no_outputs(width: int, outputs: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """b = 0."""
    return torch.zeros((width,) if outputs == 1 else (width, outputs), dtype=dtype, device=device)
