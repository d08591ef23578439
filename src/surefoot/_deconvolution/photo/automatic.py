"""Which prior restores photographs best."""

from __future__ import annotations

STRONG = 0.06
"""Noise above which total variation is the better prior: by 0.1 dB at 0.1, by more in stronger noise."""


def automatic_prior(noise: float) -> str:
    """The name of the prior with the best PSNR for white noise of this standard deviation, intensities of 0..1.

    ``benchmarks/deblur_priors.py --data DIR`` prints the table behind it, of training photographs behind an unknown border. Up to
    a noise of 0.05 the hyper-Laplacian prior is best, or within 0.1 dB of total variation at a fraction of its time; its power
    matters little there. Wavelets are 1 to 2 dB behind throughout.
    """
    return "hyper-laplacian" if noise <= STRONG else "tv"
