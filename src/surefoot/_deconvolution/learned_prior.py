"""A trained network beside a prior, which decides alone where the network's proposal is refused."""

from __future__ import annotations

import math

import torch
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
        latent, cost, kept = found.latent, found.applications, 0
        if found.status is not RunStatus.DIVERGED:
            # orthonormal mixtures of C colours reach √C; the network was trained on intensities of 0..1
            unit = math.sqrt(len(observed))
            checked = restore_checked(self._net, observed / unit, blur, noise / unit, fallback=latent / unit)
            # what was refused is the prior's to the last bit
            latent = torch.where(checked.accepted[:, None, None], unit * checked.latent, latent)
            cost, kept = cost + checked.applications, int(checked.accepted.sum())
        # what the prior says of itself does not speak of what the network may take part in
        return Restored(latent, found.status, found.iterations, cost, kept=kept)
