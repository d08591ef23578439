"""A user's map made a contraction in its state, with a proved factor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .._core.validate import integer, kind_of, positive
from .lipschitz.bound import lipschitz_bound

_DOWN = 1.0 - 2.0**-22  # the quotient is rounded, and s to float32 where z is coarser than float64


class Contractive(nn.Module):
    """f(s z, *x) with s = min(1, factor/L), L the proved Lipschitz constant of f in z: what ``contractive`` returns.

    Attributes:
        module: f; its parameters are trained as they are, and the gradient goes through s as well.
        contraction: the factor, a Lipschitz constant of this map in the Euclidean norm of a sample, in real arithmetic.
        batch_dims: how many leading dimensions index samples.
    """

    def __init__(self, module: nn.Module, contraction: float, batch_dims: int) -> None:
        super().__init__()
        self.module, self.contraction, self.batch_dims = module, contraction, batch_dims

    def extra_repr(self) -> str:
        """The settings, for ``print``."""
        return f"contraction={self.contraction}, batch_dims={self.batch_dims}"

    def scale(self, z: Any, *x: Any, **kwargs: Any) -> Tensor:
        """s () float64, differentiable in the parameters; z is a state of the shape wanted, whose values do not matter.

        Raises:
            NotCertifiable: an operation of f has no constant; see ``lipschitz_bound``.
        """
        bound = lipschitz_bound(self.module, z, *x, batch_dims=self.batch_dims, **kwargs)
        largest = self.contraction * _DOWN
        return largest / bound.clamp(min=largest)

    def with_scale(self, z: Any, x: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for all evaluations of a solve: with s, computed here unless it was passed."""
        return {**kwargs} if "state_scale" in kwargs else {**kwargs, "state_scale": self.scale(z, *x, **kwargs)}

    def forward(self, z: Any, *x: Any, state_scale: Tensor | None = None, **kwargs: Any) -> Any:
        """f(s z, *x, **kwargs).

        Args:
            state_scale: s, if it was computed before for the same parameters, as ``EquilibriumLayer`` does once a solve unless
                it is passed: ``layer(x, state_scale=s)``, where parameters no longer change.
        """
        scale = self.scale(z, *x, **kwargs) if state_scale is None else state_scale
        return self.module(pytree.tree_map_only(Tensor, lambda leaf: leaf * scale, z), *x, **kwargs)


def contractive(module: nn.Module, contraction: float = 0.9, *, batch_dims: int = 1) -> Contractive:
    """A user's map f(z, *x) as a contraction in z: ‖f̃(z, x) − f̃(z', x)‖ ≤ contraction · ‖z − z'‖ for each sample, proved.

    f̃(z, x) = f(s z, x) with s = min(1, contraction/L), where L is ``lipschitz_bound`` of f. Any f whose L is at most the
    contraction is unchanged, and of a cell φ(W z + U x + b) it is W that is scaled, to the norm contraction over the slope of φ.
    The parameters are free: an optimiser may do with them what it likes, s follows them and has a gradient.

    ``EquilibriumLayer`` takes the factor from it, so that its error bounds are guaranteed.

    The constant is that of the map in real arithmetic, with the weights as they are stored; the rounding of an evaluation is the
    solver's ω. It is proved from the operations that f uses, once a solve: docs/equilibrium.md has them, and what is refused.

    Args:
        module: f; a module ``f(z, *x, **kwargs)``.
        contraction: the factor, between 0 and 1.
        batch_dims: how many leading dimensions of z index samples, as of the layer.

    Raises:
        TypeError, ValueError: an argument of the wrong kind or out of range. What f does is looked at when it is first evaluated.

    Example:
        >>> class Cell(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.W = torch.nn.Linear(3, 3)
        ...     def forward(self, z, x):
        ...         return torch.tanh(5.0 * self.W(z) + x)
        >>> layer = sf.nn.EquilibriumLayer(sf.nn.contractive(Cell(), 0.9))
        >>> z = layer(torch.randn(4, 3))
        >>> layer.info.contraction, layer.info.guaranteed
        (0.9, True)
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is {kind_of(module)}; pass a module f(z, *x), whose parameters are known")
    if positive("contraction", contraction) >= 1.0:
        raise ValueError(f"contraction is {contraction!r}; a contraction has a factor below 1, such as 0.9")
    return Contractive(module, float(contraction), integer("batch_dims", batch_dims, 0))
