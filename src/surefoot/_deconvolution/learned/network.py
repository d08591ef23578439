"""The unrolled deconvolution network D-NbD (paper, equation (14)): its prior step is wavelet shrinkage or learned filters.

What differs from the paper, and why:

- the signs, the thresholds γλ and BᵀB of the corrected iteration (docs/errata.md, ``admm``);
- the start is the half-quadratic hyper-Laplacian restoration, or the gradient-Wiener one, not x₀ = Wy: it is worth many layers;
- α, β, γ and the thresholds of a layer are power laws of the noise level, so that one network serves every level;
- the z-step inverts by FFT, exactly for periodic blur and with the blur's majorizer for every other; LD-Minv with learned C_k is
  kept as an ablation of accuracy (``inverse=``);
- with ``filters``, the soft thresholding of wavelet coefficients becomes two layers of learned 3 x 3 filters, each
  followed by a soft threshold, on the four polyphase components of the image: one level of Haar is one choice of their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, pixel_shuffle, pixel_unshuffle, softshrink

from ..._core.io import RunDirectoryError, reading, write_tensors
from ..._core.validate import integer, positive_integer
from ..operators import Blur, multiply, of_pictures
from ..problem import DEFAULT_WAVELET, checked_image, default_penalty
from ..wavelets import OrthonormalWavelet
from ..wiener import laplacian, restored
from .warm_start import half_quadratic_start, start_applications

HALF_QUADRATIC, GRADIENT_WIENER = "half-quadratic", "gradient-wiener"
"""Starts of the layers."""
BUNDLED = Path(__file__).parent / "weights" / "network.safetensors"
REFERENCE = 0.02
"""Noise level at which the stored α, β and thresholds hold; at others they follow their power laws."""
GRADIENT = 0.09
"""Of the gradient-Wiener start, before training: see ``gradient_wiener``."""
PENALTY_POWER = 1.5
"""Of the noise level in ``default_penalty``."""
START_ITERATIONS = 10
"""Conjugate gradients of the start, where the blur has no exact inverse."""
LEVELS = 12
"""Thresholds kept for so many wavelet levels, finest first; the last is that of the coarsest part."""
REACH = 3
"""Radius of the three filter layers, on the polyphase components."""
LEAST_SIZE = 2 * REACH + 1


@dataclass(frozen=True)
class Iterate:
    """A layer's output.

    Attributes:
        z: (..., H, W), the image of the data step.
        image: (..., H, W), the paper's Wᵀx.
        multiplier: (..., H, W).
    """

    z: Tensor
    image: Tensor
    multiplier: Tensor


class LearnedDeconvolution(nn.Module):
    """D-NbD: K layers of a learned linearised ADMM for y = Bz + noise.

    A layer maps (z, s, μ), s = Wᵀx, to

        z⁺ = z - α(αM + I)⁻¹(Bᵀ(Bz - y) + Ĩ(μ + β(z - s)))
        s⁺ = P(s + γW̃(μ + β(z⁺ - s)))
        μ⁺ = μ + β(z⁺ - s⁺)

    with learned 3 x 3 convolutions Ĩ, W̃ and numbers α, β, γ of its own. Without filters P(v) = Wᵀ soft(Wv, γλt) with a learned
    factor t for each wavelet level: untrained, K iterations of ``LADMM`` with λ = ``default_penalty(noise)``. With filters P is a
    small convolutional network, to be trained against sharp images. No theorem covers trained weights: see ``restore_certified``
    and ``restore_checked``.

    Args:
        layers: K ≥ 1.
        filters: channels of the learned prior step; 0 for the paper's wavelet shrinkage.
        wavelet: an orthogonal wavelet of PyWavelets, for ``filters=0`` and for the objective of the unsupervised loss.
        inverse: ``None`` for the exact inverse, or (layers, order) of an LD-Minv in place of it.
        start: what the layers begin with, "half-quadratic" (``half_quadratic_start``) or "gradient-wiener"; by default the
            first with filters, the second without.
        seed: of the initial filters.

    Raises:
        ValueError: arguments out of range.

    Example:
        >>> net = sf.nn.LearnedDeconvolution.bundled()
        >>> blur = sf.deconvolution.ValidBlur.observing(torch.full((3, 3), 1 / 9), shape=(16, 16))
        >>> restored = net(torch.rand(16, 16), blur, noise=0.02)
        >>> restored.shape, blur.crop(restored).shape  # with the border that the kernel reached, and without it
        (torch.Size([18, 18]), torch.Size([16, 16]))
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        layers: int = 6,
        filters: int = 32,
        *,
        wavelet: str = DEFAULT_WAVELET,
        inverse: tuple[int, int] | None = None,
        start: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        positive_integer("layers", layers)
        self.filters = integer("filters", filters, 0)
        if inverse is not None:
            inverse = positive_integer("inverse[0]", inverse[0]), integer("inverse[1]", inverse[1], 2)
        if start not in (None, HALF_QUADRATIC, GRADIENT_WIENER):
            raise ValueError(f"start is {start!r}; it must be {HALF_QUADRATIC!r} or {GRADIENT_WIENER!r}")
        self.wavelet, self.inverse = wavelet, inverse
        self.noise_range = (0.0, math.inf)
        """Least and largest noise level that the weights were trained at; that of networks which do not know it has no limits."""
        self.start = start or (HALF_QUADRATIC if self.filters else GRADIENT_WIENER)
        self.log_gradient = nn.Parameter(torch.tensor(math.log(GRADIENT)))
        generator = torch.Generator().manual_seed(seed)
        self.layers = nn.ModuleList(
            _Layer(k / max(1, layers - 1), self.filters, inverse, generator) for k in range(layers)
        )

    def extra_repr(self) -> str:
        return f"filters={self.filters}, wavelet={self.wavelet!r}, inverse={self.inverse}, start={self.start!r}"

    def applications(self, blur: Blur) -> int:
        """Products with B, Bᵀ or an inverse filter for one image, start included; counted as in ``LADMM``."""
        exact = blur.exact_majorizer
        first = start_applications(blur)
        if self.start == GRADIENT_WIENER:
            first = 2 if exact else 4 + 3 * START_ITERATIONS
        return first + 1 + len(self.layers) * (1 if exact else 3)

    def trained_at(self, noise: float) -> bool:
        """Whether the weights were trained at this noise level."""
        low, high = self.noise_range
        return low <= noise <= high

    def forward(self, observed: Tensor, blur: Blur, noise: float | Tensor, start: Tensor | None = None) -> Tensor:
        """The restored latent image (..., H, W), differentiable in the weights; not clipped to 0..1.

        ``blur.crop`` gives the part under the observed picture.

        Args:
            observed: y (..., h, w), intensities of about 0..1, in the network's dtype and on its device.
            blur: B with that range.
            noise: its standard deviation, positive: a number, or one for each image, (..., 1, 1).
            start: a latent image (..., H, W) to begin with, where the caller has that of ``self.start`` already.

        Raises:
            TypeError: another dtype or device than the blur's or the network's.
            ValueError: NaN pixels, a shape that does not fit, a noise level that is not positive, fewer than 7 pixels a side.
        """
        of_pictures(blur, "the network")
        observed = checked_image("observed", observed)
        sigma = torch.as_tensor(noise, dtype=observed.dtype, device=observed.device)
        if not bool(((sigma > 0.0) & sigma.isfinite()).all()):
            raise ValueError(
                f"noise is {noise!r}; it must be a positive standard deviation, in units of the intensities"
            )
        if min(blur.domain) < LEAST_SIZE:
            raise ValueError(
                f"the latent image has {blur.domain} pixels; the network needs at least {LEAST_SIZE} a side"
            )
        own = self.log_gradient
        if observed.dtype != own.dtype or observed.device != own.device:
            raise TypeError(
                f"observed is {observed.dtype} on {observed.device}, the network {own.dtype} on {own.device}; convert one of them"
            )
        return self.iterates(observed, blur, sigma, start)[-1].image

    def iterates(self, observed: Tensor, blur: Blur, noise: Tensor, start: Tensor | None = None) -> list[Iterate]:
        """The output of every layer, the start first; arguments as ``forward``, unchecked."""
        s = self._begun(observed, blur, noise) if start is None else start
        offset, wavelet = torch.zeros_like(observed[..., :1, :1]), None
        if self.filters:
            # a blur keeps constants: learned filters see deviations from the mean only, so a brighter picture is the same to them
            offset = observed.mean((-2, -1), keepdim=True)
            s = s - offset
        else:
            wavelet = OrthonormalWavelet(blur.domain, self.wavelet, dtype=s.dtype, device=s.device)
        pulled = blur.adjoint(observed - offset)
        iterate = Iterate(s, s, torch.zeros_like(s))
        iterates = [iterate]
        level = (noise / REFERENCE).log()
        for layer in self.layers:
            iterate = layer(iterate, pulled, blur, level, wavelet)
            iterates.append(iterate)
        return [replace(x, z=x.z + offset, image=x.image + offset) for x in iterates]

    def _begun(self, observed: Tensor, blur: Blur, noise: Tensor) -> Tensor:
        """The start, a latent image; differentiable in ``log_gradient`` where that takes part."""
        if self.start == HALF_QUADRATIC:
            with torch.no_grad():
                return half_quadratic_start(observed, blur, noise)
        mean = observed.mean((-2, -1), keepdim=True)
        ratio = (noise / self.log_gradient.exp()).square()
        # few steps of conjugate gradients where there is no exact inverse: the layers go on with the rest
        right = blur.adjoint(observed - mean)
        return mean + restored(blur, right, ratio * laplacian(blur.domain, observed), 0.0, START_ITERATIONS)

    def inverse_error(self, blur: Blur, noise: float | Tensor) -> float:
        """Largest error |1 - ax| of the layers' inverses x of the eigenvalues a of αM + I: 0 for the exact inverse."""
        pairs = self._inverses(blur, noise)
        return max((float((1.0 - a * inverses[-1].detach()).abs().max()) for a, inverses in pairs), default=0.0)

    def inverse_loss(self, blur: Blur, noise: float | Tensor) -> Tensor:
        """Loss (4) of LD-Minv for αM + I over its largest eigenvalue, α fixed, averaged over the layers of the network.

        That is (1/2K) Σ_k mean (a²x_k - a)² for a network with LD-Minv; its gradient is in the coefficients only.
        """
        losses = [
            torch.stack([(a / a.amax((-2, -1), keepdim=True) * (a * x - 1.0)).square().mean() for x in inverses]).mean()
            for a, inverses in self._inverses(blur, noise)
        ]
        return 0.5 * torch.stack(losses).mean()

    def _inverses(self, blur: Blur, noise: float | Tensor) -> list[tuple[Tensor, list[Tensor]]]:
        """Of each layer with LD-Minv the eigenvalues of αM + I, without gradient, and those of X_1 … X_K."""
        own = self.log_gradient.detach()
        level = (torch.as_tensor(noise, dtype=own.dtype, device=own.device) / REFERENCE).log()
        pairs: list[tuple[Tensor, list[Tensor]]] = []
        for layer in self.layers:
            assert isinstance(layer, _Layer)
            if layer.coefficients is not None:
                with torch.no_grad():
                    spectrum = layer.alpha(level) * blur.majorizer + 1.0
                pairs.append((spectrum, polynomial_inverse(spectrum, layer.coefficients)))
        return pairs

    def save(self, path: str | Path) -> None:
        """Write settings and weights to a safetensors file, atomically."""
        write_tensors(Path(path), {**self.state_dict(), **self._settings()})

    def _settings(self) -> dict[str, Tensor]:
        return {
            "settings.shape": torch.tensor([len(self.layers), self.filters, *(self.inverse or (0, 0))]),
            "settings.wavelet": _letters(self.wavelet),
            "settings.start": _letters(self.start),
            "settings.noise": torch.tensor(self.noise_range, dtype=torch.float64),
        }

    @classmethod
    def bundled(cls) -> LearnedDeconvolution:
        """The network that comes with the package, float32, trained against sharp pictures with noise of 0.2 to 5 %.

        weights/network.json beside it has the command that trained it, and the pictures with their authors and licences.

        Raises:
            RunDirectoryError: the file is missing or damaged.
        """
        return cls.load(BUNDLED)

    @classmethod
    def load(cls, path: str | Path) -> LearnedDeconvolution:
        """The network that ``save`` wrote, on the CPU.

        Raises:
            RunDirectoryError: missing, damaged, non-finite, or no such network.
        """
        if not Path(path).is_file():
            raise RunDirectoryError(f"{path} is missing or no file; pass one that LearnedDeconvolution.save wrote")
        with reading(path, "deconvolution network") as stored:
            missing = {"settings.shape", "settings.wavelet", "log_gradient"} - stored.keys()
            if missing:
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
            layers, filters, depth, order = stored.pop("settings.shape").tolist()
            wavelet = bytes(stored.pop("settings.wavelet").tolist()).decode()
            # files of earlier versions do not name their start
            start = bytes(stored.pop("settings.start", _letters(GRADIENT_WIENER)).tolist()).decode()
            OrthonormalWavelet((LEAST_SIZE, LEAST_SIZE), wavelet)  # refuses an unknown one
            low, high = stored.pop("settings.noise", torch.tensor([0.0, math.inf])).tolist()
            if not 0.0 <= low < high:
                raise ValueError(f"it claims to be trained at noise levels from {low:g} to {high:g}")
            inverse = (depth, order) if depth else None
            # before memory is taken for what the settings claim
            numbers = {name.split(".")[1] for name in stored if name.startswith("layers.")}
            first = stored.get("layers.0.prior.first")
            inner = {tuple(W.shape) for name, W in stored.items() if name.endswith(".coefficients")}
            same = inner == ({inverse} if inverse else set())
            if not same or len(numbers) != layers or (0 if first is None else len(first)) != filters:
                raise ValueError("its settings are not those of its weights")
            if stored["log_gradient"].dtype not in (torch.float32, torch.float64):
                raise ValueError(f"its weights are {stored['log_gradient'].dtype}; networks are float32 or float64")
            net = cls(layers, filters, wavelet=wavelet, inverse=inverse, start=start)
            if not all(bool(value.isfinite().all()) for value in stored.values()):
                raise ValueError("it has non-finite weights")
            net.to(stored["log_gradient"].dtype).load_state_dict(stored)
            net.noise_range = (low, high)
            return net


