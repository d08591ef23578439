"""The priors by name: what restores the tiles of a photograph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .restored import Prior


@dataclass(frozen=True)
class Settings:
    """What the caller of ``deblur`` chose for a prior; ``None`` for the prior's own default.

    Attributes:
        iterations: at most so many.
        tolerance: of the relative duality gap; the hyper-Laplacian prior has none.
        power: p of the hyper-Laplacian prior; the others have none.
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


def _total_variation(settings: Settings) -> Prior:
    from .total_variation_prior import TotalVariationPrior

    return TotalVariationPrior(settings.iterations, settings.tolerance)


def _hyper_laplacian(settings: Settings) -> Prior:
    from .hyper_laplacian_prior import HyperLaplacianPrior

    if settings.iterations is not None:
        raise ValueError(
            f"iterations is {settings.iterations}; the hyper-Laplacian prior has stages of its own: leave it out, or choose the "
            "prior 'wavelet'"
        )
    return HyperLaplacianPrior(settings.power)


AUTOMATIC = "auto"
POWER = 2.0 / 3.0
"""p of the hyper-Laplacian prior, unless it is chosen."""
PRIORS: dict[str, Callable[[Settings], Prior]] = {
    "hyper-laplacian": _hyper_laplacian,
    "tv": _total_variation,
    "wavelet": _wavelet,
}
