"""Two-layer linear networks: what least squares and ridge regression fit, by certified gradient descent."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight

from .._core.descent import certify
from .._core.losses import SquaredLoss
from .._core.validate import nonnegative, positive_integer, unknown
from .._two_layer.network import TwoLayerLinear
from .base import Array, CertifiedEstimator, classes, decided, indicators, outputs


class _TwoLayer(CertifiedEstimator):
    """The linear map, and its training."""

    network_: TwoLayerLinear
    coef_: Array
    intercept_: Any
    _slow = "raise max_iter, or scale the inputs, such as by StandardScaler"

    def __init__(
        self,
        alpha: float = 0.0,
        *,
        fit_intercept: bool = True,
        width: int | None = None,
        init: Literal["certifiable", "gaussian"] = "certifiable",
        moved: float = 1e-3,
        tol: float = 1e-10,
        max_iter: int = 1000,
        require_certificate: bool = False,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.width = width
        self.init = init
        self.moved = moved
        self.tol = tol
        self.max_iter = max_iter
        self.require_certificate = require_certificate
        self.random_state = random_state

    def _train(self, X: Array, Y: Array, sample_weight: Any) -> None:
        """Train on rows X (N, n) and targets Y (N, m)."""
        limits, alpha = self._limits(), nonnegative("alpha", self.alpha)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64)
        loss = SquaredLoss(X, Y, l2=alpha, intercept=self.fit_intercept, sample_weight=weights)
        net = self._network(loss)
        self._descend(net, loss, certify(net, loss), *limits)
        W = net.end_to_end().detach()
        self.coef_, self.intercept_ = W.T.numpy().copy(), loss.intercept(W).numpy()

    def _network(self, loss: SquaredLoss) -> TwoLayerLinear:
        """With its initial weights."""
        n, m = loss.shape
        if self.init == "certifiable":
            return TwoLayerLinear.certifiable(loss, self.width, moved=self.moved, seed=self._seed())
        if self.init != "gaussian":
            raise unknown("init", self.init, ["certifiable", "gaussian"])
        width = 2 * (n + m) if self.width is None else positive_integer("width", self.width)
        return TwoLayerLinear.gaussian(n, m, width, std=width**-0.5, seed=self._seed())

    def _outputs(self, X: Any) -> Array:
        """Of the network with the intercept, (N, m)."""
        rows = self._rows(X)
        return outputs(self.network_, rows) + self.intercept_


class TwoLayerRegressor(MultiOutputMixin, RegressorMixin, _TwoLayer):
    """Least squares or ridge regression by a two-layer linear network XW₁W₂ᵀ whose training is certified beforehand.

    It minimises ½‖XW₁W₂ᵀ + b - Y‖² + ½ ``alpha`` ‖W₁W₂ᵀ‖², so that it predicts what ``LinearRegression`` or ``Ridge`` of the
    same ``alpha`` does, up to ``tol``. What is added is ``certificate_``: the number of iterations that was guaranteed before
    the first one (``certificate_.iterations_to(tol)``), which ``surefoot-check`` proves. The intercept is eliminated exactly, by
    the means of the rows; data of deficient rank is reduced to its numerical rank, and then the certificate speaks of the reduced
    arrays (``certificate_.cut``). Columns are not scaled: put a ``StandardScaler`` before it, as the guaranteed count grows with
    the condition number of the data.

    Args:
        alpha: λ ≥ 0 of the ridge penalty.
        fit_intercept: whether there is an intercept, which is not penalised.
        width: h, with certifiable weights at least n + m, which is the default; with Gaussian ones 2 (n + m) by default.
        init: ``"certifiable"``, rows of W₁ and W₂ that are a multiple of orthonormal ones; or ``"gaussian"``, N(0, 1/h).
        moved: how far certifiable weights shall move, relative to their norm: their multiple follows from it. The less, the fewer
            iterations are guaranteed, and the lazier the training.
        tol: stop at this gap to the least value, relative to the first one.
        max_iter: limit on the iterations.
        require_certificate: raise ``NotCertifiable`` where no certificate holds, instead of an ``UncertifiedWarning``.
        random_state: of the initial weights, as everywhere in scikit-learn.

    Attributes:
        coef_: W₁W₂ᵀ transposed, (n,), or (m, n) for y (N, m).
        intercept_: b, a number, or (m,) for y (N, m).
        network_: the ``sf.nn.TwoLayerLinear``; predictions are its outputs plus ``intercept_``.
        certificate_, run_, audit_: as ``sf.certify``, ``sf.descend`` and ``run.audit()`` give them; ``save`` writes them.
        n_iter_: iterations taken.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> from sklearn.linear_model import LinearRegression
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = sf.estimators.TwoLayerRegressor(random_state=0).fit(X, y)
        >>> model.certificate_.holds, model.n_iter_ <= model.certificate_.iterations_to(1e-10) < 200
        (True, True)
        >>> round(model.score(X, y), 4) == round(LinearRegression().fit(X, y).score(X, y), 4)
        True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Certify, train and audit.

        Args:
            X: (N, n), dense; computed with in float64.
            y: (N,) or (N, m).
            sample_weight: (N,), at least 0, by which the squares are weighted.

        Raises:
            NotCertifiable: no certificate holds, and one is required.
            TypeError, ValueError: data or parameters that do not fit.
        """
        least = 2 if self.fit_intercept else 1
        X, y = self._data(X, y, multi_output=True, y_numeric=True, ensure_min_samples=least)
        self._train(X, np.asarray(y, dtype=np.float64).reshape(len(X), -1), sample_weight)
        if y.ndim == 1:
            self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        return self

    def predict(self, X: Any) -> Array:
        """Float64 (N,) or (N, m), as y was, at X (N, n)."""
        found = self._outputs(X)
        return found[:, 0] if self.coef_.ndim == 1 else found


class TwoLayerClassifier(ClassifierMixin, _TwoLayer):
    """Classification by the signs of a two-layer linear network XW₁W₂ᵀ that is trained with a certificate.

    The targets of its squared loss are 1 for the class of a row and -1 for the others, one column each, or one column for two
    classes, so that it decides as ``RidgeClassifier`` of the same ``alpha`` does. All else is as in ``TwoLayerRegressor``, the
    arguments too. Squared loss has no probabilities: ``decision_function`` takes their place (``CalibratedClassifierCV`` makes
    some of it).

    Attributes:
        classes_: (C,), in order.
        coef_: (1, n) for two classes, else (C, n).
        intercept_: (1,) or (C,).
        network_, certificate_, run_, audit_, n_iter_, n_features_in_, feature_names_in_: as in ``TwoLayerRegressor``.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = sf.estimators.TwoLayerClassifier(alpha=1.0, random_state=0).fit(X, y)
        >>> model.certificate_.holds, model.audit_.holds, round(model.score(X, y), 2)
        (True, True, 0.85)
    """

    classes_: Array

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Certify, train and audit.

        Args:
            X: (N, n), dense; computed with in float64.
            y: (N,) labels of any kind, of at least two classes.
            sample_weight: (N,), at least 0, by which the squares are weighted.

        Raises:
            NotCertifiable: no certificate holds, and one is required.
            TypeError, ValueError: data or parameters that do not fit.
        """
        X, y = self._data(X, y)
        self.classes_, labels = classes(y)
        self._train(X, indicators(labels), sample_weight)
        return self

    def decision_function(self, X: Any) -> Array:
        """Float64 (N,), positive for the second of two classes, or (N, C), largest for the class that is predicted."""
        found = self._outputs(X)
        return found[:, 0] if len(self.classes_) == 2 else found

    def predict(self, X: Any) -> Array:
        """Labels (N,) at X (N, n)."""
        return decided(self.decision_function(X), self.classes_)
