"""Products with the derivatives of a map g(z, *tensors): uᵀ∂g and ∂g w, differentiable themselves, in every mode of torch.

∂g w is the derivative, by u, of uᵀ∂g, which is linear in u: so a map needs no more than its backward, and nothing in it is
evaluated again for each w. Torch's forward mode cannot be entered twice without ``torch.func``; this can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from ..cell.surroundings import in_forward_mode

_HIDDEN = 0.05  # relative difference of two numbers that are equal but for rounding, were it that of bfloat16


class Map(Protocol):
    """g(z, *tensors), differentiable in all of them."""

    def __call__(self, z: Tensor, /, *tensors: Tensor) -> Tensor: ...

    def at(self, *tensors: Tensor) -> Callable[[Tensor], Tensor]:
        """z ↦ g(z, *tensors) without gradients, with the work that does not depend on z done once."""
        ...


def pull_back(g: Map, arguments: tuple[Tensor, ...], wanted: list[int]) -> Callable[[Tensor], list[Tensor]]:
    """u ↦ uᵀ ∂g/∂(the wanted arguments), differentiable in the arguments and u where grad mode is on; g is evaluated once."""
    again = torch.is_grad_enabled()
    if torch._C._are_functorch_transforms_active():

        def of_wanted(*chosen: Tensor) -> Tensor:
            full = list(arguments)
            for i, tensor in zip(wanted, chosen, strict=True):
                full[i] = tensor
            return g(*full)

        transposed: Callable[[Tensor], Any] = torch.func.vjp(of_wanted, *(arguments[i] for i in wanted))[1]
        return lambda u: list(transposed(u))
    value, chosen = graph(g, arguments, wanted)
    return lambda u: gradients(value, chosen, u, again=again)


def graph(g: Map, arguments: tuple[Tensor, ...], wanted: list[int]) -> tuple[Tensor, list[Tensor]]:
    """The value of g and the wanted arguments that it was evaluated at, in plain autograd.

    ``torch.func`` would refuse maps that this can differentiate.
    """
    keep = torch.is_grad_enabled() or in_forward_mode()
    with torch.enable_grad():
        full = list(arguments) if keep else [t.detach() for t in arguments]
        for i in wanted:
            # a new name, so that g's own path through other arguments does not count; after its transform has ended (the
            # function that torch.func.vjp returns), a tensor requires grad in name only, and its view does not
            view = full[i].view_as(full[i])
            full[i] = view if view.requires_grad else view.requires_grad_()
        return g(*full), [full[i] for i in wanted]


def gradients(value: Tensor, chosen: list[Tensor], u: Tensor, *, again: bool) -> list[Tensor]:
    """uᵀ ∂value/∂(each of the chosen), any number of times; differentiable if ``again``."""
    if not (value.requires_grad and chosen):
        return [torch.zeros_like(t) for t in chosen]
    grads = torch.autograd.grad(value, chosen, u, retain_graph=True, create_graph=again, allow_unused=True)
    return [torch.zeros_like(t) if grad is None else grad for t, grad in zip(chosen, grads, strict=True)]


def push_forward(g: Map, arguments: tuple[Tensor, ...], wanted: list[int], tangents: list[Tensor]) -> Tensor:
    """Σ ∂g/∂(wanted argument) · tangent, differentiable in the arguments and tangents where grad mode is on."""
    if torch._C._are_functorch_transforms_active():
        pull = torch.func.vjp(lambda u: pull_back(g, arguments, wanted)(u), torch.zeros_like(arguments[0]))[1]
        with _second_derivatives():
            return pull(tangents)[0]
    return LinearMap(g, arguments, wanted)(*tangents)


class LinearMap:
    """The same as a map of the tangents, with the work that does not depend on them done once; not under a transform."""

    def __init__(self, g: Map, arguments: tuple[Tensor, ...], wanted: list[int]) -> None:
        self.again = torch.is_grad_enabled()
        like = arguments[0]
        entries = torch.arange(like.numel(), dtype=like.dtype, device=like.device).view(like.shape)
        with torch.enable_grad():
            # any u serves that shows in check: the golden angle has no period
            self.u = torch.cos(entries * 2.39996).requires_grad_()
            self.pulled = pull_back(g, arguments, wanted)(self.u)

    def __call__(self, *tangents: Tensor) -> Tensor:
        """For the first of the wanted arguments, as many as there are tangents."""
        pairs = [(p, t) for p, t in zip(self.pulled, tangents, strict=False) if p.requires_grad]
        if not pairs:
            return torch.zeros_like(self.u)
        products, directions = zip(*pairs, strict=True)
        with _second_derivatives():
            (value,) = torch.autograd.grad(
                products, self.u, directions, retain_graph=True, create_graph=self.again, allow_unused=True
            )
        return torch.zeros_like(self.u) if value is None else value

    def check(self) -> None:
        """‖Aᵀu‖² = uᵀAAᵀu, or the backward of f hides from autograd how it depends on u.

        Raises:
            RuntimeError: it does.
        """
        pulled = [p.detach() for p in self.pulled]
        size = sum(float(p.double().square().sum()) for p in pulled)
        seen = float((self.u * self(*pulled)).detach().double().sum())
        if abs(seen - size) > _HIDDEN * size:
            raise RuntimeError(
                "forward mode differentiates the backward of f, and an operation in f has a backward that does not let "
                "gradients through; write that with torch operations, or use reverse mode (backward, vjp, jacrev)"
            )


@contextlib.contextmanager
def _second_derivatives() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if type(error) not in (RuntimeError, NotImplementedError):
            raise
        raise RuntimeError(
            f"forward mode differentiates the backward of f, which an operation in f does not allow ({error}); use reverse "
            "mode (backward, vjp, jacrev)"
        ) from error
