"""Estimators in the tools of scikit-learn: pipelines, searches, cross-validation, copies and data frames."""

from __future__ import annotations

import io
import pickle
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from surefoot.estimators import FeedForwardClassifier, ImplicitClassifier, TwoLayerClassifier, TwoLayerRegressor

X, Y = (array[::5] for array in load_iris(return_X_y=True))
CLASSIFIERS = (TwoLayerClassifier(), ImplicitClassifier(tol=0.5), FeedForwardClassifier((2,)))


def test_a_search_over_the_parameters_of_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), TwoLayerClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"twolayerclassifier__alpha": np.array([0.1, 10.0])}, cv=2).fit(X, Y)
    assert search.best_estimator_[-1].certificate_.holds and search.best_score_ > 0.7


def test_cross_validation() -> None:
    scores = cross_val_score(TwoLayerClassifier(random_state=0), X, Y, cv=2, error_score="raise")
    assert scores.shape == (2,) and scores.min() > 0.6


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
def test_fitted_estimators_are_stored_and_read_back(model: Any) -> None:
    """What is read back has the same predictions, and the same certificate, run and audit."""
    model = clone(model).set_params(random_state=0).fit(X, Y)
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(model)), joblib.load(file)):
        assert other.predict(X).tolist() == model.predict(X).tolist()
        assert other.certificate_ == model.certificate_ and other.run_.gaps == model.run_.gaps
        assert other.audit_.holds
    assert not hasattr(clone(model), "certificate_") and clone(model).get_params() == model.get_params()


def test_the_same_seed_gives_the_same_network_and_leaves_the_global_one_alone() -> None:
    import torch

    state = torch.get_rng_state()
    first, second, third = (FeedForwardClassifier((1,), random_state=seed).fit(X[::6], Y[::6]) for seed in (0, 0, 1))
    assert (first.predict_proba(X) == second.predict_proba(X)).all()
    assert not (first.predict_proba(X) == third.predict_proba(X)).all()
    assert torch.equal(torch.get_rng_state(), state)


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
    model = TwoLayerRegressor(random_state=0).fit(frame, frame["a"] + 1.0)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"] and model.n_features_in_ == 4
    assert model.predict(frame) == pytest.approx(X[:, 0] + 1.0, abs=1e-3)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["b", "a", "c", "d"]])


def test_columns_of_several_kinds() -> None:
    pandas = pytest.importorskip("pandas")
    kinds = np.array(["red", "green", "blue"])[Y]
    frame = pandas.DataFrame({"length": X[:, 0], "width": X[:, 1], "colour": kinds})
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), ["length", "width"]), ("kinds", OneHotEncoder(), ["colour"])]
    )
    model = make_pipeline(columns, TwoLayerClassifier(random_state=0)).fit(frame, kinds)
    assert model[-1].certificate_.holds and model.score(frame, kinds) == 1.0


@pytest.mark.parametrize("model", [*CLASSIFIERS, TwoLayerRegressor()], ids=lambda model: type(model).__name__)
def test_a_missing_value_is_refused_with_what_scikit_learn_says(model: Any) -> None:
    damaged = X.copy()
    damaged[3, 1] = np.nan
    with pytest.raises(
        ValueError, match=f"Input X contains NaN.\n{type(model).__name__} does not accept missing values"
    ):
        clone(model).fit(damaged, Y)


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
def test_one_class_is_none_to_tell_apart(model: Any) -> None:
    with pytest.raises(ValueError, match=r"y has 1 class, .*at least 2 classes"):
        clone(model).fit(X, np.zeros(len(X)))


def test_float32_is_computed_with_in_float64() -> None:
    narrow = X[:, :2].astype(np.float32)
    single, double = (TwoLayerRegressor(random_state=0).fit(rows, Y) for rows in (narrow, narrow.astype(np.float64)))
    assert single.predict(narrow).dtype == np.float64
    assert (single.predict(narrow) == double.predict(narrow.astype(np.float64))).all()
