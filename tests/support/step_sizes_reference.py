"""Small batches in plain numpy: objectives, steps with given relative steps P, minimisers, certificates, run directories."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from surefoot._core.certificate import Certificate, CertificateStatus, Condition, publish
from surefoot._core.evaluation import evaluate
from surefoot._core.plans import PLANS
from surefoot_check.arrays import digest
from surefoot_check.step_sizes import enclosures as step_sizes
from surefoot_check.step_sizes.constants import DIRECTIONS
from surefoot_check.step_sizes.enclosures import load_problem

Array = np.ndarray
Arrays = dict[str, Array]
KINDS = ("least-squares-batch", "lasso-batch", "logistic-batch")


def soft(x: Array, threshold: Array | float) -> Array:
    return np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0)


class Reference:
    """Problem p of a batch."""

    def __init__(self, arrays: Arrays, p: int) -> None:
        self.M = arrays["M"][p]
        self.target = arrays["labels" if "labels" in arrays else "Y"][p]
        self.logistic = "labels" in arrays
        self.lam = float(arrays["lam"][p]) if "lam" in arrays else 0.0
        self.l2 = float(arrays["l2"][p]) if "l2" in arrays else 0.0
        norm = float(np.linalg.norm(self.M, 2))
        self.smoothness = norm * norm * (0.25 if self.logistic else 1.0)

    def objective(self, x: Array) -> float:
        image = self.M @ x
        if self.logistic:
            loss = float(np.logaddexp(0.0, -self.target * image).sum())
        else:
            loss = 0.5 * float(np.sum((image - self.target) ** 2))
        return loss + self.lam * float(np.abs(x).sum()) + 0.5 * self.l2 * float(x @ x)

    def gradient(self, x: Array) -> Array:
        image = self.M @ x
        if self.logistic:
            return -self.M.T @ (self.target * 0.5 * (1.0 - np.tanh(0.5 * self.target * image)))
        return self.M.T @ (image - self.target)

    def step(self, x: Array, P: Array | float, beta: float) -> Array:
        """The proximal step with step and threshold scaled by P."""
        scale = P / beta
        return soft(x - scale * self.gradient(x), scale * self.lam) / (1.0 + scale * self.l2)

    def minimiser(self) -> Array:
        d = self.M.shape[1]
        if not (self.logistic or self.lam > 0.0):
            return np.linalg.lstsq(self.M, self.target, rcond=None)[0]
        x = y = np.zeros(d)
        tau = 1.0
        for step in range(2000):
            new = self.step(y, 1.0, self.smoothness)
            if (y - new) @ (new - x) > 0.0:  # restart
                tau, y = 1.0, new
            else:
                following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * tau * tau))
                y = new + (tau - 1.0) / following * (new - x)
                tau = following
            if np.abs(new - x).max() <= 1e-16 * np.abs(new).max() and step > 50:
                return new
            x = new
        return x


def batch(kind: str, seed: int, N: int = 3, rows: int = 4, columns: int = 6, badly: bool = False) -> Arrays:
    """A random batch with minimisers; ``badly``: columns of different sizes, two of them nearly parallel."""
    g = np.random.default_rng(seed)
    M = g.standard_normal((N, rows, columns))
    if badly:
        M *= 10.0 ** g.uniform(-1.5, 1.0, (N, 1, columns))
        M[:, :, -1] = M[:, :, 0] * (1.0 + 1e-3 * g.standard_normal((N, rows)))
    arrays: Arrays = {"M": M}
    if kind == "logistic-batch":
        arrays["labels"] = np.where(g.standard_normal((N, rows)) > 0.0, 1.0, -1.0)
    else:
        arrays["Y"] = g.standard_normal((N, rows))
    if kind != "least-squares-batch":
        arrays["lam"] = 10.0 ** g.uniform(-2.0, 0.5, N)
    if kind == "logistic-batch":
        arrays["l2"] = 10.0 ** g.uniform(-3.0, 0.0, N) * g.integers(0, 2)
    return with_minimisers(arrays)


def with_minimisers(arrays: Arrays) -> Arrays:
    arrays = {name: value for name, value in arrays.items() if name != "optimum"}
    optimum = np.stack([Reference(arrays, p).minimiser() for p in range(len(arrays["M"]))])
    return {**arrays, "optimum": optimum}


def weights(arrays: Arrays, low: float, high: float, x: Array | None = None, stretch: float = 1.0 + 1e-8) -> Arrays:
    """x, per-problem beta and the range."""
    beta = np.array([Reference(arrays, p).smoothness for p in range(len(arrays["M"]))]) * stretch
    N, _, d = arrays["M"].shape
    return {"x": np.zeros((N, d)) if x is None else x, "beta": beta, "range": np.array([low, high])}


def published(kind: str, arrays: Arrays, initial: Arrays) -> dict[str, float]:
    """The base quantities as published: what is stored as it is, what is measured with slack."""
    problem = load_problem(kind, arrays)
    enclosures = step_sizes.base_quantities(problem, step_sizes.read_weights(initial, problem, "test"), {})
    return publish(enclosures, DIRECTIONS) | {name: enclosures[name][0] for name in step_sizes.EXACT}


def certificate(theorem: str, kind: str, arrays: Arrays, initial: Arrays) -> Certificate:
    """What the library writes."""
    statement = PLANS[theorem].theorem
    problem = load_problem(kind, arrays)
    sizes = step_sizes.sizes(problem, initial)
    base = {k: v for k, v in published(kind, arrays, initial).items() if k in statement.base}
    quantities, conditions, schedule = evaluate(statement, {**base, **sizes})
    return Certificate(
        system="step-sizes",
        theorem=theorem,
        version=statement.version,
        status=CertificateStatus.HOLDS if schedule else CertificateStatus.FAILS,
        conditions=tuple(Condition.of(c) for c in conditions),
        quantities={k: float(v) for k, v in quantities.items() if k not in sizes},
        schedule=tuple(schedule),
        optimal_value=0.0,
        rule=statement.rule,
        claims=statement.claims,
        problem={"kind": kind, **sizes},
        arrays={f"problem/{k}": digest(v) for k, v in arrays.items()}
        | {f"initial/{k}": digest(v) for k, v in initial.items()},
    )


def run(arrays: Arrays, initial: Arrays, iterations: int, seed: int = 0) -> list[Array]:
    """Iterates (N, d) with P drawn anew from the range for each step and coordinate, its ends among them."""
    g = np.random.default_rng(seed)
    low, high = initial["range"]
    iterates = [initial["x"]]
    for _ in range(iterations):
        x = np.empty_like(iterates[-1])
        for p in range(len(x)):
            P = np.clip(g.uniform(low - 0.3, high + 0.3, x.shape[1]), low, high)
            x[p] = Reference(arrays, p).step(iterates[-1][p], P, float(initial["beta"][p]))
        iterates.append(x)
    return iterates


def checkpoints(iterates: list[Array], initial: Arrays, made: Certificate, every: int) -> dict[str, dict[str, Any]]:
    """The files of a run directory by path, the certificate apart."""
    owner = np.frombuffer(hashlib.sha256(made.to_json().encode()).digest(), dtype=np.uint8)
    files: dict[str, dict[str, Any]] = {}
    last = len(iterates) - 1
    for t in sorted({*range(0, last, every), last}):
        content = {**initial, "x": iterates[t], "iteration": np.array(t, dtype=np.int64), "certificate": owner}
        files[f"checkpoints/{t:09d}.safetensors"] = content
    files["final.safetensors"] = dict(files[f"checkpoints/{last:09d}.safetensors"])
    return files


def directory_of(path: Path, files: dict[str, dict[str, Any]], made: Certificate, safetensors: Any) -> None:
    """Write a run directory."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "certificate.json").write_text(made.to_json())
    for name, arrays in files.items():
        (path / name).write_bytes(safetensors(arrays))
