"""A layer whose output is the fixed point z = f(z, x) of a user's map, with implicit derivatives of every order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from .._core.validate import integer, kind_of, nonnegative, positive_integer, unknown
from .cell.packing import Packing
from .cell.start import given, shapes, zeros
from .cell.user_map import UserMap, explicit
from .contractive import Contractive
from .derivatives.implicit_function import Kind, Settings, fixed_point
from .derivatives.inexact import Iterates, PhantomGradient, Trajectory
from .failures import ON_FAILURE, OnFailure, report
from .graphs.inference import infer
from .graphs.numbering import number_of
from .solver.fixed_point import SOLVERS, Solver, solve
from .solver.records import SolveInfo, SolveStatus
from .warm_start import BatchStart


class Solution(NamedTuple):
    """What ``EquilibriumLayer.solve`` returns."""

    z: Any
    info: SolveInfo


class EquilibriumLayer(nn.Module):
    """z = f(z, *x), solved to an error bound for each sample, and differentiated implicitly.

    A state z is a tensor, or any pytree of tensors (tuples, dictionaries, ...) with the same batch: the first ``batch_dims``
    dimensions index samples, which f treats independently of each other; each stops on its own bound. Memory does not grow
    with the iterations. Derivatives of every order, in reverse and forward mode and mixed, ``torch.func`` and ``vmap`` work
    where f allows them; forward mode differentiates the backward of f. Gradients reach x and the keyword arguments, nested
    or not, the parameters of f and what f captures; none flows to ``z0``, on which the equilibrium does not depend.
    ``info``, ``backward_info`` and ``tangent_info`` are the records of the latest solves. They bound the error of z, of
    u = v + (∂f/∂z)ᵀu, and of the derivative w = b + (∂f/∂z)w in forward mode, where the linearisation is at that z; all in
    the Euclidean norm of a sample, over all entries of all its tensors.

    For a forward and its backward f is one map: what torch's generators draw in it (dropout, noise) and the autocast that it
    runs under are held, and buffers that it updates (running statistics) are updated once, at the equilibrium. Batch norm in
    training mode makes the batch one sample. Where f computes in float16 or bfloat16, z is solved in float32.

    Args:
        f: the map, a module or a function ``f(z, *x, **kwargs)`` that returns a state like z, but for such draws and buffers the
            same for the same arguments.
        contraction: q < 1 with ‖f(z, x) − f(z', x)‖ ≤ q ‖z − z'‖ for each sample. Then the error bounds are guarantees,
            those of derivatives too; a q that the iterates refute is reported as ``not_contracting``. None: that of an f made
            by ``contractive``, which is proved; else q is estimated from the iterates, and so are the bounds.
        solver: ``plain``, ``anderson`` (safeguarded), or ``auto``: plain until residuals show that mixing pays.
        tolerance: wanted error bound relative to ‖z‖ of the sample; default 1e-12 in float64, 1e-5 in float32, and where f
            computes in float16 or bfloat16 what rounding allows.
        max_iterations: most evaluations of f, and in the solve of a derivative of its product with ∂f/∂z.
        backward_tolerance: as ``tolerance``, for u and w.
        on_failure: where a solve, of z or of a derivative, does not converge: ``raise`` an ``EquilibriumError``, ``warn`` with
            an ``EquilibriumWarning``, or only ``return`` the last iterate, with the failure in the record.
        state_shape: shape of z without the batch dimensions, where z is not shaped like the first x. An integer or a sequence
            of integers is one shape; ``((5,), (3, 2))`` or ``{"fast": 5, "slow": (3, 2)}`` are shapes of several tensors.
        batch_dims: how many leading dimensions index samples; 0 makes z one sample.
        gradient: ``implicit``, or a ``PhantomGradient``: derivatives inexact by choice.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range.

    Example:
        >>> layer = sf.nn.EquilibriumLayer(lambda z, x: torch.tanh(0.5 * z + x), contraction=0.5)
        >>> x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        >>> z = layer(x)
        >>> z.sum().backward()  # through the equilibrium, not through the iterations
        >>> layer.info.guaranteed, bool((layer.info.error_bound < 1e-11).all()), x.grad.shape
        (True, True, torch.Size([4, 3]))
    """

    def __init__(
        self,
        f: Callable[..., Any],
        *,
        contraction: float | None = None,
        solver: Solver = "auto",
        tolerance: float | None = None,
        max_iterations: int = 1000,
        backward_tolerance: float | None = None,
        on_failure: OnFailure = "raise",
        state_shape: Any = None,
        batch_dims: int = 1,
        gradient: Literal["implicit"] | PhantomGradient = "implicit",
    ) -> None:
        super().__init__()
        if not callable(f):
            raise TypeError(f"f is {kind_of(f)}; pass a module or a function f(z, *x)")
        if contraction is not None and nonnegative("contraction", contraction) >= 1.0:
            raise ValueError(f"contraction is {contraction!r}; a contraction has a factor below 1 (None estimates it)")
        if solver not in SOLVERS:
            raise unknown("solver", solver, SOLVERS)
        if on_failure not in ON_FAILURE:
            raise unknown("on_failure", on_failure, ON_FAILURE)
        for name, value in (("tolerance", tolerance), ("backward_tolerance", backward_tolerance)):
            if value is not None:
                nonnegative(name, value)
        batch_dims = integer("batch_dims", batch_dims, 0)
        if gradient != "implicit" and not isinstance(gradient, PhantomGradient):
            raise ValueError(f'gradient is {gradient!r}; pass "implicit" or sf.nn.PhantomGradient(steps, damping)')
        if isinstance(f, Contractive):
            contraction = f.contraction if contraction is None else contraction
            if f.batch_dims < batch_dims:
                raise ValueError(
                    f"f is a contraction for batch_dims={f.batch_dims}, and batch_dims is {batch_dims}; pass contractive(..., "
                    f"batch_dims={batch_dims})"
                )
        self.f = f
        self.gradient: Literal["implicit"] | PhantomGradient = gradient
        self.contraction = contraction
        self.solver: Solver = solver
        self.tolerance, self.backward_tolerance = tolerance, backward_tolerance
        self.max_iterations = positive_integer("max_iterations", max_iterations)
        self.on_failure: OnFailure = on_failure
        self.state_shape = None if state_shape is None else shapes(state_shape)
        self.batch_dims = batch_dims
        self.number = number_of(self)
        self._records: dict[Kind, SolveInfo] = {}

    def extra_repr(self) -> str:
        """The settings, for ``print``."""
        settings = f"contraction={self.contraction}, solver={self.solver!r}, on_failure={self.on_failure!r}"
        return settings if self.gradient == "implicit" else f"{settings}, gradient={self.gradient}"

    def __setstate__(self, state: Any) -> None:  # of a copy
        super().__setstate__(state)
        self.number = number_of(self)

    @property
    def info(self) -> SolveInfo | None:
        """Of the latest solve for z."""
        return self._record("forward")

    @property
    def backward_info(self) -> SolveInfo | None:
        """Of the latest solve of a backward."""
        return self._record("backward")

    @property
    def tangent_info(self) -> SolveInfo | None:
        """Of the latest solve of forward mode."""
        return self._record("tangent")

    def _record(self, kind: Kind) -> SolveInfo | None:
        if torch.compiler.is_compiling():
            from .graphs.compiled import record

            return record(self._records, kind)
        return self._records.get(kind)

    def forward(self, *x: Any, z0: Any = None, memory: BatchStart | None = None, **kwargs: Any) -> Any:
        """The fixed point z, of the structure and dtype of z0.

        Args:
            x: further arguments of f: tensors, pytrees of tensors, or anything else.
            z0: first iterate, a tensor (*batch, *state) or a pytree of such; default zeros with the batch of the first
                tensor in x, and the dtype of the first with a floating one, else of the parameters.
            memory: of a ``WarmStart``, what was found for these samples before, to start from instead; updated, by the first
                ``backward`` too.
            kwargs: keyword arguments of f, which cannot be called ``z0`` or ``memory``.

        Raises:
            TypeError, ValueError: z0, memory or the value of f is of the wrong kind, shape, dtype or device, f changes an
                argument in place, or its value has no gradient though x or a parameter requires one.
            EquilibriumError: a solve did not converge and ``on_failure`` is ``raise``; in a backward, from there.
        """
        if torch.compiler.is_exporting():
            return self._exported(x, kwargs, z0)
        if torch.compiler.is_compiling():
            from .graphs.compiled import in_graph, outside

            packing, start = self._start(x, kwargs, z0)
            leaves = in_graph(self, packing.unpack(start), x, kwargs) if memory is None else None
            if leaves is None:
                return outside(self.forward, x, {**kwargs, "z0": z0, "memory": memory})
            return pytree.tree_unflatten(leaves, packing.structure)
        return self._fixed_point(x, kwargs, z0, memory, self.on_failure)

    def infer(self, x: tuple[Any, ...], kwargs: dict[str, Any], z0: Any) -> tuple[Any, Tensor, Tensor]:
        """What ``EquilibriumInference`` returns."""
        packing, start = self._start(x, kwargs, z0)
        z, bound, converged = infer(
            self.f,
            packing,
            start,
            x,
            kwargs,
            batch_dims=self.batch_dims,
            contraction=self.contraction,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
        )
        return packing.unpack(z), bound, converged

    def _exported(self, x: tuple[Any, ...], kwargs: dict[str, Any], z0: Any) -> Any:
        """z in a graph of ``torch.export``, in which a failure is an assertion that fails."""
        if torch.is_grad_enabled():
            raise RuntimeError("an exported layer solves and has no gradients; export it under torch.no_grad()")
        if self.on_failure == "warn":
            raise ValueError('an exported layer cannot warn; set on_failure to "raise" or "return"')
        z, _, converged = self.infer(x, kwargs, z0)
        if self.on_failure == "raise":
            torch.ops.aten._assert_async.msg(converged.all(), "z = f(z, *x) did not converge for each sample")
        return z

    def closed(self, x: tuple[Any, ...], kwargs: dict[str, Any], z0: Any) -> Any:
        """z inside an operation of a compiled graph, which knows of no tensor but those in x, kwargs and f."""
        return self._fixed_point(x, kwargs, z0, None, self.on_failure, closed=True)

    def solve(self, *x: Any, z0: Any = None, **kwargs: Any) -> Solution:
        """The fixed point without a gradient, and its record; never raises for a solve that did not converge."""
        with torch.no_grad(), forward_ad._set_fwd_grad_enabled(False):
            z = self._fixed_point(x, kwargs, z0, None, "return")
        assert self.info is not None
        return Solution(z, self.info)

    def trajectory(self, *x: Any, evaluations: Sequence[int], z0: Any = None, **kwargs: Any) -> Trajectory:
        """The fixed point, and states on the way to it.

        Args:
            x, z0, kwargs: as for the layer itself.
            evaluations: numbers, from 1 on, of the evaluations of f whose values are the states; those after the last one give
                that of one more.

        Raises:
            NotImplementedError: under ``torch.vmap``; the others are those of the layer itself.
        """
        user, settings, start, _ = self._prepare(x, kwargs, z0, self.on_failure)
        iterates = Iterates(evaluations)
        tensors = user.tensors
        z = fixed_point(user, iterates.watch(settings), start, *tensors)
        user.finish(z)
        assert self.info is not None
        found, numbers = iterates.of(self.info, z)
        states = tuple(user.packing.unpack(user(iterate, *tensors)) for iterate in found)
        return Trajectory(states, numbers, user.packing.unpack(z), self.info)

    def _fixed_point(
        self,
        x: tuple[Any, ...],
        kwargs: dict[str, Any],
        z0: Any,
        memory: BatchStart | None,
        on_failure: OnFailure,
        closed: bool = False,
    ) -> Any:
        user, settings, _, first = self._prepare(x, kwargs, z0, on_failure, memory)
        if closed and user.captured:
            raise RuntimeError(
                "f uses a tensor that requires grad and is neither an argument, a parameter nor a buffer of f, and whose "
                "gradient a compiled graph would lose; register it in f, pass it as x, or call the layer in a function with the "
                "decorator torch.compiler.disable"
            )
        z = fixed_point(user, settings, first, *user.tensors)
        user.finish(z)
        return user.packing.unpack(z)

    def _prepare(
        self,
        x: tuple[Any, ...],
        kwargs: dict[str, Any],
        z0: Any,
        on_failure: OnFailure,
        memory: BatchStart | None = None,
    ) -> tuple[UserMap, Settings, Tensor, Tensor]:
        """The map, how to solve it, z0, and where the first evaluation led from there."""
        if memory is not None and not isinstance(memory, BatchStart):
            raise TypeError(
                f"memory is {kind_of(memory)}; pass warm[index], of a WarmStart and the numbers of the samples"
            )
        packing, start = self._start(x, kwargs, z0)
        try:
            user, first = explicit(self.f, packing, start, x, kwargs)
        except Exception as error:
            if z0 is None and self.state_shape is None:
                shape = tuple(start.shape)
                error.add_note(
                    f"z is a tensor {shape}, like the first x; pass state_shape or z0 if f takes another state"
                )
            raise
        # samples that depend on each other are one
        batch_dims = 0 if user.couples else self.batch_dims
        return user, Settings(partial(self._solve, on_failure, memory, user), batch_dims), start, first

    def _solve(
        self,
        on_failure: OnFailure,
        memory: BatchStart | None,
        user: UserMap,
        step: Callable[[Tensor], Tensor],
        start: Tensor,
        batch_dims: int,
        kind: Kind,
    ) -> Tensor:
        """Solve, record, and report a failure; more ``batch_dims`` than the layer's under vmap."""
        samples = batch_dims + self.batch_dims if user.couples else batch_dims
        if kind != "forward" and isinstance(self.gradient, PhantomGradient):
            z, info = self.gradient.solve(
                step, start, batch_dims=batch_dims, contraction=self.contraction, eps=user.eps
            )
        else:
            z, info = solve(
                step,
                start,
                batch_dims=batch_dims,
                contraction=self.contraction,
                tolerance=self.tolerance if kind == "forward" else self.backward_tolerance,
                max_iterations=self.max_iterations,
                solver=self.solver,
                affine=kind != "forward",
                eps=user.eps,
                first=None if memory is None else memory.first(start, samples, kind),
            )
            if memory is not None:
                memory.keep(z, start, info.failed.expand(start.shape[:samples]), kind)
        if info.status in (SolveStatus.NOT_CONTRACTING, SolveStatus.MAX_ITERATIONS):
            if not torch.equal(step(z), step(z)):
                note = "f gives two values for the same arguments: noise that is not from torch's own generators, or a state"
                info = replace(info, note=note)
            elif info.guaranteed and info.status is SolveStatus.NOT_CONTRACTING:
                info = replace(info, note=f"the iterates contradict the given contraction={self.contraction}")
        self._records[kind] = info
        if kind != "forward" and info.status is SolveStatus.NON_FINITE and user.half:
            # what torch.amp.GradScaler waits for: it scales losses until gradients overflow, and leaves such steps out
            return torch.where(info.failed.view(*info.failed.shape, *(1,) * (z.ndim - batch_dims)), torch.nan, z)
        report(info, on_failure, kind)
        return z

    def _start(self, x: tuple[Any, ...], kwargs: dict[str, Any], z0: Any) -> tuple[Packing, Tensor]:
        if z0 is None:
            return zeros(x, kwargs, self.parameters(), self.state_shape, self.batch_dims)
        return given(z0, self.state_shape, self.batch_dims)
