"""Differentiable fixed points: z = g(z, *tensors) as one operation, with implicit derivatives of every order.

With J = ∂g/∂z at the fixed point, the gradient v of a loss at z gives (∂g/∂tensors)ᵀ u, where u = v + Jᵀu. This u is
itself a fixed point, of a map that depends on v, z and the tensors, so that the same construction differentiates it
again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class Settings:
    """How to solve: ``solve(step, start, batch_dims, backward)`` finds z = step(z); ``backward`` for u = v + Jᵀu from v."""

    solve: Callable[[Callable[[Tensor], Tensor], Tensor, int, bool], Tensor]
    batch_dims: int
    backward: bool = False

    def run(self, step: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
        return self.solve(step, start, self.batch_dims, self.backward)


class Map(Protocol):
    """g(z, *tensors), differentiable in all of them."""

    def __call__(self, z: Tensor, /, *tensors: Tensor) -> Tensor: ...

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        """z ↦ g(z, *tensors) without gradients, with the work that does not depend on z done once."""
        ...


class _Adjoint:
    """u ↦ v + Jᵀu with J = ∂g/∂z at z; its tensors are v, z and those of g."""

    def __init__(self, g: Map) -> None:
        self.g = g

    def __call__(self, u: Tensor, /, *tensors: Tensor) -> Tensor:
        v, *arguments = tensors
        return v + _pull_back(self.g, tuple(arguments), [0], u)[0]

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        v, z, *rest = tensors
        with torch.enable_grad():
            point = z.detach().requires_grad_()
            value = self.g(point, *(t.detach() for t in rest))

        def step(u: Tensor) -> Tensor:
            if not value.requires_grad:  # g does not depend on z
                return v
            (product,) = torch.autograd.grad(value, point, u, retain_graph=True, allow_unused=True)
            return v if product is None else v + product

        return step


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
    z = _Solve.apply(g, settings, start.detach(), *tensors)
    return _Attach.apply(g, settings, z, *tensors) if torch.is_grad_enabled() else z


def _pull_back(g: Map, arguments: tuple[Tensor, ...], wanted: list[int], u: Tensor) -> list[Tensor]:
    """uᵀ ∂g/∂(the wanted arguments), differentiable in the arguments and u where grad mode is on."""
    if torch._C._are_functorch_transforms_active():

        def of_wanted(*chosen: Tensor) -> Tensor:
            full = list(arguments)
            for i, tensor in zip(wanted, chosen, strict=True):
                full[i] = tensor
            return g(*full)

        pull: Callable[[Tensor], Any] = torch.func.vjp(of_wanted, *(arguments[i] for i in wanted))[1]
        return list(pull(u))
    # without a transform: torch.func would refuse maps that plain autograd can differentiate
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        full = list(arguments) if again else [t.detach() for t in arguments]
        for i in wanted:
            # a new name, so that g's own path through other arguments does not count; after its transform has ended (the
            # function that torch.func.vjp returns), a tensor requires grad in name only, and its view does not
            view = full[i].view_as(full[i])
            full[i] = view if view.requires_grad else view.detach().requires_grad_()
        value = g(*full)
        if not value.requires_grad:
            return [torch.zeros_like(full[i]) for i in wanted]
        chosen = [full[i] for i in wanted]
        grads = torch.autograd.grad(value, chosen, u, create_graph=again, allow_unused=True)
    return [torch.zeros_like(t) if grad is None else grad for t, grad in zip(chosen, grads, strict=True)]


def _to_front(size: int, dim: int | None, tensor: Tensor) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _batch(info: Any, in_dims: Any, g: Map, settings: Settings, tensors: Any) -> tuple[Map, Settings, list[Any]]:
    """The map, settings and tensors of a call under vmap, as one call with a further batch dimension."""
    moved = [t if dim is None else t.movedim(dim, 0) for t, dim in zip(tensors, in_dims, strict=True)]
    dims = tuple(None if dim is None else 0 for dim in in_dims)
    return _Batched(g, dims, info.randomness), replace(settings, batch_dims=settings.batch_dims + 1), moved


class _Solve(torch.autograd.Function):
    """The solver as one operation, so that transforms see no iteration: constant for autograd."""

    @staticmethod
    def forward(g: Map, settings: Settings, start: Tensor, *tensors: Tensor) -> Tensor:  # pyright: ignore
        return settings.run(g.at(*tensors), start)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)
        ctx.count = len(inputs)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return (None,) * ctx.count

    @staticmethod
    def vmap(info: Any, in_dims: Any, g: Map, settings: Settings, start: Tensor, *tensors: Tensor) -> Any:  # pyright: ignore
        g, settings, moved = _batch(info, in_dims[3:], g, settings, tensors)
        return _Solve.apply(g, settings, _to_front(info.batch_size, in_dims[2], start), *moved), 0


class _Attach(torch.autograd.Function):
    """z as a function of the tensors: the gradient v goes to (∂g/∂tensors)ᵀ u with u = v + Jᵀu."""

    @staticmethod
    def forward(g: Map, settings: Settings, z: Tensor, *tensors: Tensor) -> Tensor:  # pyright: ignore
        return z.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.g, ctx.settings, _, *tensors = inputs
        # the output, not the input z: the output is what depends on the tensors
        ctx.save_for_backward(output, *tensors)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> Any:  # pyright: ignore
        z, *tensors = ctx.saved_tensors
        settings = replace(ctx.settings, backward=True)
        u = fixed_point(_Adjoint(ctx.g), settings, v, v, z, *tensors)
        wanted = [i for i, t in enumerate(tensors, 1) if ctx.needs_input_grad[i + 2] and t.is_floating_point()]
        grads: list[Tensor | None] = [None] * len(tensors)
        for i, grad in zip(wanted, _pull_back(ctx.g, (z, *tensors), wanted, u), strict=True):
            grads[i - 1] = grad
        return (None, None, None, *grads)

    @staticmethod
    def vmap(info: Any, in_dims: Any, g: Map, settings: Settings, z: Tensor, *tensors: Tensor) -> Any:  # pyright: ignore
        g, settings, moved = _batch(info, in_dims[3:], g, settings, tensors)
        return _Attach.apply(g, settings, _to_front(info.batch_size, in_dims[2], z), *moved), 0
