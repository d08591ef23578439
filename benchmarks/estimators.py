"""Estimators of scikit-learn on its bundled data: score on held-out rows, processor time as a ratio to scikit-learn's own, and
what is guaranteed of each fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from checker import timed
from report import Report, Shown, one_thread, parser
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from surefoot.estimators import (
    FeedForwardClassifier,
    FeedForwardRegressor,
    ImplicitClassifier,
    TwoLayerClassifier,
    TwoLayerRegressor,
)

HIDDEN = (8,)
"""Of all plain networks."""
PLAIN = {"hidden_layer_sizes": HIDDEN, "activation": "tanh", "max_iter": 2000, "random_state": 0}
"""Those of scikit-learn."""
LIKE = {"alpha": 1.0}
"""The penalty of all linear maps."""
LOADERS: dict[str, Callable[..., Any]] = {
    "diabetes": load_diabetes,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}


@dataclass(frozen=True)
class Sizes:
    """Of which data, so many rows at most, and so many for implicit networks; repeats of a timing."""

    data: tuple[str, ...]
    rows: int
    implicit: int
    repeats: int


FULL, SMOKE = Sizes(tuple(LOADERS), 10_000, 300, 2), Sizes(("diabetes", "breast cancer"), 60, 20, 1)


def candidates(regression: bool) -> list[tuple[str, list[Any]]]:
    """By what they fit, scikit-learn's first: the times of the others are ratios to it."""
    if regression:
        return [
            ("linear map", [Ridge(**LIKE), TwoLayerRegressor(**LIKE, random_state=0)]),
            (
                "plain network",
                [
                    TransformedTargetRegressor(MLPRegressor(**PLAIN), transformer=StandardScaler()),
                    FeedForwardRegressor(HIDDEN, random_state=0),
                ],
            ),
        ]
    return [
        ("linear map", [RidgeClassifier(**LIKE), TwoLayerClassifier(**LIKE, random_state=0), LogisticRegression()]),
        (
            "plain network",
            [
                MLPClassifier(**PLAIN),
                FeedForwardClassifier(HIDDEN, random_state=0),
            ],
        ),
        ("some rows", [MLPClassifier(max_iter=2000, random_state=0), ImplicitClassifier(random_state=0)]),
    ]


def said(model: Any) -> list[object]:
    """What is guaranteed of a fit, iterations guaranteed and taken; of scikit-learn's nothing."""
    cert = getattr(model, "certificate_", None)
    if cert is None:
        return ["-", "-", "-"]
    if not cert.holds:
        return ["nothing", "-", model.n_iter_]
    if cert.radius is not None:
        return [f"a minimum within {cert.radius:.0e}", "-", model.n_iter_]
    return [f"gap of {model.tol:g}", cert.iterations_to(model.tol), model.n_iter_]


def table(report: Report, name: str, sizes: Sizes) -> None:
    """Print the table of one data set."""
    X, y = LOADERS[name](return_X_y=True)
    regression = y.dtype.kind == "f"
    X, y = X[: sizes.rows], y[: sizes.rows]
    train, test, of_train, of_test = train_test_split(X, y, random_state=0, stratify=None if regression else y)
    rows: list[list[object]] = []
    for kind, models in candidates(regression):
        some = slice(sizes.implicit if kind == "some rows" else None)
        reference = 0.0
        for model in models:
            pipeline = make_pipeline(StandardScaler(), model)
            took, _ = timed(lambda p=pipeline, s=some: p.fit(train[s], of_train[s]), sizes.repeats)
            reference = reference or took
            score = pipeline.score(test, of_test)
            ratio = Shown(took / reference, "{:.3g}x")
            fitted = len(train[some])
            named = type(getattr(model, "regressor", model)).__name__
            rows.append([kind, named, fitted, Shown(score, "{:.3f}"), took, ratio, *said(pipeline[-1])])
    score = "R²" if regression else "accuracy"
    report.table(
        f"{name}, {X.shape[1]} columns, standardised: {score} on {len(test)} other rows",
        ["what", "estimator", "rows", score, "processor seconds", "/ first", "guaranteed", "within", "steps"],
        rows,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each data set."""
    report = Report(parser(__doc__), arguments)
    one_thread()
    sizes = SMOKE if report.smoke else FULL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last column has the steps
        for name in sizes.data:
            table(report, name, sizes)


if __name__ == "__main__":
    main()
