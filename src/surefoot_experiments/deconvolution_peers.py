"""scikit-image's solvers, and the borders that solvers with a periodic model are given."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float64]
RICHARDSON_LUCY = {0.01: 20, 0.02: 12, 0.03: 10}
"""Iterations by noise level, chosen on training photographs with both borders: more only raise the noise."""
ROUNDS = 3
UNSUPERVISED_WIENER, LUCY = "scikit-image unsupervised Wiener", "scikit-image Richardson-Lucy"
PEERS = (UNSUPERVISED_WIENER, LUCY)


def peers() -> tuple[str, ...]:
    """Those of scikit-image, where it can be imported."""
    return PEERS if importlib.util.find_spec("skimage") else ()


def restored(name: str, observed: Image, kernel: Image, noise: float, periodic: bool) -> Image:
    """A picture (h, w) by the solver of this name; beyond an unknown border it is mirrored and tapered."""

    def solve(image: Image) -> Image:
        return _SOLVERS[name](image, kernel, noise)

    return solve(observed) if periodic else tapered(observed, kernel, solve)


def tapered(observed: Image, kernel: Image, solve: Callable[[Image], Image]) -> Image:
    """What a solver with a periodic model makes of a picture (h, w) with unknown borders.

    The picture is mirrored over as many pixels as the kernel (kh, kw) has, and there passes over into its own periodic blur,
    nearer the outside the more; the result is cut to the picture.
    """
    rows, columns = kernel.shape
    padded = np.pad(observed, ((rows, rows), (columns, columns)), mode="symmetric")
    depth = [np.minimum(np.arange(n), np.arange(n)[::-1]) / k for n, k in zip(padded.shape, kernel.shape, strict=True)]
    inside = np.minimum(1.0, np.minimum.outer(*depth))
    for _ in range(ROUNDS):
        padded = inside * padded + (1.0 - inside) * blurred(padded, kernel)
    return solve(padded)[rows:-rows, columns:-columns]


def blurred(image: Image, kernel: Image) -> Image:
    """The periodic convolution of an image (h, w) with a kernel centred at (kh//2, kw//2)."""
    return np.fft.irfft2(transfer(kernel, image.shape) * np.fft.rfft2(image), image.shape)


def transfer(kernel: Image, shape: tuple[int, ...]) -> NDArray[np.complex128]:
    """What a periodic blur multiplies the half-plane of ``numpy.fft.rfft2`` by, (h, w//2+1)."""
    placed = np.zeros(shape)
    placed[: kernel.shape[0], : kernel.shape[1]] = kernel
    return np.fft.rfft2(np.roll(placed, [-(n // 2) for n in kernel.shape], (0, 1)))


def _unsupervised_wiener(image: Image, kernel: Image, noise: float) -> Image:
    from skimage.restoration import unsupervised_wiener  # pyright: ignore[reportMissingImports]

    return unsupervised_wiener(image, kernel, clip=False, rng=0)[0]


def _richardson_lucy(image: Image, kernel: Image, noise: float) -> Image:
    """Its model has black beyond the borders: a periodic picture is continued by its own opposite side."""
    from skimage.restoration import richardson_lucy  # pyright: ignore[reportMissingImports]

    count = RICHARDSON_LUCY.get(noise, max(1, round(0.3 / noise)))
    margin = max(kernel.shape)
    wrapped = np.maximum(np.pad(image, margin, mode="wrap"), 1e-6)
    return richardson_lucy(wrapped, kernel, num_iter=count)[margin:-margin, margin:-margin]


_SOLVERS = {UNSUPERVISED_WIENER: _unsupervised_wiener, LUCY: _richardson_lucy}
