"""What every estimator has after a fit: a certificate, the run that it speaks of, and its audit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from surefoot_check.text import counted

from .._core.audit import Audit
from .._core.certificate import Certificate
from .._core.descent import descend
from .._core.losses import Loss
from .._core.refusals import NotCertifiable
from .._core.run import Run
from .._core.status import RunStatus
from .._core.validate import as_tensor, nonnegative, positive_integer

Array = np.ndarray[Any, np.dtype[Any]]


class UncertifiedWarning(UserWarning):
    """The network is fitted, and nothing is guaranteed: a hypothesis of the theorem fails, or the run's audit does not hold."""


class CertifiedEstimator(BaseEstimator):
    """A network, its certificate, and the run from the weights that the certificate speaks of.

    Attributes:
        network_: the trained network, a ``torch.nn.Module`` in float64.
        certificate_: what a theorem says of the training data and the weights at which ``run_`` begins.
        run_: gradient descent from there.
        audit_: of that run.
        n_iter_: steps of all training together.
    """

    network_: Any
    certificate_: Certificate
    run_: Run
    audit_: Audit
    n_iter_: int
    n_features_in_: int
    tol: float
    max_iter: int
    random_state: Any
    require_certificate: bool
    _slow: str
    """What to do where a fit does not converge."""

    def save(self, directory: str | Path) -> Path:
        """Write the run with its certificate, for ``surefoot-check DIRECTORY`` and ``surefoot report DIRECTORY``.

        Args:
            directory: must not exist or be empty.

        Returns:
            The directory.

        Raises:
            NotFittedError: there is no run yet.
            RunDirectoryError: the directory exists and is not empty.
            OSError: it cannot be written.
        """
        check_is_fitted(self)
        return self.run_.save(directory)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a fit has ended; what the data was may be known before."""
        return hasattr(self, "run_")

    def _seed(self) -> int:
        """For the initial weights."""
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _limits(self) -> tuple[float, int]:
        """``tol`` and ``max_iter``; ``TypeError`` or ``ValueError`` where they cannot be."""
        return nonnegative("tol", self.tol), positive_integer("max_iter", self.max_iter)

    def _data(self, X: Any, y: Any, **asked: Any) -> tuple[Array, Array]:
        """X (N, n) float64 and y of a fit, checked as ``validate_data`` does what is asked.

        What an earlier fit left is forgotten, so that one that fails cannot mix its classes or scales with the network and the
        certificate of that one.
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        X, y = validate_data(self, X, y, dtype=np.float64, **asked)
        return np.asarray(X), y

    def _rows(self, X: Any) -> Array:
        """X (N, n) of a prediction, float64; ``NotFittedError`` before a fit, ``ValueError`` where it does not fit that."""
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _descend(
        self, net: nn.Module, loss: Loss, certificate: Certificate, tolerance: float, limit: int, before: int = 0
    ) -> None:
        """Descend, keep what is known of it, and warn where it did not converge or has no guarantee.

        Args:
            net: changed in place.
            loss: what the certificate speaks of.
            certificate: of these weights.
            tolerance: relative gap.
            limit: on the iterations.
            before: steps of an optimiser that were taken before.

        Raises:
            NotCertifiable: the certificate does not hold, and one is required.
        """
        why = "; ".join(condition.name for condition in certificate.conditions if not condition.holds)
        failed = f"{certificate.theorem} {certificate.status.value}: {why}"
        if self.require_certificate and not certificate.holds:
            raise NotCertifiable(f"{failed}; {certificate.suggestion}")
        run = descend(net, loss, max_iterations=limit, tolerance=tolerance, certificate=certificate, progress=False)
        if run.stopped_by is not None:  # a search over parameters shall end, and not only this fit
            raise KeyboardInterrupt
        self.network_, self.certificate_, self.run_, self.audit_ = net, certificate, run, run.audit()
        self.n_iter_ = before + run.iterations
        if not converged(run):
            at = f", at {run.gaps[-1] / run.gaps[0]:.3g} of the first gap" if run.iterations else ""
            why = "" if run.status is RunStatus.MAX_ITERATIONS else f"{run.status.text}; "
            fast = f"; {certificate.advice}" if certificate.advice else ""
            warnings.warn(
                f"{type(self).__name__} has not converged after {counted(self.n_iter_, 'step')}{at}: {why}{self._slow}{fast}",
                ConvergenceWarning,
                stacklevel=4,
            )
        if not certificate.holds:
            warnings.warn(
                f"{type(self).__name__} is fitted without a guarantee: {failed}; {certificate.suggestion}",
                UncertifiedWarning,
                stacklevel=4,
            )
        elif not self.audit_.holds:
            warnings.warn(
                f"{type(self).__name__}: the audit of the run does not hold: {self.audit_.incomplete or self.audit_.verdict}",
                UncertifiedWarning,
                stacklevel=4,
            )


def converged(run: Run) -> bool:
    """Whether the tolerance or the rounding level was reached."""
    return run.status is RunStatus.CONVERGED or (run.status is RunStatus.STALLED and run.gaps[-1] <= run.resolution)


def classes(y: Any) -> tuple[Array, Array]:
    """Classes (C,) in order, and the number of the class of each row, int64 (N,).

    Raises:
        ValueError: y is no classification target, or has one class only.
    """
    check_classification_targets(y)
    found, numbers = np.unique(y, return_inverse=True)
    if len(found) < 2:
        raise ValueError(f"y has 1 class, {found[0]}; a classifier needs at least 2 classes")
    return found, numbers


def scaler(name: str, values: Array) -> StandardScaler:
    """That of the columns of ``values`` (N, n); ``ValueError`` where the variance of one is beyond float64, or vanishes in it."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        found = StandardScaler().fit(values)
        varies = values.max(axis=0) > values.min(axis=0)
    variance = np.asarray(found.var_)
    lost = np.flatnonzero(~np.isfinite(variance) | ((variance == 0.0) & varies))
    if len(lost):
        largest = abs(values[:, lost[0]]).max()
        raise ValueError(
            f"column {lost[0]} of {name} (0-based) reaches {largest:.3g}, and its variance is out of the range of float64; "
            "multiply it by a constant that brings it to order 1"
        )
    return found


def indicators(numbers: Array) -> Array:
    """Targets of a squared loss: 1 for the class of a row and -1 for others, float64 (N, C); of two classes that of the second,
    (N, 1)."""
    Y = np.where(numbers[:, None] == np.arange(numbers.max() + 1), 1.0, -1.0)
    return Y[:, 1:] if Y.shape[1] == 2 else Y


def decided(scores: Array, known: Array) -> Array:
    """Labels (N,) by scores (N,) or (N, C)."""
    return known[(scores > 0.0).astype(int)] if scores.ndim == 1 else known[scores.argmax(axis=1)]


def outputs(net: nn.Module, X: Array) -> Array:
    """Of the network, float64 (N, m)."""
    with torch.no_grad():
        found: Tensor = net(as_tensor("X", X))
    return found.reshape(len(X), -1).numpy()