class Penalised:
    """The objective ½‖Bz - y‖² + λ‖Wz‖₁ of a batch of images, with λ = ``default_penalty`` of each one's noise level.

    The same as ``DeconvolutionProblem`` at x = Wz, but differentiable and with a λ for each image.
    """

    def __init__(self, observed: Tensor, blur: Blur, noise: Tensor, wavelet: str) -> None:
        self._observed, self._blur = observed, blur
        self._wavelet = OrthonormalWavelet(blur.domain, wavelet, dtype=observed.dtype, device=observed.device)
        self._penalty = (default_penalty(REFERENCE) * (noise / REFERENCE) ** PENALTY_POWER).reshape(-1)

    def objective(self, image: Tensor) -> Tensor:
        """(N,) at latent images z (N, H, W)."""
        misfit = 0.5 * (self._blur.forward(image) - self._observed).square().sum((-2, -1))
        return misfit + self._penalty * self._wavelet.analysis(image).abs().sum((-2, -1))


class _PowerLaw(nn.Module):
    """Positive numbers exp(log + power · log(noise/REFERENCE)), both learned."""

    def __init__(self, value: float, power: float, count: int | None = None) -> None:
        super().__init__()
        shape = () if count is None else (count,)
        self.log = nn.Parameter(torch.full(shape, math.log(value)))
        self.power = nn.Parameter(torch.full(shape, power))

    def forward(self, level: Tensor) -> Tensor:
        return (self.log + self.power * level).exp()


