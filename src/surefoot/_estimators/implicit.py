"""Infinite-depth ReLU networks: classification by certified gradient descent on all weights."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import StandardScaler

from .._core.descent import certify
from .._core.losses import SquaredLoss
from .._core.refusals import NotCertifiable
from .._core.validate import positive_integer
from .._data.parallel_rows import MergedRows, merge_rows
from .._implicit.network import ImplicitReLU
from .base import Array, CertifiedEstimator, classes, decided, indicators, outputs, scaler

GAMMA = 0.5
"""γ where no scale of the weights is certified."""


class ImplicitClassifier(ClassifierMixin, CertifiedEstimator):
    """Classification by an infinite-depth ReLU network, z = relu(γzA + relu(xW)), ŷ = zb, that is certified before it is trained.

    The scale of the weights is chosen such that descent to an exact fit of the targets is guaranteed, at a known rate
    (``implicit/spectral``). At that scale the features hardly move: what is trained is in effect a linear readout of random
    equilibrium features. The guarantee needs more units than rows, so that this is for hundreds of rows, not thousands.

    What is done before: columns are standardised, a constant 1 is appended to each row, for an intercept, and the row divided by
    its norm, so that rows are parallel only where they are equal; equal ones are merged into one, which changes the loss by a
    constant (``sf.data.merge_rows``). Targets are 1 for the class of a row and -1 for the others, one column each, or one column
    for two classes, less their means over the rows, which predictions add again (``intercept_``). ``certificate_`` and ``run_``
    speak of the merged rows.

    Args:
        width: m; by default twice as many units as rows that differ, but at least the inputs.
        tol: stop at this loss, relative to the first one. Training ends before the fit is exact, as it would on labels that carry
            noise.
        max_iter: limit on the iterations.
        require_certificate: raise ``NotCertifiable`` where no certificate holds, instead of an ``UncertifiedWarning``.
        random_state: of W, as everywhere in scikit-learn.

    Attributes:
        classes_: (C,), in order.
        intercept_: the means of the targets, (1,) for two classes, else (C,).
        scaler_: the ``StandardScaler`` of X.
        network_: the ``sf.nn.ImplicitReLU``, of rows (x, 1) of norm 1.
        certificate_, run_, audit_: as ``sf.certify``, ``sf.descend`` and ``run.audit()`` give them; ``save`` writes them.
        n_iter_: iterations taken.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> model = sf.estimators.ImplicitClassifier(random_state=0).fit(X[::3], y[::3])
        >>> model.certificate_.holds, model.score(X, y) > 0.9
        (True, True)
    """

    classes_: Array
    intercept_: Array
    scaler_: StandardScaler
    network_: ImplicitReLU
    _slow = "raise max_iter, or tol"

    def __init__(
        self,
        width: int | None = None,
        *,
        tol: float = 0.1,
        max_iter: int = 200,
        require_certificate: bool = False,
        random_state: Any = None,
    ) -> None:
        self.width = width
        self.tol = tol
        self.max_iter = max_iter
        self.require_certificate = require_certificate
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Choose the scale of the weights, certify, train and audit.

        Args:
            X: (N, n), dense; computed with in float64.
            y: (N,) labels of any kind, of at least two classes.

        Raises:
            NotCertifiable: no certificate holds, and one is required.
            TypeError, ValueError: data or parameters that do not fit.
        """
        X, y = self._data(X, y)
        self.classes_, labels = classes(y)
        self.scaler_ = scaler("X", X)
        self._train(self._inputs(X), indicators(labels))
        return self

    def _train(self, X: Array, Y: Array) -> None:
        """On unit rows X (N, n + 1) and targets Y (N, m)."""
        limits = self._limits()
        self.intercept_ = Y.mean(axis=0)
        merged = merge_rows(X, Y - self.intercept_)
        net, loss = self._network(merged), SquaredLoss(merged.X, merged.Y)
        self._descend(net, loss, certify(net, loss), *limits)

    def _network(self, merged: MergedRows) -> ImplicitReLU:
        """With its initial weights: at a scale that is certified, or those of the paper, where there is none."""
        (N, n), m = merged.X.shape, merged.Y.shape[1]
        width = max(2 * N, n) if self.width is None else positive_integer("width", self.width)
        seed = self._seed()
        try:
            return ImplicitReLU.certifiable(merged.X, merged.Y, width, seed=seed)
        except NotCertifiable:
            if self.require_certificate:
                raise
            return ImplicitReLU.paper(n, width, GAMMA, outputs=m, generator=torch.Generator().manual_seed(seed))

    def _inputs(self, X: Array) -> Array:
        """Rows (x, 1) of norm 1, x standardised, (N, n + 1)."""
        rows = np.column_stack([np.asarray(self.scaler_.transform(X)), np.ones(len(X))])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def decision_function(self, X: Any) -> Array:
        """Float64 (N,), positive for the second of two classes, or (N, C), largest for the class that is predicted."""
        rows = self._rows(X)
        found = outputs(self.network_, self._inputs(rows)) + self.intercept_
        return found[:, 0] if len(self.classes_) == 2 else found

    def predict(self, X: Any) -> Array:
        """Labels (N,) at X (N, n)."""
        return decided(self.decision_function(X), self.classes_)
