"""The part of a report that is about implicit networks alone: how far the features move."""

from __future__ import annotations

from reported_runs import certified, ill_posed, implicit, implicit_paper, words

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot._report.wording import number


def test_certified_features_hardly_move_and_the_page_says_what_that_means(reports) -> None:
    run, directory, page = reports(implicit)
    text = words(page)
    net = sf.nn.ImplicitReLU(*(run.initial[name] for name in ("W", "A", "b")), float(run.initial["gamma"]))
    norm = float(net.equilibrium(run.problem["X"]).Z.norm())
    moved = max(row["feature_movement"] for row in run.rows) / norm
    assert 0.0 < moved < 1e-4
    assert f"The features moved by at most {number(moved, 3)} of their norm" in text
    assert "in effect a linear readout of random equilibrium features, not that features are learned" in text
    assert "Dashed, above: what the certificate allows" in text
    assert "Samples N 8 10 inputs, 2 outputs Width m 40" in text
    assert (directory / "plots" / "features.png").read_bytes().startswith(b"\x89PNG")
    for theorem in PLANS:
        assert (theorem in text) == theorem.startswith("implicit/")


def test_trained_features_are_not_called_a_readout(reports) -> None:
    run, _, page = reports(implicit_paper)
    text = words(page)
    assert not run.certified
    assert "this run trained the features, too" in text
    assert "linear readout" not in text
    assert "what the certificate allows" not in text


def test_lost_equilibrium_is_explained(reports) -> None:
    run, _, page = reports(ill_posed)
    assert run.status is sf.RunStatus.ILL_POSED
    text = words(page)
    assert "where the equilibrium may not exist; the weights kept are those of the newest checkpoint" in text
    assert run.status.text in text
    assert "a million times" not in text


def test_other_systems_have_no_features(reports) -> None:
    _, directory, page = reports(certified)
    assert not (directory / "plots" / "features.png").exists()
    assert "Movement of the features" not in page
