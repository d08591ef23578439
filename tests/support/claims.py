"""Whether a run directory that the checker accepted is true, decided without the checker.

Files are read by ``json`` and the safetensors package, quantities and gaps are measured by plain numpy in float64, and the
schedule is compared with the one that the theorem publishes for the quantities. What the checker proves with rigour is here
only computed, with tolerances far below what matters and far above rounding.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deconvolution_reference
import numpy as np
from feed_forward_reference import Network
from safetensors import SafetensorError
from safetensors.numpy import load

from surefoot._core.plans import PLANS
from surefoot._core.schedule import gap_at
from surefoot_check.statement import Inequality, Schedule, Segment
from surefoot_check.systems import SYSTEMS, THEOREMS

Array = np.ndarray
Arrays = Mapping[str, Array]
ROUNDING = 1e-9
"""Relative tolerance of numbers that are compared with float64 results."""


def norm(A: Array) -> float:
    """Spectral norm."""
    return float(np.linalg.norm(A, 2)) if A.size else 0.0


def smallest(A: Array) -> float:
    """The square root of λ_min(AAᵀ): 0 with more rows than columns."""
    return float(np.linalg.svd(A, compute_uv=False)[-1]) if A.shape[0] <= A.shape[1] else 0.0


def _least_squares(X: Array, Y: Array, W: Array) -> float:
    """½‖X(W - W*)‖²."""
    return 0.5 * float(np.linalg.norm(X @ (W - np.linalg.lstsq(X, Y, rcond=None)[0])) ** 2)


def _two_layer(problem: Arrays, weights: Arrays) -> dict[str, float]:
    X, Y, W1, W2 = problem["X"], problem["Y"], weights["W1"], weights["W2"]
    (n, h), m = W1.shape, len(W2)
    optimum, sigma = np.linalg.lstsq(X, Y, rcond=None)[0], np.linalg.svd(X, compute_uv=False)
    D = np.linalg.eigvalsh(W1.T @ W1 - W2.T @ W2)[::-1]
    values = np.linalg.svd(optimum, compute_uv=False)
    return {
        "smoothness": float(sigma[0] ** 2),
        "strong_convexity": float(sigma[-1] ** 2),
        "lambda_plus": max(D[0], 0.0),
        "lambda_minus": max(-D[-1], 0.0),
        "lambda_n": max(D[n - 1], 0.0) if n <= h else 0.0,
        "lambda_m": max(-D[h - m], 0.0) if m <= h else 0.0,
        "initial_gap": _gap_two_layer(problem, weights),
        "optimum_sigma_min": float(values[-1]),
        "optimum_sigma_max": float(values[0]),
        "initial_distance": float(np.linalg.norm(W1 @ W2.T - optimum)),
        "sigma_min_squared": smallest(W1) ** 2 + smallest(W2) ** 2,
        "sigma_max_squared": norm(W1) ** 2 + norm(W2) ** 2,
    }


def _gap_two_layer(problem: Arrays, weights: Arrays) -> float:
    return _least_squares(problem["X"], problem["Y"], weights["W1"] @ weights["W2"].T)


def _linear_resnet(problem: Arrays, weights: Arrays) -> dict[str, float]:
    A, B, X = weights["A"], weights["B"], problem["X"]
    return {
        "initial_gap": _gap_linear_resnet(problem, weights),
        "norm_A": norm(A),
        "norm_B": norm(B),
        "sigma_min_A": smallest(A.T),
        "sigma_min_B": smallest(B),
        "norm_X": norm(X),
        "sigma_min_X": float(np.linalg.svd(X, compute_uv=False)[-1]),
        "weight_norm": float(np.linalg.norm(weights["W"])),
    }


def _gap_linear_resnet(problem: Arrays, weights: Arrays) -> float:
    end = weights["A"]
    for W in weights["W"]:
        end = end + W @ end
    return _least_squares(problem["X"], problem["Y"], (weights["B"] @ end).T)


def _equilibrium(problem: Arrays, weights: Arrays) -> Array:
    injected = problem["X"] @ weights["W"]
    Z = np.zeros_like(injected)
    for _ in range(2000):
        before, Z = Z, np.maximum(float(weights["gamma"]) * (Z @ weights["A"]) + injected, 0.0)
        if np.array_equal(before, Z):
            break
    return Z


def _implicit(problem: Arrays, weights: Arrays) -> dict[str, float]:
    Z = _equilibrium(problem, weights)
    return {
        "initial_gap": _gap_implicit(problem, weights),
        "gamma": float(weights["gamma"]),
        "norm_X": norm(problem["X"]),
        "norm_A": norm(weights["A"]),
        "norm_b": norm(weights["b"]),
        "sigma_min_Z": smallest(Z),
        "norm_Z": norm(Z),
    }


def _gap_implicit(problem: Arrays, weights: Arrays) -> float:
    return 0.5 * float(np.linalg.norm(_equilibrium(problem, weights) @ weights["b"] - problem["Y"]) ** 2)


def _feed_forward(problem: Arrays, weights: Arrays) -> dict[str, float]:
    return Network(problem, weights).quantities()


def _gap_feed_forward(problem: Arrays, weights: Arrays) -> float:
    return Network(problem, weights).gap


def _on_ball(problem: Arrays, weights: Arrays, q: Mapping[str, float]) -> dict[str, float]:
    return Network(problem, weights).on_ball(q["ball"])


def _step_sizes(problem: Arrays, weights: Arrays) -> dict[str, float]:
    values = [np.linalg.svd(M, compute_uv=False) for M in problem["M"]]
    beta = weights["beta"]
    nonzero = [s[s > 1e-13 * s[0]] for s in values]
    return {
        "initial_gap": _gap_step_sizes(problem, weights),
        "range_low": float(weights["range"][0]),
        "range_high": float(weights["range"][1]),
        "smoothness_ratio": max(float(s[0] ** 2 / b) for s, b in zip(values, beta, strict=True)),
        "convexity_ratio": min(float(s[-1] ** 2 / b) for s, b in zip(nonzero, beta, strict=True)),
    }


def _gap_deconvolution(problem: Arrays, weights: Arrays) -> float:
    """V from its formulas with dense matrices; half a second for each new iterate."""
    iterate = {name: weights[name] for name in ("z", "x", "multiplier", "parameters")}
    key = tuple(
        (name, A.dtype.str, A.shape, A.tobytes()) for each in (problem, iterate) for name, A in sorted(each.items())
    )
    if key not in _CHANGES:
        _CHANGES[key] = float(deconvolution_reference.change(dict(problem), iterate))
    return _CHANGES[key]


_CHANGES: dict[tuple[Any, ...], float] = {}


def _gap_step_sizes(problem: Arrays, weights: Arrays) -> float:
    each = zip(problem["M"], problem["Y"], weights["x"], strict=True)
    return sum(_least_squares(M, y[:, None], x[:, None]) for M, y, x in each)


def _inverse(problem: Arrays, weights: Arrays) -> dict[str, float]:
    lower, upper = (float(end) for end in problem["interval"])
    e = np.linspace(1.0 - upper, 1.0 - lower, 2001)
    values = {"lower": lower, "upper": upper, "initial_gap": float(np.abs(e).max())}
    values["deviation"] = float(np.abs(weights["C"] - 1.0).max())
    with np.errstate(all="ignore"):
        for k, row in enumerate(weights["C"], 1):
            e = 1.0 - (1.0 - e) * np.polynomial.polynomial.polyval(e, row)
            values[f"residual[{k}]"] = float(
                np.abs(e).max()
            )  # no more than the largest value, which is all that is needed
    return values


MEASURE: dict[str, Callable[[Arrays, Arrays], dict[str, float]]] = {
    "two-layer": _two_layer,
    "linear-resnet": _linear_resnet,
    "implicit": _implicit,
    "feed-forward": _feed_forward,
    "step-sizes": _step_sizes,
    "inverse": _inverse,
}
CHOSEN: dict[str, Callable[[Arrays, Arrays, Mapping[str, float]], dict[str, float]]] = {"feed-forward": _on_ball}
"""What depends on the published choices besides."""
GAP: dict[str, Callable[[Arrays, Arrays], float]] = {
    "two-layer": _gap_two_layer,
    "linear-resnet": _gap_linear_resnet,
    "implicit": _gap_implicit,
    "feed-forward": _gap_feed_forward,
    "step-sizes": _gap_step_sizes,
    "deconvolution": _gap_deconvolution,
}
FIXED = {
    "linear-resnet": ("A", "B"),
    "implicit": ("gamma",),
    "step-sizes": ("beta", "range"),
    "deconvolution": ("parameters",),
}


@dataclass(frozen=True)
class _Phase:
    """A certificate in force from an iteration on."""

    start: int
    record: Mapping[str, Any]

    @property
    def schedule(self) -> Schedule:
        return _schedule(self.record)


def untrue(directory: Path, good: Mapping[str, Any]) -> str | None:
    """Why what the directory claims is not true, or is not what certificates look like; ``None`` where it is true.

    What it claims: every certificate is true of the weights of its iteration, later ones weaken nothing that was promised before,
    and every stored iterate lies under the bounds of all certificates that are in force by then. Of deconvolution, and of
    theorems whose constants are not measured here, only those bounds are.

    Args:
        directory: a run that the checker accepted.
        good: the certificate of an honest run of the system; all others must be of the same form, with other numbers. The first
            one may fail and claim nothing, where a later one claims something.
    """
    try:
        texts = {file.name: file.read_bytes() for file in directory.glob("certificate*.json")}
        records = {name: json.loads(text, object_pairs_hook=_once) for name, text in texts.items()}
        problem = load((directory / "problem.safetensors").read_bytes())
        initial = load((directory / "initial.safetensors").read_bytes())
        paths = [*directory.glob("final.safetensors"), *directory.glob("checkpoints/*.safetensors")]
        stored = {path.relative_to(directory).as_posix(): load(path.read_bytes()) for path in paths}
    except (ValueError, SafetensorError) as error:
        return f"another reader refuses it ({error})"
    # what else lies beside stored weights is the trainer's state, which nothing is claimed of
    read = [problem, initial, *({name: each[name] for name in initial if name in each} for each in stored.values())]
    if not all(np.isfinite(array).all() for each in read for array in each.values()):
        return "an array is not finite"
    phases: list[_Phase] = []
    first = records.pop("certificate.json")
    if (first.get("status"), first.get("claims"), bool(records)) != ("fails", [], True):
        phases.append(_Phase(0, first))
    for name, record in sorted(records.items()):
        match = re.fullmatch(r"certificate-([0-9]{9})\.json", name)
        if match is None or int(match[1]) == 0 or f"checkpoints/{match[1]}.safetensors" not in stored:
            return f"{name} speaks of no stored iterate after the start"
        phases.append(_Phase(int(match[1]), record))
    for index, phase in enumerate(phases):
        weights = stored[f"checkpoints/{phase.start:09d}.safetensors"] if phase.start else initial
        why = _certified(phase.record, good, problem, {name: weights[name] for name in initial})
        if why is not None:
            return f"from iteration {phase.start}: {why}"
        promised = [bound(earlier.schedule, phase.start - earlier.start) for earlier in phases[:index]]
        if not phase.schedule[0].level <= min(promised, default=math.inf) * (1.0 + ROUNDING):
            return f"from iteration {phase.start}: {phase.schedule[0].level} is more than was promised, {min(promised)}"
    if good["system"] in GAP:
        owner = hashlib.sha256(texts["certificate.json"]).digest()
        return next(
            filter(None, (_stored(*item, good, problem, initial, phases, owner) for item in stored.items())), None
        )
    return None


def _certified(record: Any, good: Mapping[str, Any], problem: Arrays, weights: Arrays) -> str | None:
    """Why a certificate is not true of the weights that it speaks of."""
    shape = _differs(record, good)
    if shape is not None:
        return shape
    hashes = {f"problem/{k}": _digest(v) for k, v in problem.items()}
    if record["arrays"] != hashes | {f"initial/{k}": _digest(v) for k, v in weights.items()}:
        return "the arrays are not those of the certificate"
    return _certificate(record, problem, weights) if record["system"] in MEASURE else None


def _stored(
    path: str,
    weights: Arrays,
    good: Mapping[str, Any],
    problem: Arrays,
    initial: Arrays,
    phases: Sequence[_Phase],
    owner: bytes,
) -> str | None:
    """Why stored weights are not as the certificates promise."""
    system = good["system"]
    if weights["certificate"].tobytes() != owner:
        return f"{path} belongs to another certificate"
    if any(not np.array_equal(weights[k], initial[k]) for k in FIXED.get(system, ())):
        return f"{path} has other fixed weights"
    t, gap = int(weights["iteration"]), GAP[system](problem, weights)
    for phase in phases:
        if t >= phase.start:
            promised = bound(phase.schedule, t - phase.start)
            if not gap <= promised * (1.0 + ROUNDING) + 1e-25:
                return f"{path}: the gap {gap} exceeds {promised} of the certificate from iteration {phase.start}"
    return None


def _certificate(record: Mapping[str, Any], problem: Arrays, initial: Arrays) -> str | None:
    theorem, directions = THEOREMS[record["theorem"]], SYSTEMS[record["system"]].directions
    q: dict[str, Any] = {name: float.fromhex(text) for name, text in record["quantities"].items()}
    system = record["system"]
    measured = MEASURE[system](problem, initial) | (CHOSEN[system](problem, initial, q) if system in CHOSEN else {})
    if not set(theorem.base) & q.keys() <= measured.keys():
        return None
    for name in set(theorem.base) & q.keys():
        upper, value = directions[name] == "upper", measured[name]
        room = ROUNDING * abs(value) + 1e-13
        if not (q[name] >= value - room if upper else q[name] <= value + room):
            return f"{name} is {q[name]}, and the arrays have {value}"
    q |= {name: value for name, value in record["problem"].items() if name != "kind"}
    for name, value in theorem.derived(q).items():
        if not abs(q[name] - value) <= 5e-9 * abs(value) + 1e-300:
            return f"derived {name} is {q[name]}, not {value}"
    conditions = theorem.conditions(q)
    if len(conditions) != len(record["conditions"]) or not all(map(_holds, conditions)):
        return "a condition fails"
    for condition, text in zip(conditions, record["conditions"], strict=True):
        for side, value in (("left", condition.left), ("right", condition.right)):
            if not abs(float.fromhex(text[side]) - float(value)) <= 1e-5 * abs(float(value)) + 1e-300:
                return f"the {side} side of a condition is {text[side]}, not {value}"
    return _conclusion(record, q, PLANS[theorem.id].schedule(q))


def _conclusion(record: Mapping[str, Any], q: Mapping[str, Any], theirs: Schedule) -> str | None:
    """What the published schedule, and what is stated beside it, promise more than the theorem's own, ``theirs``."""
    published, conclusion = _schedule(record), record["conclusion"]
    if [(s.start, s.count) for s in published] != [(s.start, s.count) for s in theirs]:
        return "the segments are not the theorem's"
    times = sorted({0, 1, 2, 3, 10, 100, 10**4, *(s.start + d for s in (*published, *theirs) for d in (0, 1))})
    numbers = [x for s in published for x in (s.level, s.decrease, s.main_step, s.other_step)]
    if min(numbers) < 0.0 or max(s.decrease for s in published) >= 1.0:
        return "a segment has a number out of range"
    for t in times:
        if not _log(bound(published, t)) >= _log(bound(theirs, t)) - 1e-8 * (1.0 + t * theirs[0].decrease):
            return f"the bound after {t} iterations is {bound(published, t)}, and the theorem's {bound(theirs, t)}"
    for segment, their in zip(published, theirs, strict=True):
        if not (segment.step <= their.step * (1.0 + 1e-6) and segment.decrease <= their.decrease * (1.0 + 1e-6)):
            return f"{segment} promises more than the theorem's {their}"
    if not 1.0 >= float.fromhex(conclusion["rate"]) >= 1.0 - min(s.decrease for s in published) - 1e-15:
        return "the rate is not the schedule's"
    if not float.fromhex(conclusion["initial_gap"]) == q["initial_gap"] == published[0].level:
        return "the gap is not one number"
    return None if float.fromhex(conclusion["step_size"]) == published[0].step else "the step is not one number"