class _Layer(nn.Module):
    """One layer; ``place`` in 0..1 is how far down it is."""

    def __init__(self, place: float, filters: int, inverse: tuple[int, int] | None, generator: torch.Generator) -> None:
        super().__init__()
        # L-ADMM is fastest with β of about 10λ; a denoiser wants β/noise² to grow from layer to layer
        beta, power = (0.4 * 5.0**place, 2.0) if filters else (10.0 * default_penalty(REFERENCE), PENALTY_POWER)
        self.alpha, self.beta = _PowerLaw(1.0 / beta, -power), _PowerLaw(beta, power)
        self.log_gamma = nn.Parameter(torch.tensor(0.0))
        """Of γβ."""
        self.pull = nn.Parameter(_identity())
        """Ĩ."""
        self.push = nn.Parameter(_identity())
        """W̃, before W."""
        self.prior = _Filters(filters, generator) if filters else _Shrinkage()
        self.coefficients = None if inverse is None else nn.Parameter(torch.ones(inverse))
        """C of LD-Minv."""

    def forward(
        self, before: Iterate, pulled: Tensor, blur: Blur, level: Tensor, wavelet: OrthonormalWavelet | None
    ) -> Iterate:
        alpha, beta, reach = self.alpha(level), self.beta(level), self.log_gamma.exp()
        pull = _convolved(before.multiplier + beta * (before.z - before.image), self.pull)
        if blur.exact_majorizer:
            z = self._inverted(before.z - alpha * pull + alpha * pulled, blur, alpha)
        else:
            z = before.z - alpha * self._inverted(blur.gram(before.z) - pulled + pull, blur, alpha)
        v = before.image + reach * _convolved(before.multiplier / beta + (z - before.image), self.push)
        s = self.prior(v, level, reach / beta, wavelet)
        return Iterate(z, s, before.multiplier + beta * (z - s))

    def _inverted(self, right: Tensor, blur: Blur, alpha: Tensor) -> Tensor:
        if self.coefficients is None:
            return blur.solve(right, alpha)
        return multiply(polynomial_inverse(alpha * blur.majorizer + 1.0, self.coefficients)[-1], right)


