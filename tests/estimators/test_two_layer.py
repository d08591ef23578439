"""Two-layer estimators: what they predict, what is certified, and what goes into a run directory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge, RidgeClassifier

import surefoot as sf
from surefoot.estimators import (
    FeedForwardClassifier,
    ImplicitClassifier,
    TwoLayerClassifier,
    TwoLayerRegressor,
    UncertifiedWarning,
)
from surefoot_check import Outcome, check


def data(rows: int = 40, outputs: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (rows, 4) and targets (rows, outputs) that no linear map fits, with means other than 0."""
    rng = np.random.default_rng(0)
    X = rng.normal(1.0, 1.0, (rows, 4))
    return X, 3.0 + X @ rng.normal(size=(4, outputs)) + rng.normal(size=(rows, outputs))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_network_predicts_what_ridge_regression_does(fit_intercept: bool) -> None:
    X, Y = data(outputs=2)
    weights = np.arange(len(X)) % 3
    settings = {"alpha": 0.5, "fit_intercept": fit_intercept}
    ours = TwoLayerRegressor(**settings, tol=1e-14, random_state=0).fit(X, Y, weights)
    theirs = Ridge(**settings).fit(X, Y, weights)
    assert ours.predict(X) == pytest.approx(theirs.predict(X), abs=1e-5)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-5)
    assert ours.predict(X) == pytest.approx(X @ ours.coef_.T + ours.intercept_, abs=1e-12)


def test_shapes_follow_those_of_y() -> None:
    X, Y = data()
    flat, column = (TwoLayerRegressor(random_state=0).fit(X, y) for y in (Y[:, 0], Y))
    assert flat.predict(X).shape == (40,) and column.predict(X).shape == (40, 1)
    assert flat.coef_.shape == (4,) and column.coef_.shape == (1, 4)
    assert isinstance(flat.intercept_, float) and column.intercept_.shape == (1,)


def test_what_was_guaranteed_beforehand_is_what_the_run_needs(tmp_path: Path) -> None:
    model = TwoLayerRegressor(random_state=0).fit(*load_diabetes(return_X_y=True))
    assert model.certificate_.holds and model.audit_.holds
    assert 1 <= model.n_iter_ == model.run_.iterations <= model.certificate_.iterations_to(model.tol) < 200
    assert check(model.save(tmp_path / "run")).outcome is Outcome.ACCEPT
    assert sf.Run.load(tmp_path / "run").certificate.to_json() == model.certificate_.to_json()


def test_data_of_deficient_rank_is_reduced_and_said_to_be() -> None:
    X, y = data()
    model = TwoLayerRegressor(random_state=0).fit(np.hstack([X, X[:, :1]]), y)
    cut = model.certificate_.cut
    assert model.certificate_.holds and cut is not None and (cut.directions, cut.kept) == (5, 4)
    assert model.score(np.hstack([X, X[:, :1]]), y) == pytest.approx(Ridge(0.0).fit(X, y).score(X, y), abs=1e-6)


def test_an_exact_linear_relation_is_fitted_without_a_warning_of_numpy() -> None:
    """The condition number is so large that some orders of the prescribed steps overflow while they are compared."""
    X, y = data()
    X = np.hstack([X, y])
    assert TwoLayerRegressor(random_state=0).fit(X, X @ [1.0, 0.0, 0.0, 0.0, 2.0]).certificate_.holds


def test_a_fit_that_fails_leaves_nothing_of_the_one_before() -> None:
    """Its classes or scales would be mixed with the network and the certificate of the other one."""
    X, y = data()
    for model in (TwoLayerClassifier(random_state=0), FeedForwardClassifier((1,), random_state=0)):
        model.fit(X, y[:, 0] > y.mean())
        with pytest.raises(ValueError, match="max_iter is -1"):
            model.set_params(max_iter=-1).fit(X[:, :2], y[:, 0] > 3.0)
        assert not hasattr(model, "certificate_") and not hasattr(model, "network_")
        with pytest.raises(NotFittedError):
            model.predict(X)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_columns_whose_variance_is_no_number_are_refused(size: float) -> None:
    X, y = data()
    X[:, 1] *= size
    for model in (ImplicitClassifier(), FeedForwardClassifier()):
        with pytest.raises(
            ValueError, match=r"column 1 of X \(0-based\) reaches .* out of the range of float64; multiply"
        ):
            model.fit(X, y[:, 0] > y.mean())


