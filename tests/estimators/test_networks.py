"""Implicit and feed-forward estimators: what is done before training, what is certified, and what goes into a run directory."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine

import surefoot as sf
from surefoot.estimators import (
    FeedForwardClassifier,
    FeedForwardRegressor,
    ImplicitClassifier,
    UncertifiedWarning,
)
from surefoot_check import Outcome, check

WINE = tuple(array[::6] for array in load_wine(return_X_y=True))
IRIS = tuple(array[::6] for array in load_iris(return_X_y=True))


@cache
def implicit() -> ImplicitClassifier:
    """Of ``WINE``, whose classes have names."""
    X, y = WINE
    return ImplicitClassifier(random_state=0).fit(X, np.array(["a", "b", "c"])[y])


@cache
def plain() -> FeedForwardClassifier:
    """Of ``IRIS``, whose classes have names."""
    X, y = IRIS
    return FeedForwardClassifier((2,), weight_decay=0.03, random_state=0).fit(X, np.array(["a", "b", "c"])[y])


def test_an_implicit_network_is_certified_trained_and_checked(tmp_path: Path) -> None:
    model, (X, y) = implicit(), WINE
    assert model.certificate_.holds and model.audit_.holds and model.score(X, model.classes_[y]) == 1.0
    assert model.n_iter_ <= model.certificate_.iterations_to(model.tol) < 100
    assert check(model.save(tmp_path / "run")).outcome is Outcome.ACCEPT


def test_the_implicit_network_predicts_from_rows_as_they_were_trained_on() -> None:
    model, (X, y) = implicit(), WINE
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = torch.nn.functional.normalize(torch.from_numpy(np.column_stack([scaled, np.ones(len(X))])))
    assert model.run_.problem["X"].numpy() == pytest.approx(rows.numpy(), abs=1e-12)
    found = model.network_(rows).detach().numpy() + model.intercept_
    assert model.decision_function(X) == pytest.approx(found, abs=1e-10)
    assert model.intercept_ == pytest.approx([2 * (y == label).mean() - 1 for label in range(3)])


def test_equal_rows_are_merged() -> None:
    once, (X, y) = implicit(), WINE
    twice = ImplicitClassifier(random_state=0).fit(np.repeat(X, 2, axis=0), np.repeat(once.classes_[y], 2))
    assert twice.certificate_.holds and len(twice.run_.problem["X"]) == len(X)
    assert twice.predict(X).tolist() == once.predict(X).tolist()


def test_too_few_units_are_trained_without_a_guarantee_or_refused() -> None:
    X, y = WINE
    with pytest.warns(
        UncertifiedWarning, match=r"implicit/spectral fails: the features have full row rank.*use a width"
    ):
        model = ImplicitClassifier(10, tol=0.5, random_state=0).fit(X, y)
    assert not model.certificate_.holds and model.score(X, y) > 0.8
    with pytest.raises(sf.nn.NotCertifiable, match="width is 10"):
        ImplicitClassifier(10, require_certificate=True).fit(X, y)


def test_a_plain_classifier_has_converged_provably(tmp_path: Path) -> None:
    model, (X, _) = plain(), IRIS
    cert = model.certificate_
    assert cert.holds and cert.theorem == "feed-forward/minimum" and cert.radius is not None and cert.radius < 1e-10
    assert model.run_.iterations == 0 < model.n_iter_ and model.audit_.holds
    assert check(model.save(tmp_path / "run")).outcome is Outcome.ACCEPT
    probabilities = model.predict_proba(X)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(X)))
    assert model.predict(X).tolist() == model.classes_[probabilities.argmax(axis=1)].tolist()


def test_the_gradient_of_the_stated_objective_vanishes_there() -> None:
    """Of the mean cross-entropy of standardised inputs and the weight decay, written out."""
    model, (X, y) = plain(), IRIS
    scaled = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    size = sum(weight.square().sum() for weight in model.network_.parameters())
    value = torch.nn.functional.cross_entropy(model.network_(scaled), torch.from_numpy(y)) + 0.5 * 0.03 * size
    gradients = torch.autograd.grad(value, list(model.network_.parameters()))
    assert max(float(gradient.abs().max()) for gradient in gradients) < 1e-14


def test_a_plain_regressor_maps_predictions_back() -> None:
    X, labels = IRIS
    Y = np.column_stack([100.0 + 50.0 * labels, X[:, 0]])
    model = FeedForwardRegressor((2,), random_state=0).fit(X, Y)
    assert model.certificate_.holds and model.predict(X).shape == Y.shape and model.score(X, Y) > 0.9
    flat = FeedForwardRegressor((1,), random_state=0).fit(X, Y[:, 0])
    assert flat.predict(X).shape == (len(X),) and abs(flat.predict(X).mean() - Y[:, 0].mean()) < 5.0


def test_networks_that_have_no_certificate_of_a_minimum_are_refused() -> None:
    X, y = IRIS
    with pytest.raises(ValueError, match=r"hidden_layer_sizes is .* at most 5,000: use fewer units"):
        FeedForwardClassifier((1000,)).fit(X, y)
    with pytest.raises(ValueError, match=r"unknown activation 'relu'; .*known: elu, gelu"):
        FeedForwardClassifier(activation="relu").fit(X, y)
    with pytest.raises(ValueError, match=r"weight_decay is 0.0; it must be a positive number"):
        FeedForwardClassifier(weight_decay=0.0).fit(X, y)
