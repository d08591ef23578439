"""What restores the tiles of a photograph: the protocol, and the priors by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from .._core.certificate import Certificate
from .._core.status import RunStatus
from .operators import Blur


@dataclass(frozen=True)
class Restored:
    """A tile as it was restored, and what is known about that.

    Attributes:
        latent: (C, H, W) on the grid of latent images, border included.
        status: converged, max_iterations, or diverged: then ``latent`` is not to be used.
        iterations: of the solver.
        applications: products with B, Bᵀ or an inverse filter for each channel.
        certificate: the theorem that was evaluated; ``None`` for a heuristic.
        gap: largest relative duality gap of a channel, a guaranteed bound; ``None`` where there is none.
        change: V_t/V_0 after the last iteration (V: the certificate's gap).
        movement: root mean square change of the picture in the last iteration, in intensities.
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
    kept: int | None = None
    falls: bool | None = None


class Prior(Protocol):
    """Restores one tile after another."""

    @property
    def certified(self) -> bool:
        """Whether a theorem is evaluated for every tile."""
        ...

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """A tile's channels (C, h, w), float64, blurred by ``blur`` with white noise of standard deviation ``noise``."""
        ...


@dataclass(frozen=True)
class Settings:
    """What the caller of ``deblur`` chose for a prior; ``None`` for the prior's own default.

    Attributes:
        iterations: at most so many.
        tolerance: of the relative duality gap.
        power: p of |∇z|ᵖ.
    """

    iterations: int | None
    tolerance: float
    power: float


def prior(name: str, settings: Settings) -> Prior:
    """The prior of this name.

    Raises:
        ValueError: there is none, or settings out of its range.
    """
    if name not in PRIORS:
        raise ValueError(f"prior is {name!r}; pass one of {', '.join(map(repr, (AUTOMATIC, *PRIORS)))}")
    return PRIORS[name](settings)


def _wavelet(settings: Settings) -> Prior:
    from .wavelet_prior import WaveletPrior

    return WaveletPrior(settings.iterations, settings.tolerance)


def _hyper_laplacian(settings: Settings) -> Prior:
    from .hyper_laplacian_prior import HyperLaplacianPrior

    if settings.iterations is not None:
        raise ValueError(
            f"iterations is {settings.iterations}; the hyper-Laplacian prior has stages of its own: leave it out, or choose the "
            "prior 'wavelet'"
        )
    return HyperLaplacianPrior(settings.power)


AUTOMATIC = "auto"
PRIORS: dict[str, Callable[[Settings], Prior]] = {"hyper-laplacian": _hyper_laplacian, "wavelet": _wavelet}
