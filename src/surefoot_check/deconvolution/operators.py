"""Convolutions and wavelet transforms of images as matrix products, with bounds of their rounding errors.

No Fourier transform is trusted. A convolution is a product of windows of the image with a banded matrix that holds the
kernel, and so is a step of a wavelet transform; a ``Level`` multiplies them and bounds the error. Everything else is single
elementwise operations, which IEEE 754 rounds by at most u times the result, or 2^-1075 where a product underflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..rigor.approximation import Approximation
from ..rigor.bounds import ETA, UNIT_ROUNDOFF, Array, Level, down, frobenius_upper, up
from ..rigor.intervals import Interval, around, joined, product_of, squared, sum_of, sum_up

ROWS, COLUMNS, INNER = 256, 64, 4096
"""Rows and columns of a block of a product, and terms of its sums at most: what is fast, and needs little memory."""
Shape = tuple[int, int]
Step = Callable[[Array], tuple[Array, float]]
"""Maps the rows of a matrix; returns the result and a bound of its error."""


def shrunk(v: Approximation, penalty: float, step: float) -> Approximation:
    """soft(·, penalty·step), which moves no two points apart.

    The threshold, rounded by at most u times itself or ETA, moves each entry by no more than that.
    """
    threshold = penalty * step
    value = np.sign(v.value) * np.maximum(np.abs(v.value) - threshold, 0.0)
    moved = up(up(UNIT_ROUNDOFF * threshold + ETA, 2) * up(math.sqrt(value.size)))
    return Approximation.rounded(value, up(v.error + moved))


class Convolution:
    """K, the circular convolution on a grid with a kernel that is not negative and no larger, centred at (rows//2, columns//2).

    (Kz)(p) = Σ_a k(a) z(p - a + centre). Attributes: norm, an upper bound of ‖K‖, the sum of the kernel (Young).
    """

    def __init__(self, kernel: Array, level: Level) -> None:
        self._level = level
        self._centre = [size // 2 for size in kernel.shape]
        self._kernel = kernel
        self.norm = sum_up(kernel.ravel().tolist())

    def __call__(self, z: Approximation) -> Approximation:
        """Kz for z (H, W)."""
        before = [size - 1 - middle for size, middle in zip(self._kernel.shape, self._centre, strict=True)]
        return self._correlated(z, self._kernel[::-1, ::-1], before, self._centre)

    def adjoint(self, v: Approximation) -> Approximation:
        """Kᵀv for v (H, W)."""
        after = [size - 1 - middle for size, middle in zip(self._kernel.shape, self._centre, strict=True)]
        return self._correlated(v, self._kernel, self._centre, after)

    def _correlated(
        self, z: Approximation, kernel: Array, before: Sequence[int], after: Sequence[int]
    ) -> Approximation:
        """Σ_ab kernel[a, b] z(p + (a, b) - before), block by block."""
        padded = np.pad(z.value, list(zip(before, after, strict=True)), mode="wrap")
        rows, columns = z.value.shape
        result, errors = np.empty_like(z.value), []
        for left, right in _spans(columns, COLUMNS):
            width = right - left + kernel.shape[1] - 1
            bands = [
                (start, np.concatenate([_toeplitz(row, right - left) for row in kernel[start:stop]]))
                for start, stop in _spans(len(kernel), max(1, INNER // width))
            ]
            for top, bottom in _spans(rows, ROWS):
                block, error = np.zeros((bottom - top, right - left)), 0.0
                for start, band in bands:
                    taps = range(start, start + len(band) // width)
                    windows = np.concatenate([padded[top + a : bottom + a, left : left + width] for a in taps], axis=1)
                    product, rounding = self._level.product(windows, band)
                    block = block + product
                    error = up(error + rounding + up(UNIT_ROUNDOFF * frobenius_upper(block)), 2)
                result[top:bottom, left:right] = block
                errors.append(error)
        return Approximation(result, up(up(self.norm * z.error) + joined(errors)))


@dataclass(frozen=True)
class Blur:
    """B of one image, and its majorizer M = Σ_j c_j K_jᵀK_j; without ``weights`` there is one kernel, and c = 1.

    ``mask`` (h, w), of 0 and 1, is the last factor of B where some pixels were not seen: it only makes BᵀB and norms smaller.
    """

    kernels: list[Array]
    weights: Array | None
    scales: Array
    periodic: bool
    domain: Shape
    level: Level
    mask: Array | None = None

    @cached_property
    def _convolutions(self) -> list[Convolution]:
        return [Convolution(kernel, self.level) for kernel in self.kernels]

    @cached_property
    def _window(self) -> tuple[slice, slice]:
        """Where a convolution does not wrap around: what is observed."""
        if self.periodic:
            return slice(None), slice(None)
        rows, columns = (
            slice(size - 1 - size // 2, total - size // 2)
            for size, total in zip(self.kernels[0].shape, self.domain, strict=True)
        )
        return rows, columns

    @cached_property
    def norm(self) -> float:
        """Upper bound of ‖B‖: the sum of the kernel; where it varies, ‖B‖² is at most the product of the largest row and column
        sums (Schur), as no entry is negative."""
        sums = [convolution.norm for convolution in self._convolutions]
        if self.weights is None:
            return sums[0]
        terms = len(sums) + 1  # of each row: products, any of which may underflow, and their sum
        rows = up(float((self.weights * np.reshape(sums, (-1, 1, 1))).sum(axis=0).max()) + terms * ETA, terms)
        ones = Approximation(np.ones(self.weights.shape[1:]))
        columns = self._spread(ones)
        return up(math.sqrt(up(rows * up(float(columns.value.max()) + columns.error))))

    @cached_property
    def largest(self) -> float:
        """Upper bound of M: Σ_j c_j (Σk_j)²."""
        return sum_up(up(c * up(k.norm**2)) for c, k in zip(self.scales.tolist(), self._convolutions, strict=True))

    @cached_property
    def gain(self) -> Interval:
        """Enclosure of ‖B1‖/‖1‖."""
        ones = Approximation(np.ones(self.domain))
        seen = self.observed(self.convolved(ones))
        low, high = around(seen.bounds(), seen.error)
        root = math.sqrt(ones.value.size)
        return max(0.0, down(low / up(root))), up(high / down(root))

    def convolved(self, z: Approximation) -> list[Approximation]:
        """K_j z for all j, on the latent grid."""
        return [convolution(z) for convolution in self._convolutions]

    def observed(self, layers: list[Approximation]) -> Approximation:
        """Bz of the K_j z."""
        parts = [Approximation(v.value[self._window], v.error) for v in layers]
        if self.weights is None:
            return self._seen(parts[0])
        return self._seen(_added([part * Approximation(w) for part, w in zip(parts, self.weights, strict=True)]))

    def adjoint(self, y: Approximation) -> Approximation:
        """Bᵀy."""
        return self._spread(self._seen(y))

    def _seen(self, y: Approximation) -> Approximation:
        """The mask times y: products with 0 and 1 are exact, and move no two points apart."""
        return y if self.mask is None else Approximation(y.value * self.mask, y.error)

    def _spread(self, y: Approximation) -> Approximation:
        """Bᵀy as if every pixel had been seen."""
        parts = [y] if self.weights is None else [y * Approximation(w) for w in self.weights]
        images = []
        for part, convolution in zip(parts, self._convolutions, strict=True):
            grid = np.zeros(self.domain)
            grid[self._window] = part.value
            images.append(convolution.adjoint(Approximation(grid, part.error)))
        return _added(images)

    def majorized(self, layers: list[Approximation]) -> Approximation:
        """Mz of the K_j z."""
        back = [convolution.adjoint(v) for convolution, v in zip(self._convolutions, layers, strict=True)]
        if self.weights is None:
            return back[0]
        return _added([v.times(c) for v, c in zip(back, self.scales.tolist(), strict=True)])

    def hidden(self, layers: list[Approximation]) -> Interval:
        """Enclosure of ⟨z, (M - BᵀB)z⟩ = Σ_j c_j‖v_j‖² - ‖CΣ_j w_j⊙v_j‖² for the arrays v_j = K_j z as they are."""
        values = [v.value.copy() for v in layers]
        if self.weights is None:  # what the crop and the mask remove
            values[0][self._window] *= 0.0 if self.mask is None else 1.0 - self.mask
            return squared(*Approximation(values[0]).bounds())
        exact = [Approximation(v) for v in values]
        whole = sum_of(
            [product_of(squared(*v.bounds()), (c, c)) for v, c in zip(exact, self.scales.tolist(), strict=True)]
        )
        seen = self.observed(exact)
        part = squared(*around(seen.bounds(), seen.error))
        return max(0.0, down(whole[0] - part[1])), max(0.0, up(whole[1] - part[0]))

    def moved(self, layers: list[Approximation]) -> float:
        """Upper bound of how far the errors of the v_j = K_j z take Σ_j c_j‖v_j‖², under the root."""
        return joined([up(math.sqrt(c) * v.error, 2) for c, v in zip(self.scales.tolist(), layers, strict=True)])

    def solved(self, slope: Array, ridge: float | Array) -> Array:
        """A witness of -(M + ridge)⁻¹ slope, by numpy's FFT; the ridge is a number or a multiplier (H, W//2+1)."""
        spectrum = np.zeros((self.domain[0], self.domain[1] // 2 + 1))
        for kernel, c in zip(self.kernels, self.scales.tolist(), strict=True):
            transfer = np.fft.rfft2(kernel, s=self.domain)  # its phase, the centre of the kernel, does not matter
            spectrum += c * (transfer.real**2 + transfer.imag**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.fft.irfft2(np.fft.rfft2(slope) / (-spectrum - ridge), s=self.domain)


class Wavelet:
    """W: each level filters the rows and the columns of the coarse part periodically; the last of an odd length stays as it is.

    Args:
        filters: (2, n), n even: low-pass and high-pass.
        shape: (H, W) of the images, at least 2^levels a side.

    Attributes:
        norm: (lower, upper) bounds of ‖W‖, from the inner products of the filters, exactly.
    """

    def __init__(self, filters: Array, shape: Shape, levels: int, level: Level) -> None:
        self._filters, self._level = filters, level
        self._sizes = [shape]
        for _ in range(levels - 1):
            rows, columns = self._sizes[-1]
            self._sizes.append(((rows + 1) // 2, (columns + 1) // 2))
        defect = filter_defect(filters)
        self.norm = outwards(max(Fraction(0), 1 - defect) ** levels, -1), outwards((1 + defect) ** levels, 1)
        self._growth = outwards(1 + defect, 1)  # of an error, by filtering the rows or the columns: at most its root

    def analysis(self, z: Approximation) -> Approximation:
        """Wz for z (H, W)."""
        image = z
        for size in self._sizes:
            image = self._filtered(self._filtered(image, size, self._split), size, self._split, along_columns=True)
        return image

    def synthesis(self, x: Approximation) -> Approximation:
        """Wᵀx for x (H, W)."""
        image = x
        for size in reversed(self._sizes):
            image = self._filtered(self._filtered(image, size, self._merge, along_columns=True), size, self._merge)
        return image

    def _filtered(self, x: Approximation, size: Shape, step: Step, along_columns: bool = False) -> Approximation:
        """One filtering step of the part of that size in the upper left corner."""
        value = x.value.copy()
        part = value[: size[0], : size[1]]
        rows = np.ascontiguousarray(part.T) if along_columns else part.copy()
        errors = []
        for top, bottom in _spans(len(rows), ROWS):
            block, rounding = step(rows[top:bottom])
            rows[top:bottom] = block
            errors.append(rounding)
        part[:] = rows.T if along_columns else rows
        return Approximation(value, up(up(self._growth * x.error) + joined(errors)))

    def _split(self, v: Array) -> tuple[Array, float]:
        """The bands of each row: (low-pass, the odd sample, high-pass)."""
        half, length = v.shape[1] // 2, self._filters.shape[1]
        result, errors = v.copy(), []
        if half == 0:
            return result, 0.0
        result[:, half : v.shape[1] - half] = v[:, 2 * half :]
        padded = v[:, np.arange(2 * half + length - 2) % (2 * half)]
        for start, stop in _spans(half, COLUMNS // 2):
            count = stop - start
            band = np.zeros((2 * count + length - 2, 2 * count))
            for i in range(count):
                band[2 * i : 2 * i + length, [i, count + i]] = self._filters.T
            windows = np.ascontiguousarray(padded[:, 2 * start : 2 * stop + length - 2])
            product, rounding = self._level.product(windows, band)
            result[:, start:stop] = product[:, :count]
            result[:, v.shape[1] - half + start : v.shape[1] - half + stop] = product[:, count:]
            errors.append(rounding)
        return result, joined(errors)

    def _merge(self, v: Array) -> tuple[Array, float]:
        """The adjoint of ``_split``."""
        half, reach = v.shape[1] // 2, self._filters.shape[1] // 2
        result, errors = v.copy(), []
        if half == 0:
            return result, 0.0
        result[:, 2 * half :] = v[:, half : v.shape[1] - half]
        wrapped = np.arange(1 - reach, half) % half
        low, high = v[:, wrapped], v[:, v.shape[1] - half + wrapped]
        for start, stop in _spans(half, COLUMNS // 2):
            count, width = stop - start, stop - start + reach - 1
            band = np.zeros((2 * width, 2 * count))
            for i in range(count):
                # taps 2s and 2s+1 of either filter act on the sample s places before
                for which in (0, 1):
                    taps = self._filters[which].reshape(reach, 2)[::-1]
                    band[which * width + i : which * width + i + reach, 2 * i : 2 * i + 2] = taps
            windows = np.concatenate([low[:, start : stop + reach - 1], high[:, start : stop + reach - 1]], axis=1)
            product, rounding = self._level.product(windows, band)
            result[:, 2 * start : 2 * stop] = product
            errors.append(rounding)
        return result, joined(errors)


def filter_defect(filters: Array) -> Fraction:
    """Bound of ‖FFᵀ - I‖ for F that filters a row, of any length, by both filters: the largest row sum of the filters' inner
    products at even shifts, less the identity. Exact: floats are integers times 2^-1074."""
    length, unit = filters.shape[1], Fraction(1, 4**1074)
    low, high = ([int(Fraction(tap) * 2**1074) for tap in taps] for taps in filters.tolist())
    worst = Fraction(0)
    for row in (low, high):
        total = Fraction(0)
        for other in (low, high):
            for shift in range(2 - length, length, 2):
                first, last = max(0, -shift), min(length, length - shift)
                product = sum(a * b for a, b in zip(row[first:last], other[first + shift :], strict=False))
                total += abs(product * unit - (row is other and shift == 0))
        worst = max(worst, total)
    return worst


def outwards(x: Fraction, direction: int) -> float:
    """A float next to x, not below it for direction 1 and not above it for -1."""
    return math.nextafter(float(x), direction * math.inf)


def _spans(size: int, step: int) -> Iterator[tuple[int, int]]:
    """0..size in parts of at most ``step``."""
    for start in range(0, size, step):
        yield start, min(start + step, size)


def _toeplitz(taps: Array, count: int) -> Array:
    """T (count + taps - 1, count) with (vT)_j = Σ_b taps_b v_{j+b}."""
    band = np.zeros((count + len(taps) - 1, count))
    for j in range(count):
        band[j : j + len(taps), j] = taps
    return band


def _added(parts: Sequence[Approximation]) -> Approximation:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
