"""Pixels that are not to be believed: clipped highlights, dead pixels, gaps. They are left out of the data term."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from .operators import Blur, held


class MaskedBlur(Blur):
    """m ⊙ Bz: a blur of which only some pixels were seen.

    It is linear, and with P the projection on what was seen BᵀPB ⪯ BᵀB ⪯ M: the majorizer of B is one of this blur, and what
    holds of every blur holds of it. The observed image that belongs to it is 0 where nothing was seen (``seen``).

    Args:
        blur: B; not itself masked.
        mask: (h, w), bool, as the observed images: True where a pixel is to be believed.

    Attributes:
        blur: B.
        mask: (h, w), bool.

    Raises:
        TypeError: a mask that is not bool, or a blur that is masked already.
        ValueError: a mask of another shape than observed images.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> whole = dc.PeriodicBlur(torch.full((3, 3), 1 / 9).double(), (16, 16))
        >>> observed = whole.forward(1.5 * sharp).clamp(max=1.0)
        >>> blur = dc.MaskedBlur(whole, observed < 1.0)  # not what is clipped
        >>> problem = dc.TotalVariationProblem(blur.seen(observed), blur, penalty=1e-3)
        >>> dc.TVADMM().solve(problem).image.max().item() > 1.1
        True
    """

    def __init__(self, blur: Blur, mask: Any) -> None:
        if isinstance(blur, MaskedBlur):
            raise TypeError("blur is masked already; pass one mask, that of the pixels that both admit")
        tensor = held("mask", torch.as_tensor(mask))
        if tensor.dtype != torch.bool:
            raise TypeError(
                f"mask has dtype {str(tensor.dtype).removeprefix('torch.')}; pass bool, for example mask > 0"
            )
        if tuple(tensor.shape) != blur.range:
            raise ValueError(
                f"mask has shape {tuple(tensor.shape)}; this blur makes images ({blur.range[0]}, {blur.range[1]})"
            )
        self.blur, self.mask = blur, tensor.to(blur.kernel.device)
        self.domain, self.range, self.kernel = blur.domain, blur.range, blur.kernel
        self.majorizer, self.norm_bound = blur.majorizer, blur.norm_bound

    def from_spectrum(self, transform: Tensor) -> Tensor:
        return self.seen(self.blur.from_spectrum(transform))

    def to_spectrum(self, y: Tensor) -> Tensor:
        return self.blur.to_spectrum(self.seen(y))

    def crop(self, z: Tensor) -> Tensor:
        return self.blur.crop(z)

    def seen(self, y: Tensor) -> Tensor:
        return torch.where(self.mask, y, 0.0)

    def filled(self, y: Tensor) -> Tensor:
        return filled(y, self.mask)

    def to(self, target: torch.dtype | torch.device | str) -> MaskedBlur:
        return MaskedBlur(self.blur.to(target), self.mask)


def filled(image: Tensor, mask: Tensor) -> Tensor:
    """Images (..., h, w) whose pixels outside the mask (h, w) are means of the nearest ones inside; zeros where it is empty.

    The means are over squares that grow until they reach the mask. Pixels outside may hold anything, NaN too.
    """
    if bool(mask.all()):
        return image
    found = torch.where(mask, image, 0.0).reshape(-1, 1, *mask.shape)
    known = mask.to(image)[None, None]
    reach = 1
    while bool((known == 0.0).any()) and reach < 2 * max(mask.shape):
        size = 2 * reach + 1
        share = avg_pool2d(known, size, stride=1, padding=reach, count_include_pad=True)
        near = avg_pool2d(found * known, size, stride=1, padding=reach, count_include_pad=True)
        fresh = (known == 0.0) & (share > 0.5 / size**2)
        found = torch.where(fresh, near / share.clamp(min=1e-12), found)
        known = torch.where(fresh, 1.0, known)
        reach *= 2
    return found.reshape(image.shape)
