"""Plain networks, trained until a strict local minimum of the training objective is certain to be near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy.special import softmax
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from torch import nn

from .._core.descent import certify
from .._core.validate import positive, positive_integer, unknown
from .._feed_forward.drawn import NAMES, drawn_network
from .._feed_forward.newton import finish
from .._feed_forward.objective import TorchLoss
from .._feed_forward.steps import Newton
from .._feed_forward.training import fit
from .base import Array, CertifiedEstimator, classes, outputs, scaler

SMOOTH = [name for name in NAMES if name not in ("relu", "leaky-relu", "hard-tanh")]
"""Activations whose minima a certificate can be about: those of the others lie on kinks."""
FINISH = 50
"""Newton steps at most."""


class _FeedForward(CertifiedEstimator):
    """The network, and its training."""

    network_: nn.Sequential
    scaler_: StandardScaler
    _slow = "raise max_iter, or weight_decay"

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (8,),
        activation: str = "tanh",
        *,
        weight_decay: float = 1e-2,
        max_iter: int = 1000,
        require_certificate: bool = False,
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.require_certificate = require_certificate
        self.random_state = random_state

    def _train(self, criterion: nn.Module, X: Array, targets: Array, width: int) -> None:
        """L-BFGS, Newton steps, the certificate of what they reach, and the record of it; ``width`` is that of the outputs."""
        if self.activation not in SMOOTH:
            raise unknown("activation", self.activation, SMOOTH)
        decay, limit = positive("weight_decay", self.weight_decay), positive_integer("max_iter", self.max_iter)
        hidden = [positive_integer("hidden_layer_sizes", h) for h in np.atleast_1d(self.hidden_layer_sizes).tolist()]
        self.scaler_ = scaler("X", X)
        net = drawn_network([X.shape[1], *hidden, width], self.activation, self._seed())
        trained = sum(weight.numel() for weight in net.parameters())
        if trained > Newton.LARGEST:
            raise ValueError(
                f"hidden_layer_sizes is {self.hidden_layer_sizes}, which makes {trained:,} trained numbers of {X.shape[1]} "
                f"features; the Hessian of a minimum is taken of at most {Newton.LARGEST:,}: use fewer units, or PCA before"
            )
        loss = TorchLoss(criterion, self.scaler_.transform(X), torch.from_numpy(targets), decay)
        steps = fit(net, loss, "lbfgs", None, limit).iteration
        steps += len(finish(net, loss, Newton(), FINISH)) - 1
        self._descend(net, loss, certify(net, loss), 0.0, 0, steps)

    def _outputs(self, X: Any) -> Array:
        """Of the network, (N, m)."""
        rows = self._rows(X)
        return outputs(self.network_, np.asarray(self.scaler_.transform(rows)))


class FeedForwardRegressor(MultiOutputMixin, RegressorMixin, _FeedForward):
    """Regression by a plain network that is trained until it has provably converged: what ``MLPRegressor`` leaves open.

    L-BFGS minimises ``nn.MSELoss`` + ½ ``weight_decay`` ‖weights and biases‖² on all rows, some Newton steps follow, and
    ``feed-forward/minimum`` is asked of the weights that they reach: where ``certificate_.holds``, a strict local minimum of
    this objective lies within ``certificate_.radius`` of them, often of 1e-13, and its value is at most
    ``certificate_.quantities["loss_gap"]`` below theirs. Nothing is said of other minima, or of test error. The columns of X
    and y are standardised before, and predictions mapped back: the objective is that of the standardised data.

    Args:
        hidden_layer_sizes: widths of the hidden layers; at most 5,000 weights and biases in all.
        activation: ``"tanh"``, ``"sigmoid"``, ``"softplus"``, ``"silu"``, ``"gelu"`` or ``"elu"``; minima of ReLU networks lie on
            kinks.
        weight_decay: positive.
        max_iter: limit on the steps of L-BFGS.
        require_certificate: raise ``NotCertifiable`` where no certificate holds, instead of an ``UncertifiedWarning``.
        random_state: of the initial weights, as everywhere in scikit-learn.

    Attributes:
        scaler_, target_scaler_: the ``StandardScaler`` of X and that of y.
        network_: a ``torch.nn.Sequential``, from scaled inputs to scaled targets.
        certificate_, audit_: as ``sf.certify`` and ``run.audit()`` give them.
        run_: the record of the weights that were reached, from which no more steps are taken; ``save`` writes it.
        n_iter_: steps of L-BFGS and of Newton's method.
        n_features_in_, feature_names_in_: as everywhere in scikit-learn.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = sf.estimators.FeedForwardRegressor((2,), random_state=0).fit(X[::5], y[::5])
        >>> model.certificate_.holds, model.certificate_.radius < 1e-9
        (True, True)
    """

    target_scaler_: StandardScaler

    def fit(self, X: Any, y: Any) -> Self:
        """Train, certify and audit.

        Args:
            X: (N, n), dense; computed with in float64.
            y: (N,) or (N, m).

        Raises:
            NotCertifiable: no certificate holds, and one is required.
            TypeError, ValueError: data or parameters that do not fit.
        """
        X, y = self._data(X, y, multi_output=True, y_numeric=True)
        Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
        self.target_scaler_ = scaler("y", Y)
        self._flat = y.ndim == 1
        self._train(nn.MSELoss(), X, np.asarray(self.target_scaler_.transform(Y)), Y.shape[1])
        return self

    def predict(self, X: Any) -> Array:
        """Float64 (N,) or (N, m), as y was, at X (N, n)."""
        scaled = self._outputs(X)
        found = np.asarray(self.target_scaler_.inverse_transform(scaled))
        return found[:, 0] if self._flat else found


class FeedForwardClassifier(ClassifierMixin, _FeedForward):
    """Classification by a plain network that is trained until it has provably converged: what ``MLPClassifier`` leaves open.

    As ``FeedForwardRegressor``, the arguments too, with ``nn.CrossEntropyLoss`` of an output for each class.

    Attributes:
        classes_: (C,), in order.
        network_: a ``torch.nn.Sequential``, from scaled inputs to logits.
        certificate_, run_, audit_, n_iter_, scaler_, n_features_in_, feature_names_in_: as in ``FeedForwardRegressor``.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = sf.estimators.FeedForwardClassifier((2,), random_state=0).fit(X[::5], y[::5])
        >>> model.certificate_.holds, model.score(X, y) > 0.9, model.predict_proba(X).shape
        (True, True, (150, 3))
    """

    classes_: Array

    def fit(self, X: Any, y: Any) -> Self:
        """Train, certify and audit.

        Args:
            X: (N, n), dense; computed with in float64.
            y: (N,) labels of any kind, of at least two classes.

        Raises:
            NotCertifiable: no certificate holds, and one is required.
            TypeError, ValueError: data or parameters that do not fit.
        """
        X, y = self._data(X, y)
        self.classes_, labels = classes(y)
        self._train(nn.CrossEntropyLoss(), X, labels, len(self.classes_))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, float64 (N, C), at X (N, n)."""
        return softmax(self._outputs(X), axis=1)

    def predict(self, X: Any) -> Array:
        """Labels (N,) at X (N, n)."""
        found = self._outputs(X)
        return self.classes_[found.argmax(axis=1)]
