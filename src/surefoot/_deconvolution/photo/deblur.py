"""A whole photograph: noise level, colour, unknown borders, and tiles where it is large."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from ..._core.brief import brief
from ..._core.certificate import Certificate
from ..._core.status import RunStatus
from ..._core.validate import positive, positive_integer
from ..learned.network import LearnedDeconvolution
from ..noise.estimate import LEAST_SIDE, estimate_noise
from ..operators import Blur
from ..problem import extended
from .automatic import automatic_prior
from .colour import mixed, unmixed
from .form import Form, PhotoInput, photo_input
from .highlights import clipped, highlights
from .kernel_grid import prepared
from .kernels import fast_valid_blur
from .learned_prior import LearnedPrior
from .light import AUTO, GAMMAS, LINEAR, SRGB, decode, decoding_slope, encode
from .light_choice import doubt, light_of_file
from .priors import AUTOMATIC, POWER, Settings
from .priors import prior as prior_named
from .restored import Prior, Restored
from .tiles import TILE, tiles
from .wavelet_prior import detail_problem

NETWORK = "network"


@dataclass(frozen=True)
class Deblurred:
    """A sharpened photograph and what is known about it.

    Attributes:
        image: (H, W) or (3, H, W), float32, where white is 1; clipped to the range of whole numbers if the photograph had those.
        residual: y - Bz, of the image's shape, float32, where white is 1: what the picture leaves unexplained. Noise alone
            where kernel and noise are right.
        kernel: (kh, kw), float64, as it was used; of a grid its mean.
        noise: its standard deviation that was used, in linear light where ``light`` is ``"srgb"``.
        light: ``"srgb"`` where the photograph was decoded to linear light, else ``"linear"``; the image has the encoding of the
            photograph, the residual is of what was restored, decoded or not.
        estimated: whether the noise was estimated from the photograph.
        notices: what was taken as white, what was changed about the kernel, why the noise is unsure, and highlights left out.
        prior: what restored it, by name; ``"network"`` for a trained network.
        certificates: of the prior's theorem for each tile; none for a heuristic.
        status: converged, settled, max_iterations, or diverged (then at least one tile is not restored); the worst of the tiles,
            with a network that of the prior.
        tiles: how many parts the photograph was restored in.
        iterations: the most for a tile.
        gap: the largest relative duality gap of a tile's channels, a guaranteed bound of the objective's relative distance from
            its optimum; ``None`` for a heuristic, unless it was asked for: then that of the wavelet objective at this picture.
        change: the largest V_t/V_0 of a tile after the last iteration t (V: the certificate's gap); ``None`` for a heuristic.
        movement: root mean square change of the picture in the last iteration, in intensities; ``None`` where it is not known.
        falls: whether the values of a heuristic's inner problems fell at each of their steps, in every tile; ``None`` where there
            are none.
        left: the largest change of a tile that is still to come, projected from those measured (``Settling``): no bound.
        kept: (proposals of the network that were returned, proposals), by tile and channel; ``None`` without a network.
        applications: products with B, Bᵀ or an inverse filter for each channel, over all tiles.
        seconds: it took.
        form: the type, dtype, axes and white of the photograph.
    """

    image: Tensor
    residual: Tensor = field(repr=False)
    kernel: Tensor = field(repr=False)
    noise: float
    light: str
    estimated: bool
    notices: tuple[str, ...]
    prior: str
    certificates: tuple[Certificate, ...]
    status: RunStatus
    tiles: int
    iterations: int
    gap: float | None
    change: float | None
    movement: float | None
    falls: bool | None
    left: float | None
    kept: tuple[int, int] | None
    applications: int
    seconds: float
    form: Form = field(repr=False)

    __repr__ = brief

    @property
    def misfit(self) -> float:
        """Root mean square of the residual over the noise level: about 1, or a little less, where the model is right."""
        return float(self.residual.double().square().mean().sqrt()) / self.noise

    @property
    def like_input(self) -> Any:
        """The image as the photograph was: PIL image, array or tensor, with its dtype, axes and unit."""
        return self.form.of(self.image)

    @property
    def certified(self) -> bool:
        """Whether the theorem holds for every tile and V did what it says."""
        holds = bool(self.certificates) and all(certificate.holds for certificate in self.certificates)
        return holds and self.status is not RunStatus.DIVERGED and self.change is not None and self.change <= 1.0


def deblur(
    photo: Any,
    kernel: Any,
    noise: float | None = None,
    *,
    prior: str = AUTOMATIC,
    power: float = POWER,
    net: LearnedDeconvolution | None = None,
    iterations: int | None = None,
    tolerance: float = 1e-2,
    gap: bool = False,
    gamma: str = LINEAR,
    white: float | Literal["auto"] | None = None,
    tile: int = TILE,
    progress: Callable[[int, int], None] | None = None,
) -> Deblurred:
    """Sharpen a photograph whose blur kernel is known: y = k ⊗ z + white noise.

    What lies beyond the photograph's border is unknown to the model (``ValidBlur``), so nothing is made up there that could ring.

    Args:
        photo: a PIL image (of a mode other than grey and RGB, a notice says what it became), or an array or tensor: (H, W) grey,
            (3, H, W) or (H, W, 3) red, green, blue; uint8, uint16 or floats; at least 2 pixels a side.
        kernel: (kh, kw), an array, a tensor or a grey PIL image, of any real numbers, not negative, as a convolution; divided by
            its sum, trimmed and centred as ``prepared_kernel`` says. Or a grid of them (R, C, kh, kw), for a blur that varies:
            each is that of the centre of its part of the photograph, and between the centres they are interpolated; of a grid
            only the sums are changed.
        noise: standard deviation, positive, of linear light where ``gamma`` decodes to that; by default estimated from the
            photograph.
        prior: what is known of sharp photographs. ``"hyper-laplacian"``: small powers of differences, by half-quadratic
            splitting, a heuristic. ``"tv"``: small total variation, by ADMM, whose theorem ``deconvolution/tv`` is evaluated for
            every tile. ``"wavelet"``: sparse wavelet coefficients, by the linearised ADMM with the theorem
            ``deconvolution/ladmm``. ``"auto"``: by measured quality the first, in strong noise the second.
        power: p of the hyper-Laplacian prior, from 0.5 to 1; the others have none.
        net: a trained network beside the prior. What it proposes is averaged with the prior's picture where it passes a test
            (``restore_checked``), else the prior decides: a heuristic, no theorem covers it.
        iterations: of the solver, at most; by default those of the prior. The hyper-Laplacian prior takes none.
        tolerance: relative duality gap at which the solvers of ``"tv"`` and ``"wavelet"`` stop before they have settled.
        gamma: ``"srgb"``: samples are decoded to linear light first, where lenses and moving cameras blur, and encoded again at
            the end. ``"linear"``: they are proportional to light, or were blurred as they are, as in published test problems.
            ``"auto"``: sRGB for samples of 8 bits, else linear, with a notice where the photograph speaks clearly against that.
        white: the sample that is white, which noise is relative to: by default 1 for floats, the largest of whole numbers;
            ``"auto"`` guesses for floats in another unit (``photo_input``).
        gap: measure the duality gap of the wavelet objective also at the picture of a heuristic.
        tile: pixels a side of the parts that a larger photograph is restored in; larger ones cost memory, smaller ones time.
        progress: called with the tiles done and their number.

    Returns:
        The picture, of the size and encoding of the photograph, and what is known about it: see ``Deblurred``.

    Raises:
        TypeError: arrays of another dtype.
        ValueError: another shape, NaN or infinite pixels, floats in another unit without a ``white``, a kernel that is negative
            somewhere or larger than the photograph, an unknown prior, ``iterations`` for one without, or numbers out of range.

    Example:
        >>> from surefoot import deconvolution as dc
        >>> sharp = torch.zeros(16, 16).double()
        >>> sharp[4:12, 4:12] = 1.0  # a white square
        >>> kernel = dc.motion_kernel(length=3)
        >>> blur = dc.ValidBlur(kernel, sharp.shape)
        >>> photo = blur.forward(sharp) + 0.01 * torch.randn(16, 14).double()
        >>> found = dc.deblur(photo, kernel, noise=0.01, prior="tv")  # a prior with a theorem
        >>> found.certificates[0].holds, found.image.shape == photo.shape
        (True, True)
        >>> inner = blur.crop(sharp)
        >>> bool(dc.psnr(found.image, inner) > dc.psnr(photo, inner) + 5)
        True
    """
    begin = time.monotonic()
    given = photo_input(photo, white)
    grid, kernel, notices = prepared(kernel, (given.intensities.shape[-2], given.intensities.shape[-1]))
    _check_fits(kernel, given.intensities.shape[-2:])
    light, unclear = _light(gamma, given, kernel)
    notices += unclear
    photo = decode(given.intensities) if light == SRGB else given.intensities
    level, doubts = _noise_level(given.intensities, kernel, noise, light)
    notices += doubts
    tile = positive_integer("tile", tile)
    chosen = _chosen(prior, level)
    settings = Settings(iterations, tolerance, power)
    method = prior_named(chosen, settings)
    if net is not None:
        method = LearnedPrior(net, method)
    channels = photo if photo.ndim == 3 else photo[None]
    parts = tiles((channels.shape[1], channels.shape[2]), (kernel.shape[0], kernel.shape[1]), tile)
    total, residual = (torch.zeros_like(channels, dtype=torch.float32) for _ in range(2))
    top = clipped(given.intensities.reshape(channels.shape), given.form.step)
    hidden, raised = (torch.zeros(channels.shape[1:], dtype=torch.bool, device=channels.device) for _ in range(2))
    restored: list[Restored] = []
    for done, part in enumerate(parts):
        if progress is not None:
            progress(done, len(parts))
        observed = part.cut(channels).double()
        inside = (observed.shape[1], observed.shape[2])
        blur: Blur = fast_valid_blur(kernel, inside) if grid is None else grid.blur(part)
        bright = highlights(observed, part.cut(top), blur, level)
        if bright is not None:
            observed, blur = bright.observed, bright.seen_by(blur)
            part.cut(hidden).logical_or_(~bright.mask)
            if not bright.left_out:
                part.cut(raised).logical_or_(bright.clipped.any(0))
        found = _tile(method, observed, blur, level, gap)
        shown = found.latent if bright is None else bright.shown(found.latent, blur)
        part.add(total, blur.crop(shown))
        part.add(residual, blur.seen(observed) - blur.forward(found.latent))
        restored.append(replace(found, latent=found.latent[:0]))  # only what is said of it is needed now
    if progress is not None:
        progress(len(parts), len(parts))
    total = total.reshape(photo.shape)
    image = given.form.clipped(encode(total) if light == SRGB else total)
    notices += _highlights_notices(float(hidden.double().mean()), float(raised.double().mean()))
    name = chosen if net is None else NETWORK
    return _summary(
        restored,
        image,
        residual.reshape(photo.shape),
        kernel,
        level,
        light,
        noise is None,
        given.notices + notices,
        name,
        begin,
        given.form,
    )


def _light(gamma: str, given: PhotoInput, kernel: Tensor) -> tuple[str, tuple[str, ...]]:
    """What was said, or what is usual for such a file, with a notice where the photograph speaks clearly against that."""
    if gamma not in GAMMAS:
        raise ValueError(f"gamma is {gamma!r}; pass one of {', '.join(map(repr, GAMMAS))}")
    if gamma != AUTO:
        return gamma, ()
    if not given.form.whole:
        return LINEAR, ()
    light = light_of_file(8 * given.form.dtype.itemsize)
    return light, doubt(given.intensities, kernel, given.form.step, light)


def _highlights_notices(hidden: float, raised: float) -> tuple[str, ...]:
    """What was done about highlights, by the share of the pixels that were left out, and of those with samples raised."""
    notices: list[str] = []
    if hidden > 0.0:
        notices.append(
            f"{100.0 * hidden:.2g} % of the pixels lie in or next to highlights brighter than white; they were left out, so that "
            "they leave no stripes, and what is shown there is a guess"
        )
    if raised > 0.0:
        notices.append(
            f"{100.0 * raised:.2g} % of the pixels are clipped, and their surroundings say that they were brighter than white; "
            "how bright was estimated before the rest, so that they leave fewer stripes, and what is shown there is a guess"
        )
    return tuple(notices)


def _tile(method: Prior, observed: Tensor, blur: Blur, noise: float, gap: bool) -> Restored:
    """A tile's colours (C, h, w), restored; as they were with their border repeated where nothing finite came out."""
    colours = mixed(observed)
    found = method.restore(colours, blur, noise)
    if gap and found.gap is None:
        found = replace(found, gap=_objective_gap(found.latent, colours, blur, noise))
    diverged = found.status is RunStatus.DIVERGED
    return replace(found, latent=extended(observed, blur) if diverged else unmixed(found.latent))


def _chosen(name: str, noise: float) -> str:
    """The prior by measured quality, where none was named."""
    return automatic_prior(noise) if name == AUTOMATIC else name


def _objective_gap(latent: Tensor, observed: Tensor, blur: Blur, noise: float) -> float:
    """The relative duality gap of the wavelet objective at a latent picture, the largest of its channels."""
    problem, shading = detail_problem(observed, blur, noise)
    detail = latent - shading
    return float(problem.duality_gap(problem.wavelet.analysis(detail), detail).relative.max())


def _check_fits(kernel: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` for a kernel (kh, kw) larger than a photograph of this shape."""
    rows, columns = kernel.shape
    if rows > shape[0] or columns > shape[1]:
        raise ValueError(
            f"kernel ({rows} x {columns}) is larger than the photo ({shape[0]} x {shape[1]}, rows x columns), also without "
            "its margin of zeros; pass a larger photo"
        )


def _noise_level(samples: Tensor, kernel: Tensor, noise: float | None, light: str) -> tuple[float, tuple[str, ...]]:
    """The level where the blur acts, given or estimated from the samples of the file, and why an estimate is unsure."""
    if noise is not None:
        return positive("noise", noise), ()
    if min(samples.shape[-2:]) < LEAST_SIDE:
        raise ValueError(
            f"photo has {samples.shape[-2]} x {samples.shape[-1]} pixels, too few to estimate its noise; pass noise, for example "
            "0.01"
        )
    found = estimate_noise(samples, kernel)
    level = found.level
    if light == SRGB and found.compression > 0.0:  # JPEG is known by its samples as they are
        level *= float(decoding_slope(samples).square().mean().sqrt())
    elif light == SRGB:
        found = estimate_noise(decode(samples), kernel)
        level = found.level
    return level, tuple(f"the noise level is unsure: {reason}" for reason in found.reasons)


_WORST = (RunStatus.DIVERGED, RunStatus.MAX_ITERATIONS, RunStatus.SETTLED, RunStatus.CONVERGED)


def _summary(
    parts: list[Restored],
    image: Tensor,
    residual: Tensor,
    kernel: Tensor,
    noise: float,
    light: str,
    estimated: bool,
    notices: tuple[str, ...],
    name: str,
    begin: float,
    form: Form,
) -> Deblurred:
    def largest(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return max(known) if known else None

    falls = [part.falls for part in parts if part.falls is not None]
    channels = 3 if image.ndim == 3 else 1
    return Deblurred(
        image,
        residual,
        kernel,
        noise,
        light,
        estimated,
        notices,
        name,
        tuple(part.certificate for part in parts if part.certificate is not None),
        min((part.status for part in parts), key=_WORST.index),
        len(parts),
        max(part.iterations for part in parts),
        largest([part.gap for part in parts]),
        largest([part.change for part in parts]),
        largest([part.movement for part in parts]),
        all(falls) if falls else None,
        largest([part.left for part in parts]),
        (sum(part.kept or 0 for part in parts), channels * len(parts)) if name == NETWORK else None,
        sum(part.applications for part in parts),
        time.monotonic() - begin,
        form,
    )
