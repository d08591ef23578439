"""The network that comes with the package: what it is, where it comes from, and that it gains something."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch
from deconvolution_pictures import DOUBLE, noisy, photos

from surefoot._deconvolution.half_quadratic import HyperLaplacian
from surefoot._deconvolution.learned.network import BUNDLED
from surefoot._deconvolution.learned.training_pictures import PICTURES, grey
from surefoot.deconvolution import PeriodicBlur, TrainingData, ValidBlur, psnr, restore_checked
from surefoot.nn import LearnedDeconvolution
from surefoot_check.arrays import digest

PROVENANCE = json.loads(BUNDLED.with_suffix(".json").read_text())


def test_provenance_is_of_these_weights() -> None:
    assert PROVENANCE["weights_sha256"] == hashlib.sha256(BUNDLED.read_bytes()).hexdigest()
    assert BUNDLED.stat().st_size < 2**20
    assert [picture["name"] for picture in PROVENANCE["pictures"]] == [picture.name for picture in PICTURES]
    for stored, picture in zip(PROVENANCE["pictures"], PICTURES, strict=True):
        assert (stored["author"], stored["licence"]) == (picture.author, picture.licence)
        assert any(term in picture.licence for term in ("CC BY 2.0", "CC0 1.0", "public domain"))


def test_pictures_are_those_of_the_provenance() -> None:
    known = {stored["name"]: stored["sha256"] for stored in PROVENANCE["pictures"]}
    for picture in PICTURES:
        if picture.package == "scikit-learn":
            assert digest(grey(picture)) == known[picture.name]


def test_free_pictures() -> None:
    pytest.importorskip("skimage")
    known = {stored["name"]: stored["sha256"] for stored in PROVENANCE["pictures"]}
    assert {picture.name: digest(grey(picture)) for picture in PICTURES} == known
    assert len(TrainingData.load("free").tiles) == 153


@pytest.mark.parametrize("noise", [0.01, 0.03])
@pytest.mark.parametrize("make", [PeriodicBlur, ValidBlur])
def test_it_gains_on_the_prior(make: type[PeriodicBlur | ValidBlur], noise: float) -> None:
    """With motion along a line, on the mean of three pictures; where a proposal is refused the prior's picture stays."""
    blur, sharp = make(torch.eye(7, dtype=DOUBLE) / 7.0, (96, 96)), photos(3, 96)
    observed = noisy(blur, sharp, noise)
    prior = HyperLaplacian().solve(observed, blur, noise).latent
    net = LearnedDeconvolution.bundled()
    found = restore_checked(net, observed, blur, noise, fallback=prior)
    assert int(found.accepted.sum()) >= 2
    known = blur.crop(sharp)
    gains = psnr(found.image, known) - psnr(blur.crop(prior), known)
    assert float(gains.mean()) > 0.05 and torch.equal(found.image[~found.accepted], blur.crop(prior)[~found.accepted])
