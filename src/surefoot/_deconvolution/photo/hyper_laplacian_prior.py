"""The hyper-Laplacian prior on the tiles of a photograph."""

from __future__ import annotations

import torch
from torch import Tensor

from ..half_quadratic import HyperLaplacian
from ..operators import Blur
from .restored import Restored


class HyperLaplacianPrior:
    """min ½‖Bz - y‖² + Σ_j λ_j ‖d_j ⊗ z‖ₚᵖ (``half_quadratic``), in float32: a heuristic, whose inner problems' values fall."""

    def __init__(self, power: float) -> None:
        self._solver = HyperLaplacian(power)

    def restore(self, observed: Tensor, blur: Blur, noise: float) -> Restored:
        """See ``restored.Prior``."""
        solved = self._solver.solve(observed.float(), blur.to(torch.float32), noise)
        latent = solved.latent.double()
        return Restored(latent, solved.status, solved.iterations, solved.applications, falls=solved.audit())
