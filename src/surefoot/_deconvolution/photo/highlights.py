"""Highlights brighter than white, which a photograph holds as white: found, left out of the data term, and estimated.

A clipped pixel says only that the blurred scene is at least as bright there. Taken as it is, it asks for a scene that no blur can
have made, and stripes along the kernel answer. Left out, nothing is wrong any more, but nothing is known of the highlight. So it
is estimated by itself, from its surroundings and from what clipped pixels do say:

    min over z of ½ Σ_seen (Bz - y)² + ½ Σ_clipped max(0, y - Bz)² + c/2 ‖∇z‖²,

which is convex, by the accelerated gradient method in the metric of its majorizer (Beck and Teboulle 2009).

Lights in a dim scene, of which the estimate says far too little, are left out of the data term. Large parts that are a little
brighter than white, such as an overexposed sky, are too much to leave out: clipped samples y become max(y, Bz).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, max_pool2d

from ..masked import MaskedBlur
from ..operators import Blur, multiply
from ..problem import extended
from ..wiener import laplacian

SOLID = 4
"""Of a pixel and the 8 around it, how many must be clipped for it to count: noise above white is not solid, but the trace of a
small light is narrow."""
NEAR, HOLES = 3, 10.0
"""Pixels from a sample at the top, and steps below it, within which a sample counts as clipped. With one step, lights in a JPEG
are hardly found: that costs up to 10 dB; without compression it makes no difference above 0.2 dB."""
GROWN = 3
"""Pixels around a highlight that are left out with it: they see much of what nothing is known of. Of 0 to 8, 2 and 3 are best."""
ITERATIONS, RESTARTED = 20, 8
GRADIENT = 0.09
"""Standard deviation of the differences of neighbouring pixels, as for the Wiener filter."""
BRIGHTER, SHARE = 1.08, 0.3
"""Where at least that share of the clipped pixels is that much brighter than white, leaving them out gains 3 dB and more; where
it is less, as in an overexposed sky, or a page of white paper, leaving them out loses as much."""
RISEN = 2.0
"""Noise levels, root mean square over the clipped samples, by which they are at least to be brighter: less is white as it is."""
AROUND, MOST, NOISY = 5, 0.7, 0.08
"""White as such has noise, of which half lies below: where more than ``NOISY`` of the samples are not at the top, of those whose
square of ``AROUND`` pixels a side is at the top by more than ``MOST``, nothing was clipped but noise. Overexposed parts had at
most 0.03, white ones 0.12 and more if noise was above half a step."""


@dataclass(frozen=True)
class Highlights:
    """What is known of them.

    Attributes:
        observed: (C, h, w), the picture; clipped samples are raised to the estimate where none is left out.
        clipped: (C, h, w), bool, the samples that are.
        mask: (h, w), bool, True for pixels that are to be believed; everywhere, or not next to clipped samples.
        latent: (C, H, W), an estimate of the scene, of use where the mask is False.
    """

    observed: Tensor
    clipped: Tensor
    mask: Tensor
    latent: Tensor

    @property
    def left_out(self) -> bool:
        """Whether they are, rather than raised."""
        return not bool(self.mask.all())

    def seen_by(self, blur: Blur) -> Blur:
        """The blur of the pixels that are to be believed."""
        return MaskedBlur(blur, self.mask) if self.left_out else blur

    def shown(self, latent: Tensor, blur: Blur) -> Tensor:
        """A restored scene (C, H, W) with the estimate where the mask is False, as far as it is brighter."""
        found = latent.clone()
        under = blur.crop(found)  # a view
        under.copy_(torch.where(self.mask, under, under.maximum(blur.crop(self.latent))))
        return found


def clipped(photo: Tensor, step: float) -> Tensor:
    """Which samples (C, H, W) lie at the largest value of a photograph, or are part of a plateau of it, in solid parts.

    The white of a camera is not always that of its format, but always a value that many pixels share. A plateau of a JPEG has
    holes, up to ``HOLES`` of the photograph's steps deep.
    """
    top = photo >= photo.max() - step
    near = max_pool2d(top.to(torch.float32), 2 * NEAR + 1, stride=1, padding=NEAR) > 0.0
    top = near & (photo >= photo.max() - HOLES * step)
    count = 9.0 * avg_pool2d(top.to(torch.float32), 3, stride=1, padding=1)
    return top & (count > SOLID - 0.5)


def highlights(observed: Tensor, clipped: Tensor, blur: Blur, noise: float) -> Highlights | None:
    """The highlights of a blurred picture (C, h, w); ``None`` where clipped samples (C, h, w) are hardly brighter than they seem.

    Args:
        observed, clipped: the picture and which of its samples are clipped.
        blur: B.
        noise: standard deviation, intensities 0..1.
    """
    if not bool(clipped.any()):
        return None
    latent = _estimated(observed, clipped, blur, noise)
    estimated = blur.forward(latent)
    raised = torch.where(clipped, observed.maximum(estimated), observed)
    if float((raised - observed)[clipped].square().mean().sqrt()) < RISEN * noise:
        return None
    brighter = estimated[clipped] > BRIGHTER * observed[clipped]
    if float(brighter.double().mean()) >= SHARE:
        return Highlights(observed, clipped, ~beside(clipped), latent)
    return None if _noisy_white(observed) else Highlights(raised, clipped, torch.ones_like(clipped[0]), latent)


def _noisy_white(photo: Tensor) -> bool:
    """Whether the largest value of a picture (C, h, w) is that of white with noise; also JPEG makes such holes in highlights."""
    top = photo == photo.max()
    white = avg_pool2d(top.to(torch.float32), AROUND, stride=1, padding=AROUND // 2) > MOST
    return float((~top & white).sum()) > NOISY * float(white.sum())


def beside(clipped: Tensor) -> Tensor:
    """The pixels (h, w) that have a clipped sample (C, h, w), or lie next to one."""
    size = 2 * GROWN + 1
    return max_pool2d(clipped.any(0)[None].to(torch.float32), size, stride=1, padding=GROWN)[0] > 0.0


def _estimated(y: Tensor, clipped: Tensor, blur: Blur, noise: float) -> Tensor:
    """The minimiser, nearly: (C, H, W)."""
    smoothing = (noise / GRADIENT) ** 2 * laplacian(blur.domain, y)
    # both vanish where there is nothing to see: the floor only keeps 0/0 away
    inverse = 1.0 / (blur.majorizer + smoothing).clamp(min=torch.finfo(y.dtype).tiny)
    z = ahead = extended(y, blur)
    momentum = 1.0
    for count in range(1, ITERATIONS + 1):
        seen = blur.forward(ahead)
        told = torch.where(clipped, y.maximum(seen), y)
        slope = blur.adjoint(seen - told) + multiply(smoothing, ahead)
        before, z = z, ahead - multiply(inverse, slope)
        after = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
        ahead, momentum = z + (momentum - 1.0) / after * (z - before), after
        if count % RESTARTED == 0:
            ahead, momentum = z, 1.0
    return z
