"""What scikit-learn asks of every estimator. The fast tests ask a part of it of each; the slow tests ask all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from surefoot.estimators import (
    FeedForwardClassifier,
    FeedForwardRegressor,
    ImplicitClassifier,
    TwoLayerClassifier,
    TwoLayerRegressor,
)

ESTIMATORS = (
    (TwoLayerRegressor(), 8),
    (TwoLayerClassifier(), 12),
    (ImplicitClassifier(tol=0.2), 24),
    (FeedForwardClassifier((4,), max_iter=60), 24),
    (FeedForwardRegressor((4,), max_iter=60), 24),
)
"""With the settings that are asked about, and one in how many of the checks is fast."""
OPTIONAL = "check_array_api_input"
"""Left out: it asks nothing where SCIPY_ARRAY_API is not set, and no array but NumPy's is promised."""


def checks() -> Iterator[Any]:
    """The checks of every estimator; each one is fast for some of them."""
    for start, (estimator, every) in enumerate(ESTIMATORS):
        for place, (instance, check) in enumerate(estimator_checks_generator(estimator)):
            name = check.func.__name__
            if name == OPTIONAL:
                continue
            marks = () if place % every == start else pytest.mark.slow
            yield pytest.param(check, instance, id=f"{type(estimator).__name__}-{name}", marks=marks)


@pytest.mark.filterwarnings("ignore::surefoot.estimators.UncertifiedWarning")  # data of many kinds, some of which fail
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("check", "estimator"), list(checks()))
def test_scikit_learn_finds_what_it_asks_for(check: Callable[[Any], None], estimator: Any) -> None:
    check(estimator)