def polynomial_inverse(spectrum: Tensor, coefficients: Tensor) -> list[Tensor]:
    """LD-Minv of a matrix that the Fourier transform diagonalises: X_{k+1} = X_k Σ_l C_kl (I - AX_k)^l on its eigenvalues.

    Args:
        spectrum: eigenvalues of A (..., H, W//2+1), all at least 1.
        coefficients: C (K, L).

    Returns:
        The eigenvalues of X_1 … X_K; X_0 = 2/(1 + λ_max), which is the best multiple of I.
    """
    largest = spectrum.amax((-2, -1), keepdim=True)
    x = (2.0 / (1.0 + largest)).expand_as(spectrum)
    inverses: list[Tensor] = []
    for row in coefficients:
        residual = 1.0 - spectrum * x
        total = row[-1].expand_as(spectrum)
        for c in row[:-1].flip(0):
            total = total * residual + c
        x = x * total
        inverses.append(x)
    return inverses


class _Shrinkage(nn.Module):
    """P(v) = Wᵀ soft(Wv, γλt), t for each wavelet level."""

    def __init__(self) -> None:
        super().__init__()
        self.threshold = _PowerLaw(default_penalty(REFERENCE), PENALTY_POWER)
        """γ⁻¹ times the thresholds: λ before training."""
        self.log_levels = nn.Parameter(torch.zeros(LEVELS + 1))

    def forward(self, v: Tensor, level: Tensor, gamma: Tensor, wavelet: OrthonormalWavelet | None) -> Tensor:
        assert wavelet is not None
        factor = self.log_levels.exp()[_level_map(wavelet).to(v.device)]
        return wavelet.synthesis(soft(wavelet.analysis(v), gamma * self.threshold(level) * factor))


