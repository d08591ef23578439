"""What the problems of deconvolution share: an observed picture and its blur, read and bounded, and the iterates of a solver.

The weights of a run are an iterate (z, x, μ) and the parameters of the solver. The *gap* at an iterate is V, the squared change
by one exact iteration from there, in the norm of the method: a function of what is stored. It is enclosed without a trusted
Fourier transform (docs/theorems/deconvolution.md, sections 4 and 7): numpy's FFT supplies a witness of the z-step, and its
residual, formed by direct convolutions, bounds the error.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from ..arrays import FormatError, numbers
from ..problems import LARGEST, Problem
from ..rigor.approximation import Approximation
from ..rigor.bounds import Array, Level, frobenius_upper, up
from ..rigor.intervals import Interval, sum_of, sum_up
from .operators import COLUMNS, ROWS, Blur, Shape

ITERATE = ("z", "x", "multiplier")
GREATEST_TAP = 2.0
"""Of filters, kernels and weights, whose sums and norms are about 1."""
PARAMETERS = (1e-30, 1e30)
"""Admissible parameters of solvers, and penalties: nothing overflows."""
MAX_CONVOLUTIONS = 4096
MAX_PIXELS = 1 << 25
MAX_PRODUCTS = 1 << 38
"""Limits on untrusted work: convolutions of all images with all kernels, pixels of all that are held at once, and multiplications
of all, which take half a minute."""


class Picture(Problem, ABC):
    """y = Bz + noise and the weight λ of a prior on z; B = K periodic, CK with the crop C (valid), or CΣ_j w_j⊙K_j (varying).

    Attributes:
        observed: y (..., h, w).
        kernel: (..., kh, kw), one for all images or for each; (J, kh, kw) where ``weights`` (J, h, w) are given.
        scales: (J,), of the majorizer M = Σ_j c_j K_jᵀK_j, certainly c_j ≥ max_p w_j(p) Σ_i w_i(p); ``None`` without weights.
        penalty: λ.
        periodic: whether latent images are as large as observed ones.
        mask: (h, w), of 0 and 1, the last factor of B where some pixels were not seen; ``None`` where all were.
        domain: (H, W), the size of latent images.

    Raises:
        FormatError: arrays that do not fit together or would take too long.
    """

    names: ClassVar[frozenset[str]] = frozenset({"observed", "kernel", "penalty", "periodic"})
    """Its arrays; besides ``weights`` and ``scales`` where the blur varies, and ``mask`` where some pixels were not seen."""
    parameters: ClassVar[tuple[str, ...]]
    """Of its solver: the first of the array ``parameters``, which a certificate publishes as they are."""
    flags: ClassVar[tuple[str, ...]] = ()
    """The others, 0 or 1."""
    layers: ClassVar[tuple[int, ...]] = ()
    """Dimensions of x and μ between those of the batch and of the image."""
    sizes_of_start: ClassVar[tuple[str, str, str]]
    """The base quantities ‖z_0‖, ‖x_0‖ and ‖μ_0‖."""

    def __init__(self, arrays: Mapping[str, Array], level: Level) -> None:
        varying = "weights" in arrays
        more = ({"weights", "scales"} if varying else set()) | ({"mask"} & arrays.keys())
        if arrays.keys() != self.names | more:
            raise FormatError(
                f"the problem has arrays {', '.join(sorted(arrays))}; they are not those of kind {self.kind!r}"
            )
        self.observed, self.kernel = numbers(arrays["observed"], "array 'observed'", LARGEST), _taps(arrays, "kernel")
        if self.observed.ndim < 2 or self.kernel.ndim < 2:
            raise FormatError("observed and kernel must have rows and columns")
        penalty = numbers(arrays["penalty"], "array 'penalty'", PARAMETERS[1])
        if penalty.shape != (1,) or not penalty[0] >= PARAMETERS[0]:
            raise FormatError(f"the penalty must be one number in {PARAMETERS[0]:.0e} .. {PARAMETERS[1]:.0e}")
        periodic = integer(arrays, "periodic")
        if periodic not in (0, 1):
            raise FormatError("periodic is malformed")
        self.weights = self.scales = None
        count = 1
        if varying:
            self.weights, self.scales, count = _taps(arrays, "weights"), _taps(arrays, "scales"), len(self.kernel)
            if (
                self.kernel.ndim != 3
                or self.weights.shape != (count, *self.observed.shape[-2:])
                or self.scales.shape != (count,)
            ):
                raise FormatError("kernel, weights, scales and observed do not fit together")
            _check_scales(self.weights, self.scales)
        elif not _broadcasts(self.kernel.shape[:-2], self.observed.shape[:-2]):
            raise FormatError("kernel and observed do not fit together")
        self.mask = _mask(arrays["mask"], self.observed) if "mask" in arrays else None
        self.penalty, self.periodic, self.level = float(penalty[0]), bool(periodic), level
        (h, w), (rows, columns) = self.observed.shape[-2:], self.kernel.shape[-2:]
        self.domain: Shape = (h, w) if periodic else (h + rows - 1, w + columns - 1)
        _check_work(math.prod(self.observed.shape[:-2]), count, self.domain, (rows, columns))

    @cached_property
    def blurs(self) -> list[Blur]:
        """B for each image, in C order of the leading dimensions."""
        lead, size = self.observed.shape[:-2], self.kernel.shape[-2:]
        if self.weights is not None and self.scales is not None:
            return [self._blur(list(self.kernel), self.weights, self.scales)] * math.prod(lead)
        if math.prod(self.kernel.shape[:-2]) == 1:
            return [self._blur([self.kernel.reshape(size)], None, np.ones(1))] * math.prod(lead)
        kernels = np.broadcast_to(self.kernel, lead + size).reshape(-1, *size)
        return [self._blur([k], None, np.ones(1)) for k in kernels]

    def _blur(self, kernels: list[Array], weights: Array | None, scales: Array) -> Blur:
        return Blur(kernels, weights, scales, self.periodic, self.domain, self.level, self.mask)

    @cached_property
    def pictures(self) -> Array:
        """y as (images, h, w)."""
        return self.observed.reshape(-1, *self.observed.shape[-2:])

    @property
    def excess(self) -> float:
        """Upper bound of ‖M - BᵀB‖: 0 where they are equal."""
        if self.periodic and self.weights is None and self.mask is None:
            return 0.0
        return max(blur.largest for blur in self.blurs)

    def iterate(self, arrays: Mapping[str, Array], name: str) -> dict[str, Array]:
        """z (..., H, W), x and multiplier (..., layers, H, W) and parameters, float64, of the arrays of the file ``name``."""
        weights = {key: numbers(arrays.get(key), f"{name}: {key}", LARGEST) for key in (*ITERATE, "parameters")}
        lead = self.observed.shape[:-2]
        for key in ITERATE:
            shape = lead + (() if key == "z" else self.layers) + self.domain
            if weights[key].shape != shape:
                raise FormatError(f"{name}: {key} must have shape {shape}")
        found, count = weights["parameters"], len(self.parameters)
        if found.shape != (count + len(self.flags),) or not all(flag in (0.0, 1.0) for flag in found[count:]):
            flags = f", and {' and '.join(self.flags)} as 0 or 1" if self.flags else ""
            raise FormatError(f"{name}: parameters must be {', '.join(self.parameters)}{flags}")
        if not ((found[:count] >= PARAMETERS[0]) & (found[:count] <= PARAMETERS[1])).all():
            raise FormatError(
                f"{name}: one of {', '.join(self.parameters)} lies outside {PARAMETERS[0]:.0e} .. {PARAMETERS[1]:.0e}"
            )
        return weights

    def sizes(self, weights: Mapping[str, Array]) -> dict[str, int | bool]:
        """Images, size of a latent image, and the flags."""
        flags = weights["parameters"][len(self.parameters) :]
        told = {key: bool(flag) for key, flag in zip(self.flags, flags, strict=True)}
        return {"images": len(self.pictures), "H": self.domain[0], "W": self.domain[1], **told}

    def stored_parameters(self, weights: Mapping[str, Array]) -> dict[str, float]:
        """Base quantities that are stored, not measured. The bound falls with some and rises with others, so that no direction
        is safe: they are published as they are."""
        found = weights["parameters"][: len(self.parameters)].tolist()
        return {**dict(zip(self.parameters, found, strict=True)), "penalty": self.penalty}

    def measured(self, weights: Mapping[str, Array]) -> tuple[Interval, float]:
        """An enclosure of V, and an upper bound of the objective."""
        found = weights["parameters"].tolist()
        flat = [
            weights[key].reshape(len(self.pictures), *(() if key == "z" else self.layers), *self.domain)
            for key in ITERATE
        ]
        changes: list[Interval] = []
        objectives: list[float] = []
        for blur, *arrays in zip(self.blurs, self.pictures, *flat, strict=True):
            y, z, x, mu = map(Approximation, arrays)
            change, objective = self.one_iteration(blur, y, z, x, mu, found)
            changes.append(change)
            objectives.append(objective)
        return sum_of(changes), sum_up(objectives)

    @abstractmethod
    def one_iteration(
        self,
        blur: Blur,
        y: Approximation,
        z: Approximation,
        x: Approximation,
        mu: Approximation,
        parameters: list[float],
    ) -> tuple[Interval, float]:
        """Of one image an enclosure of V, and an upper bound of the objective."""

    @abstractmethod
    def constants(self, chosen: Mapping[str, float]) -> dict[str, Interval]:
        """Enclosures of the base quantities that depend on problem and parameters alone."""

    def base_quantities(self, weights: Mapping[str, Array], quantities: Mapping[str, float]) -> dict[str, Interval]:
        """Enclosures of the quantities in the ``DIRECTIONS`` of its theorem.

        Raises:
            FormatError: published ``quantities`` with other parameters than the stored ones.
        """
        chosen = self.stored_parameters(weights)
        for name, value in chosen.items():
            if quantities.get(name) != value:
                raise FormatError(f"certificate: {name} is not {value!r}, the one that is stored")
        change, reached = self.measured(weights)
        size = frobenius_upper(self.observed)
        norms = {
            name: Approximation(weights[key]).bounds() for name, key in zip(self.sizes_of_start, ITERATE, strict=True)
        }
        return {
            "initial_gap": change,
            **{name: (value, value) for name, value in chosen.items()},
            "blur_norm": (0.0, max(blur.norm for blur in self.blurs)),
            "objective_bound": (0.0, min(up(0.5 * size * size, 2), reached) if size > 0.0 else 0.0),
            **norms,
            **self.constants(chosen),
        }


def _broadcasts(lead: tuple[int, ...], images: tuple[int, ...]) -> bool:
    """Whether kernels of these leading dimensions are for images of those."""
    fits = all(k in (1, n) for k, n in zip(lead[::-1], images[::-1], strict=False))
    return fits and len(lead) <= len(images)


def _check_work(images: int, count: int, domain: Shape, taps: Shape) -> None:
    """``FormatError`` where there is more than is checked."""
    (rows, columns), (height, width) = taps, domain
    if rows > height or columns > width:
        raise FormatError("the kernel is larger than the picture")
    blocks = images * count * -(-height // ROWS) * -(-width // COLUMNS)
    if (
        images * count > MAX_CONVOLUTIONS
        or count * height * width > MAX_PIXELS
        or blocks * ROWS * COLUMNS * rows * (columns + COLUMNS) > MAX_PRODUCTS
    ):
        raise FormatError(
            f"{images} x ({height} x {width}) pixels with {count} x ({rows} x {columns}) taps are more than is checked"
        )


def _check_scales(weights: Array, scales: Array) -> None:
    """``FormatError`` unless certainly c_j ≥ max_p w_j(p) Σ_i w_i(p)."""
    largest = (weights * weights.sum(axis=0)).max(axis=(1, 2))  # J - 1 sums and a product of what is not negative
    if not all(c >= up(float(bound), len(weights)) for c, bound in zip(scales, largest, strict=True)):
        raise FormatError("scales do not bound the weights: M is no majorizer")


# -- readers -----------------------------------------------------------------------------------------------------------


def _taps(arrays: Mapping[str, Array], name: str) -> Array:
    """Of a kernel, or weights: not negative."""
    array = numbers(arrays[name], f"array {name!r}", GREATEST_TAP)
    if not (array >= 0.0).all():
        raise FormatError(f"array {name!r} has negative entries")
    return array


def _mask(array: Array, observed: Array) -> Array:
    """0 and 1 in float64, of the pixels of observed images, which are 0 where nothing was seen."""
    if array.dtype != np.uint8 or array.shape != observed.shape[-2:] or not (array <= 1).all():
        raise FormatError(f"array 'mask' must be 0 or 1 as uint8 for each of {observed.shape[-2:]} pixels")
    if observed[..., array == 0].any():
        raise FormatError("array 'observed' is not 0 where the mask says that nothing was seen")
    return array.astype(np.float64)


def integer(arrays: Mapping[str, Array], name: str) -> int:
    """The array of that name as one integer."""
    array = arrays[name]
    if array.dtype != np.int64 or array.shape != (1,):
        raise FormatError(f"array {name!r} must be one integer")
    return int(array[0])
