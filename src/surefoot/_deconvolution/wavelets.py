"""Orthonormal wavelet transforms of images of any size, as convolutions with the filters of PyWavelets."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from surefoot_check.deconvolution.operators import filter_defect, outwards

from .._core.validate import positive_integer, unknown
from .operators import Shape, _shape


class OrthonormalWavelet:
    """W with WᵀW = WWᵀ = I on images (..., H, W); coefficients have the same shape, the coarsest in the upper left corner.

    Each level filters the rows and the columns of the coarse part, periodically. Of an odd length the last sample is passed to
    the coarse part as it is, so that W stays orthonormal for every size.

    Args:
        shape: (H, W).
        name: an orthogonal wavelet of PyWavelets, such as ``"haar"`` or ``"db4"``.
        levels: how often the coarse part is split; at most log2 of the shorter side. By default as often as the coarse part keeps
            8 samples a side.
        dtype, device: of the images.

    Attributes:
        filters: (2, n), low-pass and high-pass.
        norm_bound: rigorous upper bound of ‖W‖ for the stored filters, which are orthonormal up to their own rounding.

    Raises:
        ValueError: an unknown wavelet or one that is not orthogonal, or too many levels.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> wavelet = dc.OrthonormalWavelet((16, 16), "haar", levels=2)
        >>> picture = torch.nn.functional.pad(torch.ones(8, 8).double(), (4, 4, 4, 4))
        >>> x = wavelet.analysis(picture)
        >>> torch.allclose(wavelet.synthesis(x), picture), int((x.abs() > 1e-9).sum())  # not 64
        (True, 4)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        name: str = "haar",
        levels: int | None = None,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = _shape("shape", shape)
        deepest = min(self.shape).bit_length() - 1
        self.name = name
        self.levels = max(1, deepest - 3) if levels is None else positive_integer("levels", levels)
        if self.levels > deepest:
            raise ValueError(f"levels is {levels}; an image of {self.shape} can be split at most {deepest} times")
        low = torch.tensor(_filter(name), dtype=dtype, device=device)
        high = low.flip(0) * (1 - 2 * (torch.arange(len(low), device=device) % 2)).to(low)
        self.filters = torch.stack([low, high])
        self._sizes = _sizes(self.shape, self.levels)
        # a level is one filter along the columns and one along the rows
        defect = filter_defect(self.filters.double().cpu().numpy())
        self.norm_bound = outwards((1 + defect) ** self.levels, 1)

    def __repr__(self) -> str:
        return f"OrthonormalWavelet({self.shape}, {self.name!r}, levels={self.levels})"

    @property
    def dtype(self) -> torch.dtype:
        """That of the images."""
        return self.filters.dtype

    @property
    def device(self) -> torch.device:
        """That of the images."""
        return self.filters.device

    def to(self, target: torch.dtype | torch.device | str) -> OrthonormalWavelet:
        """The same transform in another dtype or on another device."""
        made = self.filters.to(target)
        return OrthonormalWavelet(self.shape, self.name, self.levels, dtype=made.dtype, device=made.device)

    def analysis(self, z: Tensor) -> Tensor:
        """Wz."""
        x = z.clone()
        for rows, columns in self._sizes:
            part = self._split(x[..., :rows, :columns])
            x[..., :rows, :columns] = self._split(part.mT).mT
        return x

    def synthesis(self, x: Tensor) -> Tensor:
        """Wᵀx, the exact adjoint of ``analysis``."""
        z = x.clone()
        for rows, columns in reversed(self._sizes):
            part = self._merge(z[..., :rows, :columns].mT).mT
            z[..., :rows, :columns] = self._merge(part)
        return z

    def coarse(self, z: Tensor) -> Tensor:
        """The part of z in the coarse samples, without any detail: the projection Wᵀ_c W_c z."""
        x = self.analysis(z)
        rows, columns = ((size + 1) // 2 for size in self._sizes[-1])
        kept = torch.zeros_like(x)
        kept[..., :rows, :columns] = x[..., :rows, :columns]
        return self.synthesis(kept)

    def rounding(self) -> float:
        """Relative error, in the 2-norm, granted to one transform."""
        length = self.filters.shape[1]
        return 4.0 * torch.finfo(self.filters.dtype).eps * (length + 2) * self.levels

    def _split(self, v: Tensor) -> Tensor:
        """Filter and decimate the last dimension: coarse part first."""
        paired, length = v.shape[-1] // 2 * 2, self.filters.shape[1]
        if paired == 0:
            return v
        padded = _wrapped(v[..., :paired], 0, length - 2).reshape(-1, 1, v.shape[-2], paired + length - 2)
        bands = conv2d(padded, self.filters[:, None, None, :], stride=(1, 2))
        bands = bands.reshape(*v.shape[:-2], 2, v.shape[-2], paired // 2)
        return torch.cat([bands[..., 0, :, :], v[..., paired:], bands[..., 1, :, :]], dim=-1)

    def _merge(self, v: Tensor) -> Tensor:
        """The adjoint of ``_split``: even and odd samples are convolutions of the two bands with the even and odd taps."""
        half, reach = v.shape[-1] // 2, self.filters.shape[1] // 2
        if half == 0:
            return v
        bands = torch.stack([v[..., :half], v[..., v.shape[-1] - half :]], dim=-3)
        padded = _wrapped(bands, reach - 1, 0).reshape(-1, 2, v.shape[-2], half + reach - 1)
        taps = self.filters.reshape(2, reach, 2).permute(2, 0, 1).flip(-1)[:, :, None, :]
        parities = conv2d(padded, taps.contiguous())
        merged = parities.movedim(-3, -1).reshape(*v.shape[:-1], 2 * half)
        return torch.cat([merged, v[..., half : v.shape[-1] - half]], dim=-1)


def _wrapped(v: Tensor, before: int, after: int) -> Tensor:
    """Periodic continuation of the last dimension, of any length."""
    size = v.shape[-1]
    if max(before, after) <= size:  # by far the usual case, and slices are faster than an index
        return torch.cat([v[..., size - before :], v, v[..., :after]], dim=-1)
    return v[..., torch.arange(-before, size + after, device=v.device) % size]


def _filter(name: str) -> list[float]:
    """The low-pass filter."""
    from pywt import Wavelet, wavelist  # pyright: ignore[reportAttributeAccessIssue] - it has no annotations

    if name not in wavelist(kind="discrete"):
        raise unknown("wavelet", name, wavelist(kind="discrete"))
    wavelet = Wavelet(name)
    if not wavelet.orthogonal:
        raise ValueError(f"wavelet {name!r} is not orthogonal; choose haar, or of the families db, sym, coif")
    return list(wavelet.rec_lo)


def _sizes(shape: Shape, levels: int) -> list[Shape]:
    """The coarse part at each level, finest first."""
    sizes = [shape]
    for _ in range(levels - 1):
        rows, columns = sizes[-1]
        sizes.append(((rows + 1) // 2, (columns + 1) // 2))
    return sizes
