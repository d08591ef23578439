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

ESTIMATORS = {
    TwoLayerRegressor(): (
        "check_estimator_cloneable",
        "check_estimators_fit_returns_self",
        "check_sample_weights_pandas_series",
        "check_dtype_object",
        "check_estimators_pickle",
        "check_regressor_multioutput",
        "check_methods_subset_invariance",
    ),
    TwoLayerClassifier(): (
        "check_mixin_order",
        "check_estimators_empty_data_messages",
        "check_classifiers_one_label_sample_weights",
        "check_methods_sample_order_invariance",
        "check_n_features_in",
    ),
    ImplicitClassifier(tol=0.2): ("check_valid_tag_types", "check_estimator_repr"),
    FeedForwardClassifier((2,), max_iter=30): ("check_estimator_repr", "check_requires_y_none"),
    FeedForwardRegressor((2,), max_iter=30): ("check_no_attributes_set_in_init", "check_complex_data"),
}
"""With the settings that are asked about, and the checks of which the fast tests ask."""
OPTIONAL = "check_array_api_input"
"""Left out: it asks nothing where SCIPY_ARRAY_API is not set, and no array but NumPy's is promised."""


def checks() -> Iterator[Any]:
    """The checks of every estimator; a part of them is fast."""
    for estimator, fast in ESTIMATORS.items():
        for instance, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            if name != OPTIONAL:
                marks = () if name in fast else pytest.mark.slow
                yield pytest.param(check, instance, id=f"{type(estimator).__name__}-{name}", marks=marks)


@pytest.mark.filterwarnings("ignore::surefoot.estimators.UncertifiedWarning")  # data of many kinds, some of which fail
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("check", "estimator"), list(checks()))
def test_scikit_learn_finds_what_it_asks_for(check: Callable[[Any], None], estimator: Any) -> None:
    check(estimator)
