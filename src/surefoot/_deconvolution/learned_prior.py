"""A trained network beside a prior, which decides alone where the network's proposal is refused."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from .._core.status import RunStatus
from .network import LearnedDeconvolution
from .operators import Blur
from .priors import Prior, Restored
from .safeguard import restore_checked


class LearnedPrior:
    """A network and the prior that a photograph is restored by without it; ``kept`` counts the network's channels.

    Where a proposal is refused the result is the prior's.
    """

    certified = False

    def __init__(self, net: LearnedDeconvolution, prior: Prior) -> None:
        self._net, self._prior = net, prior

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """See ``priors.Prior``."""
        found = self._prior.restore(observed, blur, noise)
        if found.status is RunStatus.DIVERGED:
            return replace(found, kept=0)
        # orthonormal mixtures of C colours reach √C; the network was trained on intensities of 0..1
        unit = math.sqrt(len(observed))
        checked = restore_checked(self._net, observed / unit, blur, noise / unit, fallback=found.latent / unit)
        kept = int(checked.accepted.sum())
        if not kept:
            return replace(found, applications=found.applications + checked.applications, kept=0)
        # no certificate or gap speaks of what the network took part in
        return Restored(
            unit * checked.latent,
            found.status,
            found.iterations,
            found.applications + checked.applications,
            kept=kept,
        )
