"""A run to add to, and how a file is added: what the families of additions share."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from claims import FIXED, GAP, bound
from every_system import both
from tamper import Array, Change, Record, StoredRun, Tampering, encoded, put, reevaluated, segments

from surefoot._core.plans import PLANS
from surefoot_check.arrays import digest
from surefoot_check.rigor.bounds import FAST
from surefoot_check.systems import SYSTEMS, THEOREMS

FINAL = "final.safetensors"
CONTROLS = "\x1b[2J\n\r\x00\x07\u0085\u2028\u202e\ufeff"
"""Characters that move a cursor, begin a line, turn the direction of text or cannot be seen."""


@dataclass(frozen=True)
class Runs:
    """A run to add to, another one of the same system, and one of every system."""

    run: StoredRun
    other: StoredRun
    all: Mapping[str, StoredRun]


def checkpoint(t: int) -> str:
    """Path of the checkpoint of an iteration."""
    return f"checkpoints/{t:09d}.safetensors"


def later(t: int | str) -> str:
    """File name of the certificate of an iteration."""
    return f"certificate-{t:09d}.json" if isinstance(t, int) else f"certificate-{t}.json"


def iterations(run: StoredRun) -> list[int]:
    """Those of the checkpoints."""
    return sorted(int(arrays["iteration"]) for path, arrays in run.arrays.items() if path.startswith("checkpoints/"))


def weights_at(run: StoredRun, t: int) -> dict[str, Array]:
    """The stored weights of an iteration."""
    arrays = run.arrays.get(checkpoint(t), run.weights)
    return {name: arrays[name] for name in run.weights}


def certified(
    run: StoredRun,
    t: int,
    gap: Callable[[float], float] = lambda measured: measured,
    weaker: float = 1.0,
    choices: Mapping[str, float] | None = None,
) -> Record:
    """A certificate of the run's theorem at the weights of iteration t, as the theorem makes it of the arrays.

    Args:
        gap: the published initial gap, given the measured one.
        weaker: a factor by which all other measured quantities are published larger, or smaller, on their safe side.
        choices: free choices other than the theorem's own.
    """
    record = run.certificate
    system, theorem = SYSTEMS[record["system"]], THEOREMS[record["theorem"]]
    problem = system.enclosures.load_problem(record["problem"]["kind"], dict(run.problem), FAST)
    old = {name: float.fromhex(text) for name, text in record["quantities"].items()}
    enclosures = system.enclosures.base_quantities(problem, weights_at(run, t), old)
    upper = {name: system.directions[name] == "upper" for name in theorem.base if name in enclosures}
    base = {name: enclosures[name][1] * weaker if up else enclosures[name][0] / weaker for name, up in upper.items()}
    base["initial_gap"] = gap(enclosures["initial_gap"][1])
    sizes = {name: value for name, value in record["problem"].items() if name != "kind"}
    picked = PLANS[theorem.id].parameters({**{name: old[name] for name in theorem.chosen(old)}, **base, **sizes})
    made = reevaluated(record, base, {**picked, **(choices or {})})
    made["arrays"] = {f"problem/{k}": digest(v) for k, v in run.problem.items()}
    made["arrays"] |= {f"initial/{k}": digest(v) for k, v in weights_at(run, t).items()}
    return made


def promised(run: StoredRun, t: int) -> float:
    """The bound of the first certificate after t iterations."""
    return bound(segments(run.certificate), t)


def inflated(run: StoredRun, t: int, factor: float) -> Record:
    """A certificate at iteration t with ``factor`` times the gap that is promised there: weaker, and true of its weights."""
    return certified(run, t, lambda measured: max(measured, promised(run, t)) * factor)


def violating(run: StoredRun, t: int) -> dict[str, Array]:
    """Weights that the first certificate rules out at iteration t; those that are not trained are as they were."""
    system = run.certificate["system"]
    trained = [name for name in run.weights if name not in FIXED.get(system, ())]
    for factor in (1.0, 1.5, -1.0, 3.0, 10.0, 100.0):
        weights = {name: A * factor if name in trained else A for name, A in run.weights.items()}
        if GAP[system](run.problem, weights) > 1.01 * promised(run, t):
            return weights
    weights = {name: A + 10.0 if name in trained else A for name, A in run.weights.items()}
    assert GAP[system](run.problem, weights) > 1.01 * promised(run, t)
    return weights


def stored(run: StoredRun, weights: Mapping[str, Array], t: int) -> dict[str, Array]:
    """The content of a file of stored weights of iteration t."""
    state = next((arrays for path, arrays in run.arrays.items() if path == FINAL), None)
    owner = np.frombuffer(_sha256(run), dtype=np.uint8) if state is None else state["certificate"]
    return {**weights, "iteration": np.array(t, dtype=np.int64), "certificate": owner}


def _sha256(run: StoredRun) -> bytes:
    return hashlib.sha256(encoded(run.certificate, run.indent)).digest()


def with_certificate(name: str, record: Record) -> Change:
    """A certificate file more."""
    return lambda run: put(run.certificates, (name,), record)


def with_arrays(path: str, arrays: dict[str, Array]) -> Change:
    """A file of arrays more, or in the place of the one there is."""
    return lambda run: put(run.arrays, (path,), arrays)


def without(path: str) -> Change:
    """A file of arrays less, if there is one."""
    return lambda run: run.arrays.pop(path, None) and None


def changed(record: Record, path: tuple[Any, ...], value: Any) -> Record:
    """A copy of a record with one field set."""
    record = copy.deepcopy(record)
    put(record, path, value)
    return record


Family = Callable[[str, Runs], Iterator[Tampering]]


def iterated(family: Family) -> Family:
    """A family about iterates, which learned inverses do not have."""

    def those(system: str, runs: Runs) -> Iterator[Tampering]:
        return family(system, runs) if runs.run.certificate["system"] in GAP else iter(())

    those.__doc__, those.__name__ = family.__doc__, family.__name__
    return those


def case(system: str, name: str, *changes: Change, after: Callable[[Path], None] | None = None) -> Tampering:
    return Tampering(name, system, both(*changes), seal=False, after=after)
