"""Directories of layers in numpy alone, trained by projected gradient: what the checker of layers is tried on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tamper import safetensors

from surefoot.learned import Lasso, LeastSquares, Logistic
from surefoot_check.arrays import digest, read_safetensors
from surefoot_check.layers.constants import constants
from surefoot_check.layers.one_layer import layer, point
from surefoot_check.layers.problems import Problems
from surefoot_check.layers.sectors import pseudo_angle
from surefoot_check.rigor.bounds import FAST
from surefoot_check.statement import SLACK
from surefoot_check.step_sizes.enclosures import load_problem

Array = np.ndarray
Files = dict[str, dict[str, Array]]
GRID = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
BATCHES = {
    "least-squares": lambda: LeastSquares.random(3, 4, 6, seed=3),
    "lasso": lambda: Lasso.random(3, 4, 6, sparsity=0.6, lam=0.1, seed=3),
    "logistic": lambda: Logistic.random(3, 8, 4, lam=0.1, l2=0.01, seed=3),
}


def trained(kind: str, depth: int = 3, sectors: int = 4) -> Files:
    """The arrays of a small directory, by file."""
    batch = BATCHES[kind]()
    stored = {name: array.numpy() for name, array in batch.arrays().items()}
    beta = batch.smoothness.numpy() * (1.0 + 1e-8)
    problems = Problems(load_problem(batch.kind, stored), beta, FAST)
    boundaries = np.arange(1, sectors) * 4.0 / sectors
    at = point(problems, np.zeros((batch.count, batch.columns)))
    xs, weights, every, zs = [at.x], [], [], []
    for _ in range(depth):
        gradient = at.gradient.value[:, :, 0]
        places = np.searchsorted(boundaries, pseudo_angle(at.x, gradient), side="right")
        steps = problems.steps(at.x[:, :, None], at.gradient, GRID).value
        w = _best(problems, steps, places, sectors)
        at = point(problems, (w[places] * steps).sum(axis=2))
        lam = problems.lam[:, None]
        slope = at.gradient.value[:, :, 0] + problems.l2[:, None] * at.x
        zs.append(np.where(at.x != 0.0, np.sign(at.x) * lam, np.clip(-slope, -lam, lam)))
        xs, weights, every = [*xs, at.x], [*weights, w], [*every, places]
    iterates = {"x": np.array(xs), "sectors": np.array(every, dtype=np.int64), "z": np.array(zs)}
    if not problems.batch.proximal:
        del iterates["z"]
    layers = {"grid": GRID, "boundaries": boundaries, "weights": np.array(weights), "beta": beta}
    return {"problem": stored, "layers": {**layers, "range": GRID[[0, -1]]}, "iterates": iterates}


def _best(problems: Problems, steps: Array, places: Array, sectors: int) -> Array:
    """Weights (K, m) better than the best constant, of which the first step of projected gradient starts."""

    def objective(w: Array) -> float:
        at = point(problems, (w[places] * steps).sum(axis=2))
        return at.objective[1]

    count = steps.shape[2]
    corners = [np.tile(row, (sectors, 1)) for row in np.eye(count)]
    w = best = min(corners, key=objective)
    size = float((np.square(problems.batch.M @ steps).sum(axis=1)).sum())
    for _ in range(60):
        at = point(problems, (w[places] * steps).sum(axis=2))
        slope = at.gradient.value[:, :, 0] + problems.l2[:, None] * at.x + problems.lam[:, None] * np.sign(at.x)
        downhill = np.zeros_like(w)
        np.add.at(downhill, places.ravel(), (slope[:, :, None] * steps).reshape(-1, count))
        w = _on_simplices(w - downhill / size)
        best = min(best, w, key=objective)
    return best


def _on_simplices(v: Array) -> Array:
    """The nearest rows that are not negative and have sum 1."""
    falling = np.sort(v, axis=1)[:, ::-1]
    excess = (np.cumsum(falling, axis=1) - 1.0) / np.arange(1, v.shape[1] + 1)
    kept = (falling > excess).sum(axis=1)
    w = np.maximum(v - excess[np.arange(len(v)), kept - 1][:, None], 0.0)
    return w / w.sum(axis=1, keepdims=True)


def certificate(files: Files, kind: str) -> dict[str, Any]:
    """The record that the checker's own bounds make of the arrays, with slack."""
    layers, iterates = files["layers"], files["iterates"]
    batch = load_problem(BATCHES[kind]().kind, files["problem"])
    problems = Problems(batch, layers["beta"], FAST)
    at = point(problems, iterates["x"][0])
    first, facts = at.objective[1], []
    depth, sectors, count = layers["weights"].shape
    for t, w in enumerate(layers["weights"]):
        z = iterates["z"][t] if "z" in iterates else None
        proved = layer(problems, problems, at, iterates["x"][t + 1], layers["grid"], w, iterates["sectors"][t], z)
        at = proved.after
        low, high = at.objective
        published = {
            "objective": high * (1.0 + SLACK),
            "best_constant": min(value for value, _ in proved.constants) * (1.0 - SLACK),
            "lower_bound": low - proved.gap - SLACK * high,
            "gap": proved.gap * (1.0 + SLACK),
        }
        facts.append({name: float(value).hex() for name, value in published.items()})
    least = constants(problems, iterates["x"][0], depth, layers["grid"])
    step = layers["grid"][int(np.argmin([value for value, _ in least.objectives]))]
    conclusion = {
        "initial": first * (1.0 + SLACK),
        "final": at.objective[1] * (1.0 + SLACK),
        "constant": least.least() * (1.0 - SLACK),
        "step": step,
    }
    sizes = {"N": batch.count, "b": batch.rows, "d": batch.columns, "T": depth, "K": sectors, "m": count}
    return {
        "format": "surefoot-layers/1",
        "problem": {"kind": batch.kind, **sizes},
        "arrays": hashes(files),
        "layers": facts,
        "conclusion": {name: float(value).hex() for name, value in conclusion.items()},
    }


def hashes(files: Files) -> dict[str, str]:
    """Of every array."""
    return {f"{file}/{name}": digest(array) for file, arrays in files.items() for name, array in arrays.items()}


def write(directory: Path, files: Files, record: dict[str, Any]) -> None:
    """Write a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for file, arrays in files.items():
        (directory / f"{file}.safetensors").write_bytes(safetensors(arrays))
    (directory / "certificate.json").write_text(json.dumps(record, sort_keys=True, indent=1))


def read(directory: Path) -> tuple[Files, dict[str, Any]]:
    """Read a directory back, as copies that may be changed."""
    names = ("problem", "layers", "iterates")
    files = {name: read_safetensors(directory / f"{name}.safetensors") for name in names}
    return files, json.loads((directory / "certificate.json").read_text())
