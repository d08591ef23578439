"""A trained network beside a prior, which decides alone where the network's proposal is refused."""

from __future__ import annotations

from torch import Tensor

from ..._core.status import RunStatus
from ..learned.network import LearnedDeconvolution
from ..learned.safeguard import restore_checked
from ..operators import Blur
from .restored import Prior, Restored


class LearnedPrior:
    """A network and the prior that a photograph is restored by without it; ``kept`` counts the network's channels.

    Where a proposal is refused the result is the prior's.
    """

    def __init__(self, net: LearnedDeconvolution, prior: Prior) -> None:
        self._net, self._prior = net, prior

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """See ``restored.Prior``."""
        found = self._prior.restore(observed, blur, noise)
        latent, cost, kept = found.latent, found.applications, 0
        if found.status is not RunStatus.DIVERGED:
            checked = restore_checked(self._net, observed, blur, noise, fallback=latent)
            latent, cost, kept = checked.latent, cost + checked.applications, int(checked.accepted.sum())
        # what the prior says of itself does not speak of what the network may take part in
        return Restored(latent, found.status, found.iterations, cost, kept=kept)
