"""A layer whose output is the fixed point z = f(z, x) of a user's map, with implicit derivatives of every order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from .._core.validate import kind_of, nonnegative, positive_integer, unknown
from .fixed_point import SOLVERS, SolveInfo, Solver, SolveStatus, solve
from .implicit_function import Kind, Settings, fixed_point
from .user_map import explicit
from .warm_start import BatchStart

OnFailure = Literal["raise", "warn", "return"]


class EquilibriumError(RuntimeError):
    """A solve, of z or of a derivative, did not converge; ``info`` is its record."""

    def __init__(self, message: str, info: SolveInfo) -> None:
        super().__init__(message)
        self.info = info


class EquilibriumWarning(RuntimeWarning):
    """The same with ``on_failure="warn"``."""


class Solution(NamedTuple):
    """What ``EquilibriumLayer.solve`` returns."""

    z: Tensor
    info: SolveInfo


class EquilibriumLayer(nn.Module):
    """z = f(z, *x), solved to an error bound for each sample, and differentiated implicitly.

    The first ``batch_dims`` dimensions of z index samples, which f treats independently of each other; each stops on its
    own bound. Memory does not grow with the iterations. Derivatives of every order, in reverse and forward mode and mixed,
    ``torch.func`` and ``vmap`` work where f allows them; forward mode differentiates the backward of f. Gradients reach x,
    the parameters of f and what f captures; none flows to ``z0``, on which the equilibrium does not depend. ``info``,
    ``backward_info`` and ``tangent_info`` are the records of the latest solves. They bound the error of z, of
    u = v + (∂f/∂z)ᵀu, and of the derivative w = b + (∂f/∂z)w in forward mode, where the linearisation is at that z.

    Args:
        f: the map, a module or a function ``f(z, *x)`` that returns a tensor like z, always the same for the same arguments.
        contraction: q < 1 with ‖f(z, x) − f(z', x)‖ ≤ q ‖z − z'‖ for each sample. Then the error bounds are guarantees,
            those of derivatives too; a q that the iterates refute is reported as ``not_contracting``. None: q is estimated from
            the iterates, and so are the bounds.
        solver: ``plain``, ``anderson`` (safeguarded), or ``auto``: plain where that is fast, else Anderson.
        tolerance: wanted error bound relative to ‖z‖ of the sample; default 1e-12 in float64, 1e-5 in float32.
        max_iterations: most evaluations of f, and in the solve of a derivative of its product with ∂f/∂z.
        backward_tolerance: as ``tolerance``, for u and w.
        on_failure: where a solve, of z or of a derivative, does not converge: ``raise`` an ``EquilibriumError``, ``warn`` with
            an ``EquilibriumWarning``, or only ``return`` the last iterate, with the failure in the record.
        state_shape: shape of z without the batch dimensions, where z is not shaped like the first x.
        batch_dims: how many leading dimensions index samples; 0 makes z one sample.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range.
    """

    def __init__(
        self,
        f: Callable[..., Tensor],
        *,
        contraction: float | None = None,
        solver: Solver = "auto",
        tolerance: float | None = None,
        max_iterations: int = 1000,
        backward_tolerance: float | None = None,
        on_failure: OnFailure = "raise",
        state_shape: int | Sequence[int] | None = None,
        batch_dims: int = 1,
    ) -> None:
        super().__init__()
        if not callable(f):
            raise TypeError(f"f is {kind_of(f)}; pass a module or a function f(z, *x)")
        if contraction is not None and nonnegative("contraction", contraction) >= 1.0:
            raise ValueError(f"contraction is {contraction!r}; a contraction has a factor below 1 (None estimates it)")
        if solver not in SOLVERS:
            raise unknown("solver", solver, SOLVERS)
        if on_failure not in ("raise", "warn", "return"):
            raise unknown("on_failure", on_failure, ("raise", "warn", "return"))
        for name, value in (("tolerance", tolerance), ("backward_tolerance", backward_tolerance)):
            if value is not None:
                nonnegative(name, value)
        if isinstance(batch_dims, bool) or not isinstance(batch_dims, int) or batch_dims < 0:
            raise ValueError(f"batch_dims is {batch_dims!r}; it must be an integer of at least 0")
        self.f = f
        self.contraction = contraction
        self.solver: Solver = solver
        self.tolerance, self.backward_tolerance = tolerance, backward_tolerance
        self.max_iterations = positive_integer("max_iterations", max_iterations)
        self.on_failure: OnFailure = on_failure
        if not isinstance(state_shape, int | Sequence | None) or isinstance(state_shape, str):
            raise TypeError(f"state_shape is {state_shape!r}; pass an integer or a sequence of integers")
        shape = (state_shape,) if isinstance(state_shape, int) else state_shape
        self.state_shape = None if shape is None else tuple(positive_integer("state_shape", size) for size in shape)
        self.batch_dims = batch_dims
        self.info: SolveInfo | None = None
        self.backward_info: SolveInfo | None = None
        self.tangent_info: SolveInfo | None = None

    def extra_repr(self) -> str:
        """The settings, for ``print``."""
        return f"contraction={self.contraction}, solver={self.solver!r}, on_failure={self.on_failure!r}"

    def forward(self, *x: Any, z0: Tensor | None = None, memory: BatchStart | None = None) -> Tensor:
        """The fixed point z (*batch, *state).

        Args:
            x: further arguments of f, tensors or anything else.
            z0: first iterate; default zeros with the batch of the first tensor in x.
            memory: of a ``WarmStart``, what was found for these samples before, to start from instead; updated, by the first
                ``backward`` too.

        Raises:
            TypeError, ValueError: z0, memory or the value of f is of the wrong kind, shape, dtype or device, f changes an
                argument in place, or its value has no gradient though x or a parameter requires one.
            EquilibriumError: a solve did not converge and ``on_failure`` is ``raise``; in a backward, from there.
        """
        start = self._start(x, z0)
        user, tensors = explicit(self.f, start, x)
        return fixed_point(user, self._settings(self.on_failure, memory), start, *tensors)

    def solve(self, *x: Any, z0: Tensor | None = None) -> Solution:
        """The fixed point without a gradient, and its record; never raises for a solve that did not converge."""
        settings = self._settings("return")
        with torch.no_grad():
            start = self._start(x, z0)
            user, tensors = explicit(self.f, start, x)
            z = fixed_point(user, settings, start, *tensors)
        assert self.info is not None
        return Solution(z, self.info)

    def _settings(self, on_failure: OnFailure, memory: BatchStart | None = None) -> Settings:
        return Settings(partial(self._solve, on_failure, memory), self.batch_dims)

    def _solve(
        self,
        on_failure: OnFailure,
        memory: BatchStart | None,
        step: Callable[[Tensor], Tensor],
        start: Tensor,
        batch_dims: int,
        kind: Kind,
    ) -> Tensor:
        """Solve, record, and report a failure; more ``batch_dims`` than the layer's under vmap."""
        first = None if memory is None else memory.first(start, batch_dims, kind)
        z, info = solve(
            step,
            start,
            batch_dims=batch_dims,
            contraction=self.contraction,
            tolerance=self.tolerance if kind == "forward" else self.backward_tolerance,
            max_iterations=self.max_iterations,
            solver=self.solver,
            affine=kind != "forward",
            first=first,
        )
        if memory is not None:
            memory.keep(z, start, info.failed, kind)
        if info.status in (SolveStatus.NOT_CONTRACTING, SolveStatus.MAX_ITERATIONS):
            if not torch.equal(step(z), step(z)):
                note = "f gives two values for the same arguments: dropout, noise, or batch statistics; use f.eval()"
                info = replace(info, note=note)
            elif info.guaranteed and info.status is SolveStatus.NOT_CONTRACTING:
                info = replace(info, note=f"the iterates contradict the given contraction={info.contraction}")
        if kind == "backward":
            self.backward_info = info
        elif kind == "tangent":
            self.tangent_info = info
        else:
            self.info = info
        if not info.converged and on_failure != "return":
            subject = {
                "forward": "z = f(z, *x)",
                "backward": "the backward solve (the gradient would be wrong)",
                "tangent": "the solve of forward mode (the derivative would be wrong)",
            }[kind]
            if info.status is SolveStatus.MAX_ITERATIONS:
                advice = "raise max_iterations or the tolerance"
            elif info.status is SolveStatus.NON_FINITE:
                advice = "look for NaN or infinity in x, z0 and the parameters, or overflow in f"
            else:
                advice = 'check that f contracts; on_failure="return" gives the last iterate'
            message = f"{subject} did not converge: {info.text}; {advice}"
            if on_failure == "raise":
                raise EquilibriumError(message, info)
            warnings.warn(message, EquilibriumWarning, stacklevel=2)
        return z

    def _start(self, x: tuple[Any, ...], z0: Tensor | None) -> Tensor:
        if z0 is None:
            tensors = [value for value in x if isinstance(value, Tensor)]
            if not tensors:
                raise ValueError("x has no tensor to take the batch from; pass z0")
            first, b = tensors[0], self.batch_dims
            if first.ndim < b:
                raise ValueError(
                    f"the first x has shape {tuple(first.shape)}; it needs {b} batch dimension(s), or pass z0"
                )
            shape = first.shape if self.state_shape is None else (*first.shape[:b], *self.state_shape)
            model = next((t for t in (*tensors, *self.parameters()) if t.is_floating_point()), first)
            name, z0 = "the first tensor in x", torch.zeros_like(first, dtype=model.dtype).new_zeros(shape)
        else:
            name = "z0"
            if not isinstance(z0, Tensor):
                raise TypeError(f"z0 is {kind_of(z0)}; pass a tensor")
            if z0.ndim < self.batch_dims:
                raise ValueError(f"z0 has shape {tuple(z0.shape)}; it needs {self.batch_dims} batch dimension(s)")
            b = self.batch_dims
            if self.state_shape is not None and tuple(z0.shape[b:]) != self.state_shape:
                raise ValueError(
                    f"z0 has shape {tuple(z0.shape)}; after the batch it must be state_shape {self.state_shape}"
                )
        if z0.layout != torch.strided:
            raise TypeError(f"{name} is a sparse tensor; pass x.to_dense()")
        if z0.dtype not in (torch.float64, torch.float32):
            dtype = str(z0.dtype).removeprefix("torch.")
            raise TypeError(
                f"{name} has dtype {dtype}, too coarse or not real: an equilibrium is solved in float32 or float64; "
                "pass x.float() (and f.float()), and cast the result"
            )
        return z0.detach()
