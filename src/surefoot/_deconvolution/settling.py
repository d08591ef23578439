"""When a picture has settled: its measured change, and what is projected to be left."""

from __future__ import annotations

import math

from torch import Tensor

from .operators import Blur

GREY = 1.0 / 255.0
LEFT = 0.5 * GREY
"""Change still to come, root mean square, from which a picture has settled."""
FIRST, GROWTH = 4, math.sqrt(2.0)
"""The first iteration whose picture is compared, and how much later the next one is: changes from one iteration to the next are
tiny long before a picture has settled, as those of first-order methods fall like a power of the iteration."""
SLOWEST = 0.9
"""Ratio of a change to the one before beyond which nothing is projected from it."""
INNER = 3
"""Times the kernel: pictures at least that large are judged without their rim, whose blur saw pixels that nobody knows."""


class Settling:
    """Judges the pictures of a solver: called with the iteration and the latent picture, it says whether that has settled.

    The changes d between the pictures of iterations 4, 6, 8, 11, 16, … shrink by a factor r each time, so that d·r/(1 - r) is
    still to come. That is an extrapolation, no bound: nothing is guaranteed by it.
    """

    def __init__(self, blur: Blur) -> None:
        self._blur = blur
        self._next = FIRST
        self._last: Tensor | None = None
        self._changes: list[float] = []

    def __call__(self, iteration: int, latent: Tensor) -> bool:
        """Take the picture of an iteration, one after the other, and say whether no more than ``LEFT`` is left."""
        if iteration < self._next:
            return False
        self._next = max(iteration + 1, round(GROWTH * iteration))
        picture = self._inside(self._blur.crop(latent))
        if self._last is not None:
            self._changes.append(float((picture - self._last).square().mean().sqrt()))
        self._last = picture
        return self.left is not None and self.left <= LEFT

    @property
    def left(self) -> float | None:
        """Projected root mean square change to the end, in intensities; ``None`` before three changes are known."""
        if len(self._changes) < 3:
            return None
        before, _, now = self._changes[-3:]
        ratio = min(math.sqrt(now / before), SLOWEST) if before > 0.0 else 0.0
        return now * ratio / (1.0 - ratio)

    def _inside(self, picture: Tensor) -> Tensor:
        """Without the rim, in a copy."""
        kernel, shape = self._blur.kernel.shape[-2:], picture.shape[-2:]
        if any(size < INNER * reach for size, reach in zip(shape, kernel, strict=True)):
            return picture.clone()
        rows, columns = (slice(reach // 2, size - reach // 2) for size, reach in zip(shape, kernel, strict=True))
        return picture[..., rows, columns].clone()
