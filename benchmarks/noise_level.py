"""Noise levels of blurred pictures, estimated with the kernel known, against the noise that was put there.

Each case is a crop of a photograph, blurred by a valid convolution (its border is not known), with white Gaussian noise, rounded
to 8 or 16 bits or saved as JPEG. The truth has three readings. "level", which deblurring needs and ``estimate_noise`` gives: the
noise, the rounding and the error that compression makes in the blurred picture without noise, added as independent variables.
"added": the noise and the rounding alone. "in the file": the file less the blurred picture without noise, in pixels that are not
clipped; compression takes grain away from it. For pictures that are not compressed the three are the same, up to chance.
"""

from __future__ import annotations

import io
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from report import Report, Shown, parser
from scipy.signal import fftconvolve
from torch import Tensor

from surefoot._deconvolution.learned.training_kernels import shake_kernels
from surefoot._deconvolution.learned.training_pictures import luminance
from surefoot.deconvolution import defocus_kernel, estimate_noise, motion_kernel

PEERS = ("scikit-image",)
SIGMAS = (0.002, 0.05)
QUALITIES = (60, 95)
SIZES = (128, 256)
"""Pixels a side of the observed crop, where the photograph has that many."""
CLOSE = 0.25
"""Relative error of an estimate that is right."""
FULL, SMOKE = 200, 4
"""Cases."""
PHOTOGRAPHS = ("astronaut", "camera", "chelsea", "coffee", "coins", "rocket")
"""Of scikit-image: those that are photographs of scenes."""


@dataclass(frozen=True)
class Case:
    """An observed picture (h, w) or (3, h, w) in 0..1, its kernel, and its noise in three readings."""

    name: str
    blur: str
    file: str
    image: Tensor
    kernel: Tensor
    sigma: float
    level: float
    added: float
    in_file: float

    @property
    def kinds(self) -> tuple[str, ...]:
        """The rows of the table that it counts in."""
        colour = "colour" if self.image.ndim == 3 else "grey"
        clean = ("without noise",) if self.sigma == 0.0 else ()
        return ("all", self.file.split()[0] + ("" if "JPEG" in self.file else " bits"), self.blur, colour, *clean)


def photographs(data: Path | None) -> list[tuple[str, np.ndarray]]:
    """Bytes (H, W) or (H, W, 3): scikit-learn's two, scikit-image's where it is installed, and BSD400 where ``data`` has it."""
    from sklearn.datasets import load_sample_images

    found = [("china", load_sample_images().images[0]), ("flower", load_sample_images().images[1])]
    try:
        import skimage.data
    except ImportError:
        pass
    else:
        found += [(name, np.asarray(getattr(skimage.data, name)())) for name in PHOTOGRAPHS]
    if data is not None:
        images = np.load(data / "bsd400_gray180.npz")["images"]
        found += [(f"bsd{i}", image) for i, image in enumerate(images)]
    return found


def diagonal(length: int, down: bool) -> np.ndarray:
    """Pixels on a diagonal only, as simple generators make them."""
    kernel = np.eye(length) / length
    return kernel if down else kernel[:, ::-1].copy()


def drawn_kernel(random: np.random.Generator, shakes: Sequence[np.ndarray]) -> tuple[str, np.ndarray]:
    """A kernel of one of three kinds."""
    kind = random.choice(["shake", "motion", "defocus"], p=[0.4, 0.35, 0.25])
    if kind == "shake":
        return "shake", shakes[int(random.integers(len(shakes)))]
    if kind == "defocus":
        return "defocus", defocus_kernel(random.uniform(1.0, 7.0)).numpy()
    if random.random() < 0.5:
        return "motion", diagonal(int(random.integers(5, 22)), bool(random.integers(2)))
    return "motion", motion_kernel(random.uniform(5.0, 25.0), random.uniform(0.0, 180.0)).numpy()


def shake(data: Path | None, training: bool) -> list[np.ndarray]:
    """The kernels of Levin et al. where ``data`` has them (those of CSF for ``training``), else simulated ones."""
    if data is None:
        return [k.numpy().astype(float) for k in shake_kernels(8, torch.Generator().manual_seed(3))]
    file = np.load(data / ("csf_kernels.npz" if training else "levin_kernels.npz"))
    return [file[name] / file[name].sum() for name in file.files]


def cases(count: int, seed: int, data: Path | None = None, *, training: bool = False) -> Iterator[Case]:
    """``count`` cases, the same for the same arguments."""
    pictures, shakes = photographs(data), shake(data, training)
    crops = [p for p in pictures if p[0].startswith("bsd")]
    larger = [p for p in pictures if not p[0].startswith("bsd")]
    for number in range(count):
        random = np.random.default_rng((seed, number))
        pool = crops if crops and random.random() < 0.6 else larger
        name, photo = pool[random.integers(len(pool))]
        if photo.ndim == 3 and random.random() < 0.5:
            photo = luminance(photo)
        blur, kernel = drawn_kernel(random, shakes)
        sigma = 0.0 if random.random() < 0.1 else float(np.exp(random.uniform(*np.log(SIGMAS))))
        file = str(random.choice(["8 bits", "16 bits", "JPEG"], p=[0.4, 0.1, 0.5]))
        quality = int(random.integers(QUALITIES[0], QUALITIES[1] + 1))
        if file == "16 bits" and sigma == 0.0:
            file = "8 bits"  # a picture without any noise has no noise level
        yield _made(random, name, photo, blur, kernel, sigma, file, quality)