@pytest.mark.parametrize("classes", [2, 3])
def test_the_classifier_decides_as_ridge_does(classes: int) -> None:
    X, y = load_iris(return_X_y=True)
    X, y = X[y < classes][::3], np.array(["setosa", "versicolor", "virginica"])[y[y < classes]][::3]
    ours, theirs = TwoLayerClassifier(alpha=1.0, random_state=0).fit(X, y), RidgeClassifier(alpha=1.0).fit(X, y)
    assert ours.decision_function(X) == pytest.approx(theirs.decision_function(X), abs=1e-3)
    assert (ours.predict(X) == theirs.predict(X)).all() and list(ours.classes_) == list(theirs.classes_)


def test_an_iteration_limit_that_comes_first_is_a_warning() -> None:
    with pytest.warns(ConvergenceWarning, match=r"not converged after 1 step, at 0.*: raise max_iter, or scale"):
        model = TwoLayerRegressor(max_iter=1, random_state=0).fit(*data())
    assert model.n_iter_ == 1 and model.certificate_.holds


NARROW = {"init": "gaussian", "width": 2, "random_state": 0}
"""Too narrow for two outputs of four inputs to be certified from such weights."""


def test_a_fit_without_a_certificate_says_so() -> None:
    X, Y = data(outputs=2)
    with pytest.warns(
        UncertifiedWarning, match=r"two-layer/drift fails: .*alpha1 > 0; alpha1 > 0 almost surely .* this network has 2"
    ):
        model = TwoLayerRegressor(**NARROW).fit(X, Y)
    assert not model.certificate_.holds and model.predict(X).shape == (40, 2)


def test_a_certificate_that_is_required_is_an_error_where_there_is_none() -> None:
    model = TwoLayerRegressor(require_certificate=True, **NARROW)
    with pytest.raises(sf.nn.NotCertifiable, match=r"two-layer/drift fails: .*alpha1 > 0"):
        model.fit(*data(outputs=2))
    with pytest.raises(NotFittedError):
        model.save("runs/none")


def test_gaussian_weights_are_certified_where_they_are_wide_enough() -> None:
    model = TwoLayerRegressor(init="gaussian", random_state=0).fit(*data())
    assert model.certificate_.theorem == "two-layer/drift" and model.certificate_.holds
    assert model.run_.moved is not None and model.run_.moved > 0.01


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"init": "gausian"}, "unknown init 'gausian'; did you mean 'gaussian'"),
        ({"alpha": -1.0}, "alpha is -1.0; it must be a finite number of at least 0"),
        ({"init": "gaussian", "width": 0}, "width is 0; it must be an integer of at least 1"),
        ({"width": 3}, "width is 3; n \\+ m = 5 orthonormal rows need a width of at least 5"),
        ({"max_iter": 1.5}, "max_iter is 1.5; it must be an integer of at least 1"),
        ({"tol": -1.0}, "tol is -1.0"),
    ],
)
def test_parameters_that_do_not_fit(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TwoLayerRegressor(**settings).fit(*data())  # pyright: ignore[reportArgumentType]


def test_an_interrupted_fit_interrupts_what_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search over parameters is to end, and not to go on with the next ones."""
    import signal

    class Stopped:
        signal_number = signal.SIGINT

        def __enter__(self) -> Stopped:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr("surefoot._core.descent.StopRequest", Stopped)
    with pytest.raises(KeyboardInterrupt):
        TwoLayerRegressor(random_state=0).fit(*data())
