"""Problem: how many iterations will your own solver take on the next problem, and on nearly all that come after it?

Method: count them on problems that are held out for it, and take an order statistic. No theory of the solver is needed, and no
distribution assumed. Guarantee: with confidence 99 %, at least 98 % of new problems take no more. What it means: new problems
must be drawn like those that were held out; where they are not, the statement says nothing, and the shift test can see it.

The solver here is scipy's L-BFGS on logistic regressions with a ridge, each of 40 patients with 8 measurements.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

import surefoot as sf

RIDGE = 0.1
OUT = Path("certificate")
if OUT.exists():
    raise SystemExit(f"{OUT} exists; move it away, or change OUT")


class Study(NamedTuple):
    """One problem: measurements (patients, columns) and outcomes ±1."""

    X: np.ndarray
    y: np.ndarray


def study(rng: np.random.Generator, patients: int = 40, scale: float = 1.0) -> Study:
    """A fresh one."""
    X = scale * rng.standard_normal((patients, 8))
    return Study(X, np.sign(X @ rng.standard_normal(8) + scale * rng.standard_normal(patients)))


def loss(w: np.ndarray, X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient."""
    margins = y * (X @ w)
    gradient = -X.T @ (y / (1.0 + np.exp(margins))) / len(y) + RIDGE * w
    return float(np.logaddexp(0.0, -margins).mean() + 0.5 * RIDGE * w @ w), gradient


def solver(problem: Study) -> int | None:
    """Iterations until no entry of the gradient is above 1e-6; None where that is not reached."""
    found = minimize(loss, np.zeros(8), problem, "L-BFGS-B", jac=True, options={"gtol": 1e-6, "ftol": 0.0})
    return found.nit if np.abs(found.jac).max() <= 1e-6 else None


print("needed at least:", sf.learned.problems_needed(coverage=0.98, confidence=0.99), "problems")
rng = np.random.default_rng(0)
held_out = [study(rng) for _ in range(300)]
certificate = sf.learned.certify_holdout(
    solver, held_out, gap=1e-6, coverage=0.98, confidence=0.99, iterations=100, name="L-BFGS"
)
print(certificate.table())

# New studies keep what was claimed, as nearly all of them must
new = certificate.shift_test([study(rng) for _ in range(200)])
print(f"new studies: {new.exceeding} of {new.problems} took more than {certificate.iterations} iterations")
print(new)
assert not new.shifted()

# Studies of fewer patients: the test sees it, and the certificate says nothing of them
other = certificate.shift_test([study(rng, patients=12) for _ in range(100)])
print(f"studies of 12 patients: {other.exceeding} of {other.problems} took more")
print(other)
assert other.shifted()

certificate.save(OUT)  # surefoot check certificate; surefoot report certificate
