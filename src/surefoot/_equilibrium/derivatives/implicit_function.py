"""Differentiable fixed points: z = g(z, *tensors) as one operation, with implicit derivatives of every order.

With J = ∂g/∂z at the fixed point, the gradient v of a loss at z gives (∂g/∂tensors)ᵀ u, where u = v + Jᵀu, and a
direction ẋ of the tensors moves z along w = b + Jw, where b = ∂g/∂tensors ẋ. Each of u and w is itself a fixed point, of a
map that depends on v or b, z and the tensors, so that the same construction differentiates it again, in either mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..cell.surroundings import in_forward_mode, without_autocast
from .products import LinearMap, Map, gradients, graph, pull_back, push_forward
from .tracing import one_node

Kind = Literal["forward", "backward", "tangent"]
"""What is solved for: z = g(z), u = v + Jᵀu from v, or w = b + Jw from b."""


@dataclass(frozen=True)
class Settings:
    """How to solve: ``solve(step, start, batch_dims, kind)`` finds z = step(z)."""

    solve: Callable[[Callable[[Tensor], Tensor], Tensor, int, Kind], Tensor]
    batch_dims: int
    kind: Kind = "forward"

    def run(self, step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
        return self.solve(step, start, self.batch_dims, self.kind)


class _Adjoint:
    """u ↦ v + Jᵀu with J = ∂g/∂z at z; its tensors are v, z and those of g."""

    def __init__(self, g: Map) -> None:
        self.g = g

    def __call__(self, u: Tensor, /, *tensors: Tensor) -> Tensor:
        v, *arguments = tensors
        return v + pull_back(self.g, tuple(arguments), [0])(u)[0]

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        v, *arguments = tensors
        pull = pull_back(self.g, tuple(arguments), [0])
        return lambda u: v + pull(u)[0]


class _Tangent:
    """w ↦ b + Jw with J = ∂g/∂z at z; its tensors are b, z and those of g."""

    def __init__(self, g: Map) -> None:
        self.g = g

    def __call__(self, w: Tensor, /, *tensors: Tensor) -> Tensor:
        b, *arguments = tensors
        return b + push_forward(self.g, tuple(arguments), [0], [w])

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        b, *arguments = (t.detach() for t in tensors)
        # z first; the others for the check
        linear = LinearMap(self.g, tuple(arguments), [i for i, t in enumerate(arguments) if t.is_floating_point()])
        linear.check()
        return lambda w: b + linear(w)


class _Batched:
    """g under ``torch.vmap``: a further dimension in front of z, and of the tensors with ``in_dims`` 0."""

    def __init__(self, g: Map, in_dims: tuple[int | None, ...], randomness: str) -> None:
        self.g = torch.vmap(g, (0, *in_dims), randomness=randomness)

    def __call__(self, z: Tensor, *tensors: Tensor) -> Tensor:
        return self.g(z, *tensors)

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        def step(z: Tensor) -> Tensor:
            with torch.no_grad():
                return self.g(z, *tensors)

        return step


def fixed_point(g: Map, settings: Settings, start: Tensor, *tensors: Tensor) -> Tensor:
    """z = g(z, *tensors), differentiable in the tensors any number of times."""
    z = _Solve.apply(g, settings, start.detach(), *(t.detach() for t in tensors))
    return _Attach.apply(g, settings, z, *tensors) if torch.is_grad_enabled() or in_forward_mode() else z


def _to_front(size: int, dim: int | None, tensor: Tensor) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _batch(info: Any, in_dims: Any, g: Map, settings: Settings, tensors: Any) -> tuple[Map, Settings, list[Any]]:
    """The map, settings and tensors of a call under vmap, as one call with a further batch dimension."""
    moved = [t if dim is None else t.movedim(dim, 0) for t, dim in zip(tensors, in_dims, strict=True)]
    dims = [None if dim is None else 0 for dim in in_dims]
    kinds: list[type[_Adjoint] | type[_Tangent]] = []
    while isinstance(g, _Adjoint | _Tangent):
        # samples do not interact: it is the adjoint or tangent of the batched map, which is evaluated once in a solve
        for i in (2 * len(kinds), 2 * len(kinds) + 1):
            moved[i], dims[i] = moved[i] if dims[i] == 0 else _to_front(info.batch_size, None, moved[i]), 0
        kinds.append(type(g))
        g = g.g
    g = _Batched(g, tuple(dims[2 * len(kinds) :]), info.randomness)
    for kind in reversed(kinds):
        g = kind(g)
    return g, replace(settings, batch_dims=settings.batch_dims + 1), moved


class _Solve(torch.autograd.Function):
    """The solver as one operation, so that transforms see no iteration: constant for autograd."""

    @staticmethod
    def forward(g: Map, settings: Settings, start: Tensor, *tensors: Tensor) -> Tensor:  # pyright: ignore
        def run(start: Tensor, *tensors: Tensor) -> Tensor:
            return settings.run(g.at(*tensors), start)

        return one_node(run, partial(_Solve.apply, g, settings), start, *tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise AssertionError("its tensors are detached")

    @staticmethod
    def vmap(info: Any, in_dims: Any, g: Map, settings: Settings, start: Tensor, *tensors: Tensor) -> Any:  # pyright: ignore
        g, settings, moved = _batch(info, in_dims[3:], g, settings, tensors)
        return _Solve.apply(g, settings, _to_front(info.batch_size, in_dims[2], start), *moved), 0


class _Attach(torch.autograd.Function):
    """z as a function of the tensors: the gradient v goes to (∂g/∂tensors)ᵀ u with u = v + Jᵀu; a direction to w = b + Jw."""

    @staticmethod
    def forward(g: Map, settings: Settings, z: Tensor, *tensors: Tensor) -> Tensor:  # pyright: ignore
        return z.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.g, ctx.settings, _, *tensors = inputs
        ctx.set_materialize_grads(False)
        # the output, not the input z: the output is what depends on the tensors
        ctx.save_for_backward(output, *tensors)
        ctx.save_for_forward(output, *tensors)

    @staticmethod
    def backward(ctx: Any, v: Tensor | None) -> Any:  # pyright: ignore
        z, *tensors = ctx.saved_tensors
        if v is None:
            return (None,) * (len(tensors) + 3)
        settings = replace(ctx.settings, kind="backward")
        wanted = [i for i, t in enumerate(tensors, 1) if ctx.needs_input_grad[i + 2] and t.is_floating_point()]
        with without_autocast(v.device):
            if torch.is_grad_enabled() or in_forward_mode() or torch._C._are_functorch_transforms_active():
                u = fixed_point(_Adjoint(ctx.g), settings, v, v, z, *tensors)
                found = pull_back(ctx.g, (z, *tensors), wanted)(u)
            else:  # of a gradient that is not differentiated itself, one evaluation of g serves all
                value, (point, *chosen) = graph(ctx.g, (z, *tensors), [0, *wanted])
                u = settings.run(lambda u: v + gradients(value, [point], u, again=False)[0], v)
                found = gradients(value, chosen, u, again=False)
        grads: list[Tensor | None] = [None] * len(tensors)
        for i, grad in zip(wanted, found, strict=True):
            grads[i - 1] = grad
        return (None, None, None, *grads)

    @staticmethod
    def jvp(ctx: Any, *directions: Any) -> Any:  # pyright: ignore
        z, *tensors = (forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors)
        moved = {i: direction for i, direction in enumerate(directions[3:], 1) if direction is not None}
        with forward_ad._set_fwd_grad_enabled(True), without_autocast(z.device):
            b = push_forward(ctx.g, (z, *tensors), list(moved), list(moved.values()))
            return fixed_point(_Tangent(ctx.g), replace(ctx.settings, kind="tangent"), b, b, z, *tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, g: Map, settings: Settings, z: Tensor, *tensors: Tensor) -> Any:  # pyright: ignore
        g, settings, moved = _batch(info, in_dims[3:], g, settings, tensors)
        return _Attach.apply(g, settings, _to_front(info.batch_size, in_dims[2], z), *moved), 0
