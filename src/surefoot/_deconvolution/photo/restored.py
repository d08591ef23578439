"""The protocol of what restores the tiles of a photograph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..._core.certificate import Certificate
from ..._core.status import RunStatus
from ..operators import Blur


@dataclass(frozen=True)
class Restored:
    """A tile as it was restored, and what is known about that.

    Attributes:
        latent: (C, H, W) on the grid of latent images, border included.
        status: converged, settled, max_iterations, or diverged: then ``latent`` is not to be used.
        iterations: of the solver.
        applications: products with B, Bᵀ or an inverse filter for each channel.
        certificate: the theorem that was evaluated; ``None`` for a heuristic.
        gap: largest relative duality gap of a channel, a guaranteed bound; ``None`` where there is none.
        change: V_t/V_0 after the last iteration (V: the certificate's gap).
        movement: root mean square change of the picture in the last iteration, in intensities.
        left: the change still to come, projected from those measured (``Settling``).
        kept: how many channels are a network's proposals; ``None`` without a network.
        falls: whether the value of every inner problem fell at each of its steps; ``None`` where there are none.
    """

    latent: Tensor
    status: RunStatus
    iterations: int
    applications: int
    certificate: Certificate | None = None
    gap: float | None = None
    change: float | None = None
    movement: float | None = None
    left: float | None = None
    kept: int | None = None
    falls: bool | None = None


class Prior(Protocol):
    """Restores one tile after another."""

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """A tile's channels (C, h, w), float64, blurred by ``blur`` with white noise of standard deviation ``noise``."""
        ...
