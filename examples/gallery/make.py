"""Makes the pictures of docs/gallery.md: `python examples/gallery/make.py [NAME ...]`, all of them in some minutes.

Each is what one would see after the few lines of its function, or after the command. They are written as PNG files of at most
60 kB, with a palette, into docs/images/gallery.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn

import surefoot as sf
from surefoot import cli

FOLDER = Path(__file__).parents[2] / "docs" / "images" / "gallery"
LARGEST = 60_000
"""Bytes of a file."""

Made = Callable[[Path], object]
"""Writes a picture to a path."""


def prescribed(what: str) -> Made:
    """Handwritten digits, a two-layer network from a certifiable start."""

    def make(path: Path) -> None:
        data = sf.data.load("digits").standardise().one_hot().train()
        loss = sf.SquaredLoss(data.X, data.Y)
        net = sf.nn.TwoLayerLinear.certifiable(loss, moved=0.01)
        sf.descend(net, loss, tolerance=1e-10, progress=False).plot(what, path)

    return make


def gaussian(path: Path) -> None:
    """The same digits from Gaussian weights: many more iterations are guaranteed than taken."""
    data = sf.data.load("digits").standardise().one_hot().train()
    loss = sf.SquaredLoss(data.X, data.Y)
    net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width=1000, std=1000**-0.5, seed=0)
    sf.descend(net, loss, tolerance=1e-10, progress=False).plot("gap", path)


def watched(what: str) -> Made:
    """A plain network, trained by Adam until an exact fit is guaranteed, then by certified descent."""

    def make(path: Path) -> None:
        torch.manual_seed(0)
        digits = sf.data.load("digits").standardise().train()
        X, y = digits.X[:50], (digits.labels[:50] % 2).double()
        layers = [nn.Linear(61, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 1)]
        model = nn.Sequential(*layers).double()
        loss = sf.SquaredLoss(X, y)
        optimizer = torch.optim.Adam(model.parameters())
        directory = path.with_suffix("")
        watch = sf.watch(model, loss, every=100, share=1.0, directory=directory)
        while not watch.certified:
            optimizer.zero_grad()
            (model(X)[:, 0] - y).square().sum().backward()
            optimizer.step()
            watch.step()
        sf.descend(model, loss, tolerance=1e-10, directory=directory, progress=False).plot(what, path)

    return make


def resnet(path: Path) -> None:
    """A ResNet of ten layers, certified on the way."""
    data = sf.data.load("diabetes").whiten().centre_targets().train()
    loss = sf.SquaredLoss(data.X, data.Y)
    net = sf.nn.LinearResNet.gaussian(*loss.shape, width=100, depth=10, seed=0)
    sf.descend(net, loss, certify_every=5, progress=False).plot("gap", path)


def implicit(path: Path) -> None:
    """An implicit ReLU network on twenty digits."""
    train = sf.data.load("digits").classes(0, 1).train()
    X, y = nn.functional.normalize(train.X[:20]), train.labels[:20].double()
    loss = sf.SquaredLoss(X, y)
    net = sf.nn.ImplicitReLU.certifiable(X, y, width=80)
    sf.descend(net, loss, tolerance=1e-3, progress=False).plot("gap", path)


def steps(path: Path) -> None:
    """Trained step sizes beside every method without training, on problems that nothing was trained on."""
    problems = sf.learned.LeastSquares.random(32, 20, 32, seed=0)
    net = sf.nn.StepSizeNet.orthogonal(range=(1.0, 1.95))
    sf.learned.train(net, problems, "lbfgs", epochs=50, iterations=100)
    sf.learned.compare(
        problems, 60, net, fresh=lambda k: sf.learned.LeastSquares.random(32, 20, 32, seed=1000 + k), sets=3
    ).plot(path)


def held_out(path: Path) -> None:
    """How many iterations nearly all new problems need, with confidence 99 %."""
    problems = sf.learned.LeastSquares.random(600, 20, 32, seed=100)
    sf.learned.certify_holdout("FISTA", problems, gap=1e-4, relative_to="start").plot(path)


def deblurred(path: Path) -> None:
    """A photograph behind a smear of nine pixels and 1 % of noise, and what `surefoot deblur` makes of it."""
    pixels = torch.from_numpy(load_sample_images().images[0] / 255.0).movedim(-1, 0)[:, 120:330, 100:350]
    blurred = sf.deconvolution.ValidBlur(torch.eye(9, dtype=torch.float64) / 9, (210, 250)).forward(pixels)
    photo = blurred + 0.01 * torch.randn(blurred.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        np.savetxt(folder / "k.txt", np.eye(9))
        stored = (255.0 * photo.clamp(0.0, 1.0)).round().to(torch.uint8)
        Image.fromarray(stored.movedim(0, -1).numpy()).save(folder / "photo.png")
        files = ["photo.png", "k.txt", "sharp.png"]
        photo_file, kernel, sharp = (str(folder / name) for name in files)
        cli.main(["deblur", photo_file, "--kernel", kernel, "--gamma", "linear", "--out", sharp])
        Image.open(folder / "sharp-before-after.png").save(path)


def reproduced(experiment: str, picture: str) -> Made:
    """A figure of a paper, `surefoot reproduce EXPERIMENT --out DIR`."""

    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory() as directory:
            cli.main(["reproduce", experiment, "--out", directory])
            Image.open(Path(directory) / picture).save(path)

    return make


PICTURES: dict[str, Made] = {
    "digits-gap": prescribed("gap"),
    "digits-conditions": prescribed("conditions"),
    "digits-gaussian": gaussian,
    "own-training": watched("training"),
    "own-descent": watched("gap"),
    "resnet-gap": resnet,
    "implicit-gap": implicit,
    "steps-compared": steps,
    "held-out": held_out,
    "deblurred": deblurred,
    "two-layer-width": reproduced("two-layer/fig3", "fig3-conditioning.png"),
    "resnet-transformations": reproduced("linear-resnet/fig1a", "fig1a-transformations.png"),
    "implicit-initialisation": reproduced("implicit/initialisation", "initialisation.png"),
    "inverse-layers": reproduced("inverse/fig1b", "fig1b-loss.png"),
}
"""By the name of the file."""


def compressed(picture: Path, path: Path) -> None:
    """Save with a palette, and smaller where that is not enough."""
    image = Image.open(picture).convert("RGB")
    for width in (1000, 900, 800, 700, 600):
        height = round(image.height * width / image.width)
        small = image if image.width <= width else image.resize((width, height), Image.Resampling.LANCZOS)
        small.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            return
    raise SystemExit(f"{path.name} is larger than {LARGEST} bytes")


def main(names: list[str], folder: Path = FOLDER) -> None:
    """Make these pictures, or all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as directory:
            picture = Path(directory) / f"{name}.png"
            PICTURES[name](picture)
            compressed(picture, folder / f"{name}.png")
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
