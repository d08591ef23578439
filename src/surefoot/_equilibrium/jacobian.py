"""The size of the Jacobian J = ∂f/∂z of a map: its Frobenius norm as a penalty, its spectrum as a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._core.brief import brief
from .._core.validate import integer, positive_integer
from .cell.packing import Packing
from .cell.user_map import UserMap, explicit
from .derivatives.products import LinearMap, pull_back
from .layer import EquilibriumLayer


class JacobianPenalty(NamedTuple):
    """An estimate of the mean over the samples of ‖∂f/∂z‖_F²; both tensors have no dimensions.

    Attributes:
        value: unbiased for random signs; differentiable.
        standard_error: of ``value``, from the spread of the draws; NaN for one draw.
    """

    value: Tensor
    standard_error: Tensor

    __repr__ = brief


class JacobianSpectrum(NamedTuple):
    """Estimates of each sample (*batch), by power iteration; where f couples samples, as batch norm does, of all together.

    Attributes:
        radius: of the spectral radius: the growth of the powers of J. At an equilibrium, plain iteration from nearby needs it
            below 1.
        norm: of ‖∂f/∂z‖₂, from below up to rounding; above q, it refutes ``contraction=q``.
    """

    radius: Tensor
    norm: Tensor

    __repr__ = brief


def jacobian_penalty(
    f: EquilibriumLayer | Callable[..., Any],
    z: Any,
    *x: Any,
    samples: int = 1,
    generator: torch.Generator | None = None,
    batch_dims: int | None = None,
    **kwargs: Any,
) -> JacobianPenalty:
    """The mean over the samples of ‖∂f/∂z‖_F², estimated by Hutchinson's method, to be added to a loss.

    For a vector v of random signs, E‖Jᵀv‖² = ‖J‖_F² (Bai, Koltun, Kolter, "Stabilizing equilibrium models by Jacobian
    regularization", 2021, divide by the number of entries of z as well). Differentiable in z, x, the parameters of f and what
    f captures; with ``z.detach()`` the penalty acts on f at that z alone.

    Args:
        f: a layer, whose f is meant, or a map ``f(z, *x, **kwargs)``.
        z: where: a state of f, usually the equilibrium; a tensor or a pytree of tensors, float32 or float64.
        x: the further arguments of f.
        samples: how many v are drawn.
        generator: draws them, on the device of z; default torch's own.
        batch_dims: how many leading dimensions of z index samples; default those of the layer, or 1.
        kwargs: keyword arguments of f.

    Raises:
        TypeError, ValueError: an argument, or the value of f, is of the wrong kind, shape, dtype or device.

    Example:
        >>> weights = torch.nn.Linear(3, 3)
        >>> layer = sf.nn.EquilibriumLayer(lambda z, x: torch.tanh(0.5 * weights(z) + x))
        >>> x = torch.randn(4, 3)
        >>> z = layer(x)
        >>> penalty = sf.nn.jacobian_penalty(layer, z, x, samples=8)
        >>> (z.square().mean() + 0.1 * penalty.value).backward()  # reaches ``weights`` through the equilibrium and the penalty
        >>> bool(penalty.value > 0), weights.weight.grad.shape
        (True, torch.Size([3, 3]))
    """
    positive_integer("samples", samples)
    user, state, tensors, dims = _map_at(f, z, x, kwargs, batch_dims)
    tracked = torch._C._are_functorch_transforms_active() or any(t.requires_grad for t in (state, *tensors))
    sizes = []
    with torch.set_grad_enabled(torch.is_grad_enabled() and tracked):
        pull = pull_back(user, (state, *tensors), [0])
        for _ in range(samples):
            signs = torch.randint(2, state.shape, generator=generator, dtype=state.dtype, device=state.device)
            (pulled,) = pull(2.0 * signs - 1.0)
            sizes.append(pulled.square().reshape(*state.shape[:dims], -1).sum(-1))
        draws = torch.stack(sizes)
    spread = draws.detach().var(0) if samples > 1 else draws.detach() * torch.nan
    return JacobianPenalty(draws.mean(), (spread.mean() / draws.numel()).sqrt())


def jacobian_spectrum(
    f: EquilibriumLayer | Callable[..., Any],
    z: Any,
    *x: Any,
    iterations: int = 50,
    generator: torch.Generator | None = None,
    batch_dims: int | None = None,
    **kwargs: Any,
) -> JacobianSpectrum:
    """Spectral radius and spectral norm of ∂f/∂z at z, estimated for each sample.

    From a random vector, ``iterations`` products with Jᵀ for the radius, and as many with J and Jᵀ for the norm. No gradient
    flows, and no transform of ``torch.func`` works.

    Args:
        f, z, x, generator, batch_dims, kwargs: as for ``jacobian_penalty``.
        iterations: at least 2; the radius is the mean growth over the later half of them.

    Raises:
        TypeError, ValueError: an argument, or the value of f, is of the wrong kind, shape, dtype or device.
        RuntimeError: inside a transform of ``torch.func``.

    Example:
        >>> layer = sf.nn.EquilibriumLayer(lambda z, x: 0.5 * z + x)
        >>> x = torch.ones(2, 3)
        >>> radius, norm = sf.nn.jacobian_spectrum(layer, layer(x), x)
        >>> [round(value, 3) for value in radius.tolist()]  # of both samples below 1: plain iteration converges
        [0.5, 0.5]
    """
    integer("iterations", iterations, 2)
    if torch._C._are_functorch_transforms_active():
        raise RuntimeError(
            "jacobian_spectrum has no derivatives and cannot run inside a transform of torch.func; call it outside, with a batch "
            "in place of vmap"
        )
    with torch.no_grad(), forward_ad._set_fwd_grad_enabled(False):
        user, state, tensors, dims = _map_at(f, z, x, kwargs, batch_dims)
        pull, push = pull_back(user, (state, *tensors), [0]), LinearMap(user, (state, *tensors), [0])
        push.check()
        dims = 0 if user.couples else dims

        def unit(w: Tensor) -> tuple[Tensor, Tensor]:
            length = torch.linalg.vector_norm(w.reshape(*w.shape[:dims], -1), dim=-1)
            scale = torch.where(length > 0.0, length, 1.0).view(*length.shape, *(1,) * (w.ndim - dims))
            return w / scale, length

        first, _ = unit(torch.randn(state.shape, generator=generator, dtype=state.dtype, device=state.device))
        w, lengths = first, []
        for _ in range(iterations):
            w, length = unit(pull(w)[0])
            lengths.append(length)
        radius = torch.stack(lengths[iterations // 2 :]).log().mean(0).exp()
        w, norm = first, torch.zeros_like(radius)
        for _ in range(iterations):
            w, length = unit(pull(w)[0])
            norm = torch.maximum(norm, length)
            w, length = unit(push(w))
            norm = torch.maximum(norm, length)
        return JacobianSpectrum(radius, norm)


def _map_at(
    f: EquilibriumLayer | Callable[..., Any], z: Any, x: tuple[Any, ...], kwargs: dict[str, Any], batch_dims: int | None
) -> tuple[UserMap, Tensor, list[Tensor], int]:
    """The map of explicit tensors, its packed state, its tensors, and the batch dimensions."""
    if isinstance(f, EquilibriumLayer):
        dims, f = f.batch_dims if batch_dims is None else batch_dims, f.f
    else:
        dims = 1 if batch_dims is None else batch_dims
    packing = Packing(z, integer("batch_dims", dims, 0), "z")
    state = packing.pack(z)
    user, _ = explicit(f, packing, state.detach(), x, kwargs)
    return user, state, user.tensors, dims
