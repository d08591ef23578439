"""Residual blocks."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Residual(nn.Module):
    """x + g(x), g the modules one after the other: a residual block that ``sf.certify`` takes inside of a ``nn.Sequential``.

    Args:
        modules: those of g, of which the last gives as many numbers as the first takes; any that ``sf.certify`` takes, residual
            blocks among them.

    Raises:
        TypeError: what is no module of torch.

    Example:
        >>> block = sf.nn.Residual(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
        >>> net = torch.nn.Sequential(block, torch.nn.Linear(3, 1)).double()
        >>> X = torch.randn(5, 3, dtype=torch.float64)
        >>> loss = sf.SquaredLoss(X, X.sum(1).sin())
        >>> run = sf.descend(net, loss, steps="gauss-newton")
        >>> run.status.value, sf.certify(net, loss).holds  # an exact fit exists, and gradient descent gets there
        ('converged', True)
    """

    __call__: Callable[..., Tensor]

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*modules)

    def forward(self, x: Tensor) -> Tensor:
        """x + g(x), of the shape of x.

        Raises:
            ValueError: g(x) has another shape.
        """
        in_place = any(getattr(module, "inplace", False) for module in self.inner.modules())
        g = self.inner(x.clone() if in_place else x)  # the x that is added must not change
        if g.shape != x.shape:
            raise ValueError(f"the modules of Residual make {tuple(g.shape)} of {tuple(x.shape)}; these must agree")
        return x + g