def _made(
    random: np.random.Generator,
    name: str,
    photo: np.ndarray,
    blur: str,
    kernel: np.ndarray,
    sigma: float,
    file: str,
    quality: int,
) -> Case:
    reach = np.array(kernel.shape) - 1
    size = np.minimum(np.array(photo.shape[:2]) - reach, random.integers(SIZES[0], SIZES[1] + 1, 2))
    top, left = random.integers(np.array(photo.shape[:2]) - size - reach + 1)
    window = photo[top : top + size[0] + reach[0], left : left + size[1] + reach[1]]
    channels = window.reshape(*window.shape[:2], -1) / 255.0
    blurred = [fftconvolve(channels[..., c], kernel, "valid") for c in range(channels.shape[2])]
    clean = np.stack(blurred, -1).clip(0.0, 1.0)
    white = 65535.0 if file == "16 bits" else 255.0

    def stored(picture: np.ndarray) -> np.ndarray:
        whole = np.rint(picture * white).clip(0.0, white) / white
        return compressed(whole, quality) if file == "JPEG" else whole

    observed = stored(clean + sigma * random.standard_normal(clean.shape))
    seen = (observed > 0.0) & (observed < 1.0)
    rounding = 1.0 / (white * math.sqrt(12.0))
    error = rounding if file != "JPEG" else float(np.sqrt(np.mean((stored(clean) - clean)[seen] ** 2)))
    image = torch.from_numpy(np.ascontiguousarray(np.moveaxis(observed, -1, 0)))
    return Case(
        f"{name} {size[0]}x{size[1]}",
        blur,
        f"JPEG {quality}" if file == "JPEG" else file,
        image if len(image) > 1 else image[0],
        torch.from_numpy(kernel.copy()),
        sigma,
        math.hypot(sigma, error),
        math.hypot(sigma, rounding),
        float(np.sqrt(np.mean((observed - clean)[seen] ** 2))),
    )


def compressed(picture: np.ndarray, quality: int) -> np.ndarray:
    """What a JPEG file of that quality holds; (h, w, channels), 0..1."""
    from PIL import Image

    content = io.BytesIO()
    bytes_ = np.rint(picture * 255.0).astype(np.uint8)
    Image.fromarray(bytes_[..., 0] if picture.shape[2] == 1 else bytes_).save(content, "JPEG", quality=quality)
    content.seek(0)
    with Image.open(content) as image:
        return np.asarray(image, dtype=float).reshape(picture.shape) / 255.0


def right(estimate: float, truth: float) -> bool:
    """Whether the estimate is within ``CLOSE``."""
    return abs(estimate / truth - 1.0) <= CLOSE


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, metavar="FOLDER", help="with bsd400_gray180.npz and levin_kernels.npz")
    options.add_argument("--seed", type=int, default=0, help="of the cases")
    options.add_argument("--training", action="store_true", help="csf_kernels.npz in place of levin_kernels.npz")
    options.add_argument("--each", action="store_true", help="a line for every case")
    report = Report(options, arguments, PEERS)
    chosen = report.options
    counted: dict[str, list[list[bool]]] = {}
    times: list[float] = []
    for case in cases(SMOKE if report.smoke else FULL, chosen.seed, chosen.data, training=chosen.training):
        begin = time.process_time()
        found = estimate_noise(case.image, case.kernel)
        times.append(time.process_time() - begin)
        row = [right(found.level, truth) for truth in (case.level, case.added, case.in_file)]
        row += [right(found.noise, case.added), found.unsure]
        if report.has("scikit-image"):
            row.append(right(_peer(case.image), case.level))
        for kind in case.kinds:
            counted.setdefault(kind, []).append(row)
        if chosen.each:
            ratios = " ".join(f"{found.level / truth:.2f}" for truth in (case.level, case.added, case.in_file))
            print(f"{case.name} {case.blur} {case.file} sigma {case.sigma:.4f}: {ratios}; {'; '.join(found.reasons)}")
    columns = ["cases", "number", "level", "added", "in the file", "noise: added", "unsure"]
    if report.has("scikit-image"):
        columns.append("scikit-image: level")
    rows = [
        [kind, len(found), *(Shown(statistics.mean(column), "{:.1%}") for column in zip(*found, strict=True))]
        for kind, found in sorted(counted.items())
    ]
    note = f"seed {chosen.seed}; median {1e3 * statistics.median(times):.0f} ms a picture (processor time)"
    report.table(f"Estimates within {CLOSE:.0%} of the truth", columns, rows, note)


def _peer(image: Tensor) -> float:
    """The noise by scikit-image, which does not know the kernel."""
    from skimage.restoration import estimate_sigma

    array = image.numpy() if image.ndim == 2 else np.moveaxis(image.numpy(), 0, -1)
    return float(estimate_sigma(array, average_sigmas=True, channel_axis=None if image.ndim == 2 else -1))


if __name__ == "__main__":
    main()