def _holds(condition: Inequality) -> bool:
    left, right = float(condition.left), float(condition.right)
    room = ROUNDING * max(abs(left), abs(right))
    return left <= right + room if condition.relation in ("<", "<=") else left >= right - room


def _schedule(record: Mapping[str, Any]) -> Schedule:
    return [Segment(s[0], s[1], *map(float.fromhex, s[2:])) for s in record["conclusion"]["schedule"]]


def bound(schedule: Schedule, t: int) -> float:
    """The guaranteed gap after t iterations."""
    return gap_at(next(segment for segment in reversed(schedule) if segment.start <= t), t)


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


def _digest(array: Array) -> str:
    return hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + array.tobytes()).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key is repeated")
    return record


def _differs(value: Any, good: Any, where: str = "certificate") -> str | None:
    """Where the form of two JSON values differs: keys, types, texts that are no numbers or hashes."""
    if type(value) is not type(good):
        return f"{where} is a {type(value).__name__}"
    if isinstance(value, dict):
        if value.keys() != good.keys():
            return f"{where} has other keys"
        return next(filter(None, (_differs(value[key], good[key], f"{where}/{key}") for key in value)), None)
    if (
        where == "certificate/conclusion/schedule"
    ):  # as many segments as the numbers ask for: those are the theorem's to say
        return None if value and all(map(_is_segment, value)) else f"{where} is no list of segments"
    if isinstance(value, list):
        if len(value) != len(good):
            return f"{where} has another length"
        return next(
            filter(None, (_differs(a, b, f"{where}/{i}") for i, (a, b) in enumerate(zip(value, good, strict=True)))),
            None,
        )
    if isinstance(value, str) and value != good:
        if where.startswith("certificate/arrays/"):
            return None
        if not good.startswith(("0x", "-0x")):
            return f"{where} is {value!r}"
        return None if _is_number(value) else f"{where} is no finite number"
    return f"{where} is {value!r}" if isinstance(value, bool | int) and value != good else None


def _is_number(value: Any) -> bool:
    """Whether it is a hexadecimal float."""
    try:
        return value.startswith(("0x", "-0x")) and math.isfinite(float.fromhex(value))
    except (AttributeError, ValueError, OverflowError):
        return False


def _is_segment(value: Any) -> bool:
    """Whether it is start, count or nothing, and four numbers."""
    if not isinstance(value, list) or len(value) != 6:
        return False
    start, count, *numbers = value
    return type(start) is int and (count is None or type(count) is int) and all(map(_is_number, numbers))