class _Filters(nn.Module):
    """P(v) = v - τD(v/τ), Du = D₃ soft(D₂ soft(D₁u)), with D₁..D₃ 3 x 3 convolutions of the four polyphase components of v.

    The threshold is 1 for every channel: any other is in the norms of the filters before and after it.
    """

    def __init__(self, channels: int, generator: torch.Generator) -> None:
        super().__init__()

        def drawn(outputs: int, inputs: int, scale: float) -> nn.Parameter:
            spread = scale / math.sqrt(9 * inputs)
            return nn.Parameter(spread * torch.randn(outputs, inputs, 3, 3, generator=generator))

        self.first, self.second = drawn(channels, 4, 1.4), drawn(channels, channels, 1.4)
        self.last = drawn(4, channels, 0.01)
        self.scale = _PowerLaw(REFERENCE, 1.0)
        """τ: the noise level before training."""

    def forward(self, v: Tensor, level: Tensor, gamma: Tensor, wavelet: OrthonormalWavelet | None) -> Tensor:
        rows, columns = v.shape[-2:]
        scale, side = self.scale(level), 2 * REACH
        flat = (v / scale).reshape(-1, 1, rows, columns)
        flat = pad(flat, (side, side + columns % 2, side, side + rows % 2), mode="circular")
        # channels last: on a processor the convolutions and their gradients then take half the time
        h = pixel_unshuffle(flat, 2).contiguous(memory_format=torch.channels_last)
        h = softshrink(conv2d(h, self.first), 1.0)
        h = conv2d(softshrink(conv2d(h, self.second), 1.0), self.last)
        return v - scale * pixel_shuffle(h, 2)[:, 0, :rows, :columns].reshape(v.shape)


def _letters(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def soft(x: Tensor, threshold: Tensor) -> Tensor:
    """ReLU(x - t) - ReLU(-x - t), as x less its part within the threshold."""
    return x - torch.clamp(x, -threshold, threshold)


def _identity() -> Tensor:
    kernel = torch.zeros(1, 1, 3, 3)
    kernel[0, 0, 1, 1] = 1.0
    return kernel


def _convolved(image: Tensor, kernel: Tensor) -> Tensor:
    """Periodic 3 x 3 correlation of images (..., H, W)."""
    flat = image.reshape(-1, 1, *image.shape[-2:])
    return conv2d(pad(flat, (1, 1, 1, 1), mode="circular"), kernel).reshape(image.shape)


def _level_map(wavelet: OrthonormalWavelet) -> Tensor:
    """Index of the wavelet level of each coefficient (H, W), finest 0; ``LEVELS`` for the coarsest part."""
    rows, columns = wavelet.shape
    levels = torch.zeros(wavelet.shape, dtype=torch.int64)
    for level in range(wavelet.levels):
        levels[:rows, :columns] = min(level, LEVELS - 1)
        rows, columns = (rows + 1) // 2, (columns + 1) // 2
    levels[:rows, :columns] = LEVELS
    return levels
