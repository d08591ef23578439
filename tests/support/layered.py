"""Directories of layers in numpy alone, trained by projected gradient: what the checker of layers is tried on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tamper import safetensors

from surefoot.learned import Lasso, LeastSquares, Logistic
from surefoot_check.arrays import digest, read_safetensors
from surefoot_check.rigor.bounds import FAST
from surefoot_check.statement import SLACK
from surefoot_check.step_sizes.enclosures import load_problem
from surefoot_check.step_sizes.layers.constants import after_steps, least_between
from surefoot_check.step_sizes.layers.entrywise import Enclosed
from surefoot_check.step_sizes.layers.one_layer import first_point, prove
from surefoot_check.step_sizes.layers.problems import Problems
from surefoot_check.step_sizes.layers.sectors import angle

Array = np.ndarray
Files = dict[str, dict[str, Array]]
GRID = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
BATCHES = {
    "least-squares": lambda: LeastSquares.random(3, 4, 6, seed=3),
    "lasso": lambda: Lasso.random(3, 4, 6, sparsity=0.6, lam=0.1, seed=3),
    "logistic": lambda: Logistic.random(3, 8, 4, lam=0.1, l2=0.01, seed=3),
}


def trained(kind: str, depth: int = 3, sectors: int = 3) -> Files:
    """The arrays of a small directory, by file; the layers look ahead where the problems are least squares."""
    batch = BATCHES[kind]()
    stored = {name: array.numpy() for name, array in batch.arrays().items()}
    beta = batch.smoothness.numpy() * (1.0 + 1e-8)
    problems = Problems(load_problem(batch.kind, stored), beta, FAST)
    schedule = np.linspace(1.0, 1.8, depth)[:, None]
    boundaries = np.arange(1, sectors) * 2.0 / sectors
    x = np.zeros((batch.count, batch.columns))
    xs, weights, every = [x], [], []
    for t in range(depth):
        at = first_point(problems, x, schedule[:0])
        places = np.searchsorted(boundaries, angle(x, at.gradient.value[:, :, 0] / beta[:, None]), side="right")
        steps = problems.steps(x[:, :, None], at.gradient, GRID).value
        w = _best(problems, steps, places, sectors, schedule[t + 1 :] if kind == "least-squares" else schedule[:0])
        x = (w[places] * steps).sum(axis=2)
        xs, weights, every = [*xs, x], [*weights, w], [*every, places]
    layers = {
        "grid": GRID,
        "boundaries": boundaries,
        "weights": np.array(weights),
        "beta": beta,
        "schedule": schedule[:, 0],
    }
    return {
        "problem": stored,
        "layers": layers,
        "iterates": {"x": np.array(xs), "sectors": np.array(every, dtype=np.uint8)},
    }


def _best(problems: Problems, steps: Array, places: Array, sectors: int, rest: Array) -> Array:
    """The best of some weights (K, m), among them those of constants: of projected gradient from the best constant."""

    def value(w: Array) -> float:
        return first_point(problems, (w[places] * steps).sum(axis=2), rest).value[1]

    count = steps.shape[2]
    best = w = min((np.tile(row, (sectors, 1)) for row in np.eye(count)), key=value)
    size = float(np.square(problems.batch.M @ steps).sum())
    for _ in range(40):
        x = Enclosed.exactly((w[places] * steps).sum(axis=2)[:, :, None])
        carried = problems.carried(problems.residual(x), np.concatenate([rest, rest]))
        slope = (problems.gradient(carried) + Enclosed.exactly(problems.l2) * x).value + problems.lam * np.sign(x.value)
        downhill = np.zeros_like(w)
        np.add.at(downhill, places.ravel(), (slope * steps).reshape(-1, count))
        w = _on_simplices(w - downhill / size)
        best = min(best, w, key=value)
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
    layers, x = files["layers"], files["iterates"]["x"]
    batch = load_problem(BATCHES[kind]().kind, files["problem"])
    problems, schedule, ahead = (
        Problems(batch, layers["beta"], FAST),
        layers["schedule"][:, None],
        kind == "least-squares",
    )
    at = first = first_point(problems, x[0], schedule if ahead else schedule[:0])
    facts = []
    depth, sectors, count = layers["weights"].shape
    for t, w in enumerate(layers["weights"]):
        rest = schedule[t + 1 :] if ahead else schedule[:0]
        proved = prove(problems, problems, at, x[t + 1], GRID, w, files["iterates"]["sectors"][t], rest)
        at = proved.after
        value, lower = at.value[1] * (1.0 + SLACK), at.value[0] - proved.gap - SLACK * at.value[1]
        published = {"objective": at.objective[1] * (1.0 + SLACK), "value": value, "lower": lower}
        facts.append(_hexadecimal({**published, "gap": (value - lower) * (1.0 + SLACK)}))
    values = [low for low, _ in after_steps(problems, x[0], np.tile(GRID, (depth, 1)))]
    best = min(values) if batch.proximal else least_between(problems, x[0], depth, GRID)
    reached = after_steps(problems, x[0], schedule)[0][1]
    conclusion = {
        "start": first.objective[1] * (1.0 + SLACK),
        "final": at.objective[1] * (1.0 + SLACK),
        "schedule": reached * (1.0 + SLACK),
        "constant": best * (1.0 - SLACK),
        "step": GRID[int(np.argmin(values))],
    }
    sizes = {"problems": batch.count, "rows": batch.rows, "columns": batch.columns, "layers": depth, "trained": depth}
    return {
        "format": "surefoot-layers/1",
        "kind": batch.kind,
        "sizes": {**sizes, "sectors": sectors, "steps": count},
        "range": [float(end).hex() for end in GRID[[0, -1]]],
        "ahead": ahead,
        "layers": facts,
        "conclusion": _hexadecimal(conclusion),
        "sha256": hashes(files),
    }


def _hexadecimal(numbers: dict[str, float]) -> dict[str, str]:
    return {name: float(value).hex() for name, value in numbers.items()}


def hashes(files: Files) -> dict[str, dict[str, str]]:
    """Of every array."""
    return {
        f"{file}.safetensors": {name: digest(array) for name, array in arrays.items()} for file, arrays in files.items()
    }


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
