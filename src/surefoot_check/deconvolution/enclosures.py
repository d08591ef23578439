"""What the checker must read and bound of sparse deconvolution by the linearised ADMM.

The problem is a picture y, blur kernels and the filters of a wavelet transform W; the weights of a run are an iterate (z, x, μ)
and the parameters (α, β, γ, adaptive, inexact). The *gap* at an iterate is V, the squared change by one exact iteration from
there, in the norm of the method: a function of what is stored. It is enclosed without a trusted Fourier transform
(docs/theorems/deconvolution.md, section 4): the change of z solves (αM + I) dz = -αr, numpy's FFT supplies a witness, and
(αM + I)⁻¹ ⪯ I makes its residual, formed by direct convolutions, a bound of its error. The rest of an iteration is convolutions,
wavelet transforms, and a soft threshold that moves no two points apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import FormatError, numbers
from ..problems import LARGEST, Problem
from ..rigor.approximation import Approximation
from ..rigor.balls import ball
from ..rigor.bounds import FAST, Array, Level, down, frobenius_upper, up
from ..rigor.intervals import Interval, around, joined, product_of, quotient_of, squared, sum_of, sum_up
from .operators import COLUMNS, ROWS, Blur, Shape, Wavelet, outwards, shrunk

FIXED: tuple[str, ...] = ("parameters",)
KIND = "deconvolution"
EXACT = ("alpha", "beta", "gamma", "penalty")
ITERATE = ("z", "x", "multiplier")
FLAGS = ("adaptive", "inexact")
GREATEST_TAP = 2.0
"""Of filters, kernels and weights, whose sums and norms are about 1."""
PARAMETERS = (1e-30, 1e30)
"""Admissible α, β, γ and penalties: nothing overflows."""
MAX_TAPS = 256
"""Of a wavelet filter; the longest of PyWavelets has 102."""
MAX_CONVOLUTIONS = 4096
MAX_PIXELS = 1 << 25
MAX_PRODUCTS = 1 << 38
"""Limits on untrusted work: convolutions of all images with all kernels, pixels of all that are held at once, and multiplications
of all, which take half a minute."""


class Deconvolution(Problem):
    """y = Bz + noise, z = Wᵀx sparse; B = K periodic, CK with the crop C (valid), or CΣ_j w_j⊙K_j (varying).

    Attributes:
        observed: y (..., h, w).
        kernel: (..., kh, kw), one for all images or for each; (J, kh, kw) where ``weights`` (J, h, w) are given.
        scales: (J,), of the majorizer M = Σ_j c_j K_jᵀK_j, certainly c_j ≥ max_p w_j(p) Σ_i w_i(p); ``None`` without weights.
        periodic: whether latent images are as large as observed ones.
        mask: (h, w), of 0 and 1, the last factor of B where some pixels were not seen; ``None`` where all were.
        domain: (H, W), the size of latent images.
    """

    kind = KIND

    def __init__(
        self,
        observed: Array,
        kernel: Array,
        weights: Array | None,
        scales: Array | None,
        penalty: float,
        periodic: bool,
        filters: Array,
        levels: int,
        level: Level,
        mask: Array | None = None,
    ) -> None:
        self.observed, self.kernel, self.weights, self.scales = observed, kernel, weights, scales
        self.penalty, self.periodic, self.level, self.mask = penalty, periodic, level, mask
        (h, w), (rows, columns) = observed.shape[-2:], kernel.shape[-2:]
        self.domain: Shape = (h, w) if periodic else (h + rows - 1, w + columns - 1)
        self.filters, self.levels = filters, levels

    @cached_property
    def wavelet(self) -> Wavelet:
        """W."""
        return Wavelet(self.filters, self.domain, self.levels, self.level)

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


def load_problem(kind: object, arrays: Mapping[str, Array], level: Level = FAST) -> Deconvolution:
    """The problem of these arrays; ``FormatError`` where they do not fit together or would take too long.

    observed, kernel, penalty (1,), periodic (1,), wavelet (its name, not used), filters (2, n), levels (1,); where the blur
    varies, weights (J, h, w) and scales (J,); where some pixels were not seen, mask (h, w) of 0 and 1.
    """
    if kind != KIND:
        raise FormatError(f"deconvolution does not solve a problem of kind {kind!r}")
    names = {"observed", "kernel", "penalty", "periodic", "wavelet", "filters", "levels"}
    varying = "weights" in arrays
    names |= {"weights", "scales"} if varying else set()
    names |= {"mask"} & arrays.keys()
    if arrays.keys() != names:
        raise FormatError(f"the problem has arrays {', '.join(sorted(arrays))}; they are not those of kind {KIND!r}")
    observed, kernel = numbers(arrays["observed"], "array 'observed'", LARGEST), _taps(arrays, "kernel")
    if observed.ndim < 2 or kernel.ndim < 2:
        raise FormatError("observed and kernel must have rows and columns")
    penalty = numbers(arrays["penalty"], "array 'penalty'", PARAMETERS[1])
    if penalty.shape != (1,) or not penalty[0] >= PARAMETERS[0]:
        raise FormatError(f"the penalty must be one number in {PARAMETERS[0]:.0e} .. {PARAMETERS[1]:.0e}")
    periodic, levels = _integer(arrays, "periodic"), _integer(arrays, "levels")
    name = arrays["wavelet"]
    if name.dtype != np.uint8 or name.ndim != 1 or name.size > MAX_TAPS or periodic not in (0, 1):
        raise FormatError("wavelet or periodic is malformed")
    weights = scales = None
    images, count = math.prod(observed.shape[:-2]), 1
    if varying:
        weights, scales, count = _taps(arrays, "weights"), _taps(arrays, "scales"), len(kernel)
        if kernel.ndim != 3 or weights.shape != (count, *observed.shape[-2:]) or scales.shape != (count,):
            raise FormatError("kernel, weights, scales and observed do not fit together")
        _check_scales(weights, scales)
    else:
        lead = kernel.shape[:-2]
        fits = len(lead) <= observed.ndim - 2
        fits = fits and all(k in (1, n) for k, n in zip(lead[::-1], observed.shape[-3::-1], strict=False))
        if not fits:
            raise FormatError("kernel and observed do not fit together")
    filters = numbers(arrays["filters"], "array 'filters'", GREATEST_TAP, 2)
    if len(filters) != 2 or filters.shape[1] % 2 or filters.shape[1] > MAX_TAPS:
        raise FormatError(f"filters has shape {filters.shape}; it must be (2, n), n even and at most {MAX_TAPS}")
    mask = _mask(arrays["mask"], observed) if "mask" in arrays else None
    problem = Deconvolution(
        observed, kernel, weights, scales, float(penalty[0]), bool(periodic), filters, levels, level, mask
    )
    (rows, columns), (height, width) = kernel.shape[-2:], problem.domain
    if rows > height or columns > width:
        raise FormatError("the kernel is larger than the picture")
    if not 1 <= levels < min(problem.domain).bit_length():
        raise FormatError(f"levels is {levels}; images of {problem.domain} cannot be split so often")
    blocks = images * count * -(-height // ROWS) * -(-width // COLUMNS)
    if (
        images * count > MAX_CONVOLUTIONS
        or count * height * width > MAX_PIXELS
        or blocks * ROWS * COLUMNS * rows * (columns + COLUMNS) > MAX_PRODUCTS
    ):
        raise FormatError(
            f"{images} x ({height} x {width}) pixels with {count} x ({rows} x {columns}) taps are more than is checked"
        )
    return problem


def read_weights(arrays: Mapping[str, Array], problem: Deconvolution, name: str) -> dict[str, Array]:
    """z, x, multiplier (..., H, W) and parameters (5,), float64, of the arrays of the file ``name``."""
    weights = {key: numbers(arrays.get(key), f"{name}: {key}", LARGEST) for key in (*ITERATE, "parameters")}
    shape = problem.observed.shape[:-2] + problem.domain
    if any(weights[key].shape != shape for key in ITERATE):
        raise FormatError(f"{name}: z, x and multiplier must have shape {shape}")
    parameters = weights["parameters"]
    if parameters.shape != (5,) or not all(flag in (0.0, 1.0) for flag in parameters[3:]):
        raise FormatError(f"{name}: parameters must be alpha, beta, gamma, and adaptive and inexact as 0 or 1")
    if not ((parameters[:3] >= PARAMETERS[0]) & (parameters[:3] <= PARAMETERS[1])).all():
        raise FormatError(f"{name}: alpha, beta or gamma lies outside {PARAMETERS[0]:.0e} .. {PARAMETERS[1]:.0e}")
    return weights


def sizes(problem: Deconvolution, weights: Mapping[str, Array]) -> dict[str, int | bool]:
    """Images, size of a latent image, and whether the solver is adaptive or inexact."""
    flags = {key: bool(flag) for key, flag in zip(FLAGS, weights["parameters"][3:], strict=True)}
    return {"images": len(problem.pictures), "H": problem.domain[0], "W": problem.domain[1], **flags}


def gap_upper(problem: Deconvolution, weights: Mapping[str, Array]) -> float:
    """Rigorous upper bound of V at the iterate."""
    return _measured(problem, weights)[0][1]


def gap_exact(problem: Deconvolution, weights: Mapping[str, Array]) -> tuple[Any, Any]:
    """Bounds of V; there are no sharper ones than those of ``gap_upper``."""
    low, high = _measured(problem, weights)[0]
    return (ball(low) if low > 0.0 else None), ball(high)


def stored_parameters(problem: Deconvolution, weights: Mapping[str, Array]) -> dict[str, float]:
    """Base quantities that are stored, not measured. The bound falls with some and rises with others, so that no direction is
    safe: they are published as they are."""
    return dict(zip(EXACT, (*weights["parameters"][:3].tolist(), problem.penalty), strict=True))


def base_quantities(
    problem: Deconvolution, weights: Mapping[str, Array], quantities: Mapping[str, float]
) -> dict[str, Interval]:
    """Enclosures of the quantities in ``ladmm.DIRECTIONS``.

    Raises:
        FormatError: published ``quantities`` with other parameters than the stored ones.
    """
    chosen = stored_parameters(problem, weights)
    for name, value in chosen.items():
        if quantities.get(name) != value:
            raise FormatError(f"certificate: {name} is not {value!r}, the one that is stored")
    change, reached = _measured(problem, weights)
    size = frobenius_upper(problem.observed)
    norms = {
        name: Approximation(weights[key]).bounds()
        for name, key in zip(("start_latent", "start_coefficients", "start_multiplier"), ITERATE, strict=True)
    }
    return {
        "initial_gap": change,
        **{name: (value, value) for name, value in chosen.items()},
        "transform_norm": problem.wavelet.norm,
        "blur_norm": (0.0, max(blur.norm for blur in problem.blurs)),
        "majorizer_excess": _excess(problem, chosen["alpha"], chosen["beta"]),
        "objective_bound": (0.0, min(up(0.5 * size * size, 2), reached) if size > 0.0 else 0.0),
        **norms,
    }


# -- one iteration -----------------------------------------------------------------------------------------------------


def _measured(problem: Deconvolution, weights: Mapping[str, Array]) -> tuple[Interval, float]:
    """An enclosure of V, and an upper bound of the objective at x."""
    alpha, beta, gamma = (float(p) for p in weights["parameters"][:3])
    flat = [weights[key].reshape(-1, *problem.domain) for key in ITERATE]
    changes: list[Interval] = []
    objectives: list[float] = []
    for blur, picture, *iterate in zip(problem.blurs, problem.pictures, *flat, strict=True):
        y, z, x, mu = (Approximation(array) for array in (picture, *iterate))
        apart = z - problem.wavelet.synthesis(x)
        residual = blur.observed(blur.convolved(z)) - y
        slope = blur.adjoint(residual) + mu + apart.times(beta)
        changes.append(_change(problem, blur, x, mu, apart, slope, alpha, beta, gamma))
        # B at Wᵀx differs from B at z by at most ‖B‖ times what lies between
        misfit = up(residual.norm() + up(blur.norm * apart.norm()))
        size = sum_up(np.abs(x.value).ravel().tolist())
        objectives.append(up(up(0.5 * misfit * misfit, 2) + up(size * problem.penalty)))
    return sum_of(changes), sum_up(objectives)


def _change(
    problem: Deconvolution,
    blur: Blur,
    x: Approximation,
    mu: Approximation,
    apart: Approximation,
    slope: Approximation,
    alpha: float,
    beta: float,
    gamma: float,
) -> Interval:
    """Enclosure of V of one image, from x, μ, z - Wᵀx and Bᵀ(Bz - y) + μ + β(z - Wᵀx)."""
    # dz = -α(αM + I)⁻¹ slope from a witness; (αM + I)⁻¹ ⪯ I makes its residual a bound of its error
    witness = Approximation(blur.solved(slope.value, alpha))
    if not np.isfinite(witness.value).all():
        return 0.0, math.inf
    layers = blur.convolved(witness)
    defect = (blur.majorized(layers).times(alpha) + witness + slope.times(alpha)).norm()
    ahead = apart + Approximation(witness.value, defect)
    dx = shrunk(x + problem.wavelet.analysis(mu + ahead.times(beta)).times(gamma), problem.penalty, gamma) - x
    dmu = (ahead - problem.wavelet.synthesis(dx)).times(beta)
    low, high = sum_of(
        [
            product_of(squared(*witness.bounds()), _between(alpha, beta)),
            blur.hidden(layers),
            quotient_of(squared(*dx.bounds()), gamma),
            quotient_of(squared(*dmu.bounds()), beta),
        ]
    )
    # the error of dz is at most defect/√α in the seminorm of S; that of the layers enters there, too
    of_layers = joined([up(math.sqrt(c) * v.error, 2) for c, v in zip(blur.scales.tolist(), layers, strict=True)])
    error = joined(
        [
            up(up(defect / down(math.sqrt(alpha))) + of_layers),
            up(dx.error / down(math.sqrt(gamma))),
            up(dmu.error / down(math.sqrt(beta))),
        ]
    )
    return squared(*around((down(math.sqrt(low)), up(math.sqrt(high))), error))


def _excess(problem: Deconvolution, alpha: float, beta: float) -> Interval:
    """Enclosure of ‖S‖ = 1/α - β where M = BᵀB; else to that, a lower bound, the largest M is added."""
    low, high = _between(alpha, beta)
    if problem.periodic and problem.weights is None and problem.mask is None:
        return low, high
    return low, up(high + max(blur.largest for blur in problem.blurs))


def _between(alpha: float, beta: float) -> Interval:
    """Enclosure of 1/α - β, of 0 where that is negative: the theorem does not hold there, and there is no norm."""
    exact = max(Fraction(0), 1 / Fraction(alpha) - Fraction(beta))
    return max(0.0, outwards(exact, -1)), outwards(exact, 1)


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


def _integer(arrays: Mapping[str, Array], name: str) -> int:
    array = arrays[name]
    if array.dtype != np.int64 or array.shape != (1,):
        raise FormatError(f"array {name!r} must be one integer")
    return int(array[0])
