"""Hand-made changes of runs of two-layer networks, and of the files and fields that runs of all systems have."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from changes import edit, faster, field, reevaluate, scaled
from tamper import SCHEDULE, Array, Change, StoredRun, Tampering, get, put, reevaluated

from surefoot_check.systems import THEOREMS
from surefoot_check.two_layer.constants import DIRECTIONS

CASES: list[Tampering] = []


def case(name: str, change: Change, run: str = "drift", seal: bool = True) -> None:
    """Add a change of content."""
    CASES.append(Tampering(f"{run}: {name}", run, change, seal))


def file_case(name: str, after: Callable[[Path], None], run: str = "drift") -> None:
    """Add a change of files."""
    CASES.append(Tampering(f"{run}: {name}", run, after=after))


def both(*changes: Change) -> Change:
    """Several changes together."""

    def change(run: StoredRun) -> None:
        for step in changes:
            step(run)

    return change


def field_case(name: str, path: tuple[Any, ...], value: Any, run: str = "drift") -> None:
    """A field of the first certificate set to a value."""
    case(name, field(path, value), run)


# numbers that are no finite hexadecimal floats
NUMERIC_FIELDS: dict[str, tuple[Any, ...]] = {
    "initial_gap": ("quantities", "initial_gap"),
    "budget": ("quantities", "budget"),
    "alpha1": ("quantities", "alpha1"),
    "optimal value": ("optimal_value",),
    "conclusion gap": ("conclusion", "initial_gap"),
    "step size": ("conclusion", "step_size"),
    "rate": ("conclusion", "rate"),
    "level": (*SCHEDULE, 0, 2),
    "decrease": (*SCHEDULE, 1, 3),
    "sharp step": (*SCHEDULE, 2, 4),
    "contraction step": (*SCHEDULE, -1, 5),
    "condition left": ("conditions", 0, "left"),
    "condition right": ("conditions", 1, "right"),
}
NOT_NUMBERS: list[Any] = [
    *("nan", "inf", "-inf", "NaN", "0x1.0000000000000p+1024", "0x1.0000000000000p+9999", "0x1p99999999", "0.5", "1e-3"),
    *("", "0x1.8p+0", " 0x1.8000000000000p+0", 0.5, 1, math.nan, math.inf, True, None, [], {}),
]
for _name, _path in NUMERIC_FIELDS.items():
    for _value in NOT_NUMBERS if _name in ("initial_gap", "level", "rate") else NOT_NUMBERS[:8:3] + NOT_NUMBERS[-5:-2]:
        field_case(f"{_name} is {_value!r}", _path, _value)


# the schedule and the conclusion
for _run in ("drift", "constant", "corrected", "softmax", "sensing", "sharp"):
    case("step size larger in the conclusion", scaled(("conclusion", "step_size"), 1.01), _run)
    for _column, _text in ((4, "sharp"), (5, "contraction")):
        for _factor in (1.001, 10.0):

            def _looser(run: StoredRun, column: int = _column, factor: float = _factor) -> None:
                segment = run.certificate["conclusion"]["schedule"][0]
                step = max(float.fromhex(segment[4]), float.fromhex(segment[5])) * factor
                segment[column] = step.hex()
                run.certificate["conclusion"]["step_size"] = step.hex()

            case(f"{_text} step {_factor} times larger, consistently", _looser, _run)
    case("rate better in the conclusion", scaled(("conclusion", "rate"), 1 - 1e-9), _run)
    field_case("rate above 1", ("conclusion", "rate"), (1.5).hex(), _run)
    case("gap smaller in the conclusion", scaled(("conclusion", "initial_gap"), 1 - 1e-9), _run)
    case("first level smaller", scaled((*SCHEDULE, 0, 2), 1 - 1e-6), _run)

    case("first decrease larger by 1e-6", faster(add=1e-6), _run)
    case("last decrease larger by 1e-6", faster(-1, add=1e-6), _run)
    case("first decrease .9", faster(add=0.9, factor=0.0), _run)
    case("first decrease 1", faster(add=1.0, factor=0.0), _run)
    case("negative decrease", faster(add=-0.1, factor=0.0), _run)
    field_case("no segments", SCHEDULE, [], _run)
    field_case("schedule is an object", SCHEDULE, {}, _run)
    field_case("last segment ends", (*SCHEDULE, -1, 1), 10, _run)
    field_case("first segment has another start", (*SCHEDULE, 0, 0), 1, _run)
    field_case("first segment has a negative start", (*SCHEDULE, 0, 0), -1, _run)
    field_case("first segment starts at true", (*SCHEDULE, 0, 0), False, _run)
    field_case("a segment of five entries", (*SCHEDULE, 0), [0, None, (1.0).hex(), (0.0).hex(), (0.0).hex()], _run)
    case(
        "a segment after the endless one",
        lambda run: get(run.certificate, SCHEDULE).append(get(run.certificate, SCHEDULE)[-1]),
        _run,
    )
case("relative 1e-6 larger decrease in the first segment", faster(factor=1.0 + 1e-6))
case("relative 1e-6 larger decrease in the last segment", faster(-1, factor=1.0 + 1e-6))
for _count in (0, -1, True, 3.0, "3", 10**18, 10**19, 10**400, None):
    field_case(f"first count is {str(_count)[:24]}", (*SCHEDULE, 0, 1), _count)
for _index in (0, 1, 40, -1):
    case(f"segment {_index} left out", lambda run, i=_index: get(run.certificate, SCHEDULE).pop(i))
    case(
        f"segment {_index} twice",
        lambda run, i=_index: get(run.certificate, SCHEDULE).insert(i, get(run.certificate, SCHEDULE)[i]),
    )
    case(f"level of segment {_index} smaller", scaled((*SCHEDULE, _index, 2), 1 - 1e-6))
    field_case(f"level of segment {_index} zero", (*SCHEDULE, _index, 2), (0.0).hex())
    field_case(f"sharp step of segment {_index} negative", (*SCHEDULE, _index, 4), (-0.5).hex())
    field_case(f"contraction step of segment {_index} negative", (*SCHEDULE, _index, 5), (-0.5).hex())
    case(
        f"both steps of segment {_index} zero",
        both(
            *(
                lambda run, i=_index, c=column: put(run.certificate, (*SCHEDULE, i, c), (0.0).hex())
                for column in (4, 5)
            ),
            lambda run: put(
                run.certificate, ("conclusion", "step_size"), run.certificate["conclusion"]["schedule"][0][4]
            ),
        ),
    )
case("segments in reverse order", lambda run: get(run.certificate, SCHEDULE).reverse())


def _overlap(run: StoredRun) -> None:
    for segment in get(run.certificate, SCHEDULE)[1:]:
        segment[0] -= 1


case("segments overlap by one iteration", _overlap)


def _merge(run: StoredRun) -> None:
    schedule = get(run.certificate, SCHEDULE)
    schedule[0] = [*schedule[0][:3], *schedule[20][3:]]
    run.certificate["conclusion"] |= {
        "rate": (1.0 - float.fromhex(schedule[20][3])).hex(),
        "step_size": max(float.fromhex(x) for x in schedule[20][4:]).hex(),
    }


case("first segment at the rate of a later level", _merge)

# base quantities: moved in the unsafe direction, everything derived recomputed
for _run in ("drift", "contraction", "corrected", "softmax", "sensing", "sharp"):
    for _name, _direction in DIRECTIONS.items():
        if _name in THEOREMS[f"two-layer/{_run if _run in ('contraction', 'corrected', 'sharp') else 'drift'}"].base:
            if _run == "sensing" and _name.startswith("optimum"):
                continue  # it has no unique minimiser

            def _unsafe(
                run: StoredRun, name: str = _name, sign: float = 1.0 if _direction == "lower" else -1.0
            ) -> None:
                value = float.fromhex(run.certificate["quantities"][name])
                run.certificates["certificate.json"] = reevaluated(
                    run.certificate, {name: value + sign * 1e-6 * max(abs(value), 1e-3)}
                )

            case(f"{_name} off by 1e-6 in the unsafe direction, the rest recomputed", _unsafe, _run)
            case(f"{_name} missing", lambda run, name=_name: run.certificate["quantities"].pop(name), _run)


def choose(**choices: float) -> Change:
    """Other free choices, everything else recomputed."""

    def change(run: StoredRun) -> None:
        run.certificates["certificate.json"] = reevaluated(run.certificate, {}, choices)

    return change


for _value in (0.9, 0.49, 0.0, -0.5):
    case(f"decrease of the rule is {_value}", choose(decrease=_value))
for _run in ("drift", "softmax", "sensing"):
    for _value in (1.5, 1.0, 0.0, -0.1):
        field_case(f"budget field is {_value}", ("quantities", "budget"), _value.hex(), _run)
case("budget .99 with the old schedule", lambda run: put(run.certificate, ("quantities", "budget"), (0.99).hex()))
for _value in (0.0, -1.0, 1.0, 1.5):
    case(f"c is {_value}", choose(c=_value) if _value > 0 else scaled(("quantities", "c"), _value), "corrected")
for _value in (1.0, 0.5):
    case(f"d is {_value}", choose(d=_value), "corrected")
for _factor in (1.01, 10.0):
    case(f"first step {_factor} times larger, the rest recomputed", reevaluate({"initial_step": _factor}), "corrected")
    case(f"first step {_factor} times larger, the rest recomputed", reevaluate({"initial_step": _factor}), "sharp")
for _value in (0.9, 1.0, 1.5):
    case(f"decrease of the rule is {_value}", choose(decrease=_value), "sharp")
field_case("first step negative", ("quantities", "initial_step"), (-1.0).hex(), "corrected")
field_case("first step negative", ("quantities", "initial_step"), (-1.0).hex(), "sharp")
for _run, _names in {
    "drift": ("alpha1", "beta2", "alpha2", "radius", "guaranteed_sigma"),
    "corrected": ("alpha1", "rho_bar", "mu_bar", "K_bar0", "delta"),
    "sensing": ("alpha1", "radius"),
}.items():
    for _name in _names:
        case(f"derived {_name} increased by 1e-6", scaled(("quantities", _name), 1 + 1e-6), _run)
        case(f"derived {_name} missing", lambda run, name=_name: run.certificate["quantities"].pop(name), _run)
for _name in ("n", "quadratic", "unknown", "optimum_sigma_max", "initial_distance"):
    field_case(f"extra quantity {_name}", ("quantities", _name), (1.0).hex(), "sensing")
    field_case(f"extra quantity {_name}", ("quantities", _name), (1.0).hex(), "sharp")

# fields: missing, extra, of another value
for _name in (
    *("format", "system", "theorem", "theorem_version", "status", "problem", "arrays", "quantities", "conditions"),
    *("optimal_value", "rule", "suggestion", "claims", "conclusion"),
):
    # sealing would put the hashes back
    case(f"field {_name} missing", lambda run, name=_name: run.certificate.pop(name), seal=_name != "arrays")
    for _value in (None, 1.5, [], {}):
        case(
            f"field {_name} is {_value!r}",
            lambda run, name=_name, value=_value: put(run.certificate, (name,), value),
            seal=_name != "arrays",
        )
for _name in ("initial_gap", "step_size", "rate", "schedule"):
    case(f"conclusion without {_name}", lambda run, name=_name: run.certificate["conclusion"].pop(name))
for _name in ("name", "left", "relation", "right", "holds", "margin"):
    case(f"condition without {_name}", lambda run, name=_name: run.certificate["conditions"][1].pop(name))
for _name in ("kind", "n", "m", "h", "quadratic"):
    case(f"problem without {_name}", lambda run, name=_name: run.certificate["problem"].pop(name))
for _key, _value in {
    "format": "surefoot-certificate/3",
    "system": "linear-resnet",
    "theorem": "two-layer/unknown",
    "theorem_version": 2,
    "status": "fails",
    "claims": ["L1"],
    "rule": "constant",
    "suggestion": "try harder",
    "note": "an unknown field",
}.items():
    field_case(f"field {_key} is {_value!r}", (_key,), _value)
field_case("theorem is as printed", ("theorem",), "two-layer/as-printed")
field_case("theorem is as printed", ("theorem",), "two-layer/as-printed", "corrected")
field_case("theorem is sharp", ("theorem",), "two-layer/sharp")
field_case("theorem is contraction", ("theorem",), "two-layer/contraction")
field_case("theorem is contraction", ("theorem",), "two-layer/contraction", "softmax")
field_case("theorem is corrected", ("theorem",), "two-layer/corrected", "sensing")
field_case("version is true", ("theorem_version",), True)
field_case("version is 1.0", ("theorem_version",), 1.0)
field_case("claims three levels", ("claims",), ["L1", "L2", "L3"])
for _key, _value in {"n": 2, "m": 3, "h": 13, "quadratic": False, "kind": "sensing"}.items():
    field_case(f"problem {_key} is {_value!r}", ("problem", _key), _value)
field_case("problem is quadratic", ("problem", "quadratic"), True, "softmax")
field_case("problem is quadratic by 1", ("problem", "quadratic"), 1)
field_case("problem n is 3.0", ("problem", "n"), 3.0)
field_case("problem kind is squared", ("problem", "kind"), "squared", "sensing")
field_case("problem kind is softmax", ("problem", "kind"), "softmax")
field_case("problem kind is a list", ("problem", "kind"), ["squared"])
for _key, _value in {"holds": False, "relation": ">=", "name": "another", "margin": (3.0).hex()}.items():
    field_case(f"condition {_key} is {_value!r}", ("conditions", 1, _key), _value)
case("condition left changed", scaled(("conditions", 1, "left"), 2.0))
case("a condition left out", lambda run: run.certificate["conditions"].pop())
case("a condition twice", lambda run: run.certificate["conditions"].append(run.certificate["conditions"][0]))


def _swap_hashes(run: StoredRun) -> None:
    hashes = run.certificate["arrays"]
    hashes["initial/W1"], hashes["initial/W2"] = hashes["initial/W2"], hashes["initial/W1"]


case("hashes swapped", _swap_hashes, seal=False)
case("a hash missing", lambda run: run.certificate["arrays"].pop("problem/Y"), seal=False)
case("a hash of no array", lambda run: put(run.certificate, ("arrays", "problem/Z"), "0" * 64), seal=False)

# arrays


def one_ulp(array: Array) -> Array:
    """The last entry moved to the next float."""
    moved = array.copy()
    moved.reshape(-1)[-1] = np.nextafter(moved.reshape(-1)[-1], np.inf)
    return moved


def with_nan(array: Array) -> Array:
    """The first entry replaced by NaN."""
    moved = array.copy()
    moved.reshape(-1)[0] = np.nan
    return moved


def other_shape(array: Array) -> Array:
    """The transpose, or a column."""
    return np.ascontiguousarray(array.T) if array.ndim > 1 else array[:, None]


MALFORMED: dict[str, Callable[[Array], Array]] = {
    "is zero": np.zeros_like,
    "has a NaN": with_nan,
    "is huge": lambda A: A * 1e200,
    "is tiny": lambda A: A * 1e-200,
    "is float32": lambda A: A.astype(np.float32),
    "is transposed": other_shape,
    "has another row": lambda A: np.concatenate([A, A[:1]]),
    "is empty": lambda A: A[:0],
}
PROBLEM_ARRAYS = {"drift": ("X", "Y"), "corrected": ("X", "Y"), "softmax": ("X",), "sensing": ("A", "y")}
for _run, _names in PROBLEM_ARRAYS.items():
    _places = [("problem.safetensors", name) for name in (*_names, "optimum")]
    for _path, _name in [*_places, ("initial.safetensors", "W1"), ("initial.safetensors", "W2")]:
        case(f"{_name} moved by one ulp, hashes as they were", edit(_path, _name, one_ulp), _run, seal=False)
        case(f"{_name} missing", lambda run, p=_path, n=_name: run.arrays[p].pop(n), _run)
        # without a unique minimiser the witness plays no part, and the certificate for these data remains true
        unused = _run == "sensing" and _name == "optimum"
        if not unused:
            case(f"{_name} scaled by .99", edit(_path, _name, lambda A: A * 0.99), _run)
        if not unused and _name != "y":  # the gap is smaller for the larger y: a true, weaker certificate
            case(f"{_name} scaled by 1.01", edit(_path, _name, lambda A: A * 1.01), _run)
        if _run in ("drift", "sensing"):
            for _text, _change in MALFORMED.items():
                if not (unused and _text in ("is zero", "is tiny")):
                    case(f"{_name} {_text}", edit(_path, _name, _change), _run)
    if _run != "sensing":
        case(
            "optimum off by 1e-6",
            edit("problem.safetensors", "optimum", lambda A: A + 1e-6 * np.abs(A).max()),
            _run,
        )
    case("an extra array in the problem", lambda run: put(run.problem, ("Z",), np.ones(3)), _run)
    case("an extra array in the initial weights", lambda run: put(run.weights, ("W3",), np.ones(3)), _run)
for _value in (0.2, 0.05, 0.0, -0.1, math.nan, math.inf, 5e-324):
    case(f"l2 is {_value}", lambda run, v=_value: put(run.problem, ("l2",), np.array(v)), "softmax")
case("labels reversed", edit("problem.safetensors", "labels", lambda A: A[::-1].copy()), "softmax")
case(
    "one label changed",
    edit("problem.safetensors", "labels", lambda A: np.where(np.arange(len(A)) == 0, 1 - A, A)),
    "softmax",
)
case("labels out of range", edit("problem.safetensors", "labels", lambda A: A + 1), "softmax")
case("labels negative", edit("problem.safetensors", "labels", lambda A: A - 1), "softmax")
case("labels are floats", edit("problem.safetensors", "labels", lambda A: A.astype(np.float64)), "softmax")

OBSERVED = ("rows", "columns", "values", "counts", "shape")
for _name in OBSERVED:
    case(f"{_name} missing", lambda run, n=_name: run.problem.pop(n), "completion")
    for _text in ("is float32", "is transposed", "has another row", "is empty"):
        case(f"{_name} {_text}", edit("problem.safetensors", _name, MALFORMED[_text]), "completion")
    if _name != "values":
        case(f"{_name} in floats", edit("problem.safetensors", _name, lambda A: A.astype(np.float64)), "completion")
        case(f"{_name} negative", edit("problem.safetensors", _name, lambda A: -A - 1), "completion")
        case(f"{_name} beyond all", edit("problem.safetensors", _name, lambda A: A + (1 << 62)), "completion")
for _name in ("rows", "columns"):
    case(f"{_name} out of range", edit("problem.safetensors", _name, lambda A: A + 1), "completion")
    case(f"{_name} in another order", edit("problem.safetensors", _name, lambda A: A[::-1].copy()), "completion")
    case(f"{_name} all the same", edit("problem.safetensors", _name, np.zeros_like), "completion")
case("values tripled", edit("problem.safetensors", "values", lambda A: 3.0 * A), "completion")
case("values have a NaN", edit("problem.safetensors", "values", with_nan), "completion")
case("values of other entries", edit("problem.safetensors", "values", lambda A: -A), "completion")
case("counts doubled", edit("problem.safetensors", "counts", lambda A: 2 * A), "completion")
case("counts zero", edit("problem.safetensors", "counts", lambda A: A - 1), "completion")
case("shape larger", edit("problem.safetensors", "shape", lambda A: A + 1), "completion")
case("an optimum", lambda run: put(run.problem, ("optimum",), np.zeros((3, 2))), "completion")

# checkpoints, final weights and phases
FINAL = "final.safetensors"


def in_checkpoint(change: Callable[[dict[str, Array]], None]) -> Change:
    """Change the arrays of a checkpoint in the middle of the run."""
    return lambda run: change(run.arrays[run.checkpoint])


for _run in ("drift", "corrected", "softmax", "sensing"):
    case("final weights are the initial ones", lambda run: run.final.update(run.weights), _run)
    case("checkpoint weights are the initial ones", lambda run: run.arrays[run.checkpoint].update(run.weights), _run)
    case("final weights of another run", edit(FINAL, "W2", lambda A: np.ascontiguousarray(A[::-1])), _run)
    case("final iteration raised", edit(FINAL, "iteration", lambda t: np.array(10**12)), _run)
    case("final iteration the largest", edit(FINAL, "iteration", lambda t: np.array(2**63 - 1)), _run)
    case("final iteration lowered", edit(FINAL, "iteration", lambda t: np.array(1)), _run)
    case("final iteration zero", edit(FINAL, "iteration", lambda t: np.array(0)), _run)
    case("checkpoint iteration raised", in_checkpoint(lambda a: put(a, ("iteration",), a["iteration"] + 1)), _run)
    case("checkpoint iteration lowered", in_checkpoint(lambda a: put(a, ("iteration",), a["iteration"] - 1)), _run)
for _path in (FINAL, "checkpoint"):

    def _of(change: Callable[[dict[str, Array]], None], path: str = _path) -> Change:
        return lambda run: change(run.arrays[run.checkpoint if path == "checkpoint" else path])

    for _value in (np.array(-1), np.array(5.0), np.array([5]), np.array(True), np.array(5, np.int32)):
        case(f"{_path} iteration is {_value!r}", _of(lambda a, v=_value: put(a, ("iteration",), v)))
    for _name in ("iteration", "certificate", "W1", "W2"):
        case(f"{_path} without {_name}", _of(lambda a, n=_name: a.pop(n)), seal=False)
    case(f"{_path} owner changed", _of(lambda a: put(a, ("certificate",), np.zeros(32, np.uint8))), seal=False)
    case(f"{_path} owner cut", _of(lambda a: put(a, ("certificate",), a["certificate"][:16])), seal=False)
    case(
        f"{_path} owner of another type",
        _of(lambda a: put(a, ("certificate",), a["certificate"].astype(np.int64))),
        seal=False,
    )
    case(f"{_path} of float32", _of(lambda a: put(a, ("W1",), a["W1"].astype(np.float32))))
    case(f"{_path} with a NaN", _of(lambda a: put(a, ("W1",), with_nan(a["W1"]))))
    case(f"{_path} huge", _of(lambda a: put(a, ("W1",), a["W1"] * 1e300)))
    case(f"{_path} large", _of(lambda a: put(a, ("W1",), a["W1"] * 1e45)))
    case(f"{_path} of another width", _of(lambda a: a.update(W1=a["W1"][:, :-1].copy(), W2=a["W2"][:, :-1].copy())))
    case(
        f"{_path} widened by zeros",
        _of(lambda a: a.update(W1=np.pad(a["W1"], ((0, 0), (0, 1))), W2=np.pad(a["W2"], ((0, 0), (0, 1))))),
    )
    case(f"{_path} with W1 and W2 swapped", _of(lambda a: a.update(W1=a["W2"], W2=a["W1"])))


def _rename(run: StoredRun) -> None:
    run.arrays["checkpoints/000000003.safetensors"] = run.arrays.pop(run.checkpoint)


case("a checkpoint renamed", _rename)
case(
    "a checkpoint with an odd name",
    lambda run: put(run.arrays, ("checkpoints/7.safetensors",), run.arrays[run.checkpoint]),
)


def _phase_without_checkpoint(run: StoredRun) -> None:
    start = run.phase[0].removeprefix("certificate-").removesuffix(".json")
    del run.arrays[f"checkpoints/{start}.safetensors"]


case("a phase without its checkpoint", _phase_without_checkpoint, "phases")
for _name in ("7", "", "00000000x", "000000003", "-00000007"):
    case(
        f"a phase named {_name!r}",
        lambda run, name=_name: put(run.certificates, (f"certificate-{name}.json",), run.phase[1]),
        "phases",
    )
case(
    "a phase with an underscore", lambda run: put(run.certificates, ("certificate_copy.json",), run.phase[1]), "phases"
)
for _seal in (True, False):
    _text = "" if _seal else ", hashes as they were"
    case(
        f"a phase in place of the first certificate{_text}",
        lambda run: put(run.certificates, ("certificate.json",), run.phase[1]),
        "phases",
        _seal,
    )
    case(
        f"the first certificate in place of a phase{_text}",
        lambda run: put(run.certificates, (run.phase[0],), json.loads(json.dumps(run.certificate))),
        "phases",
        _seal,
    )
case("a phase with another kind", lambda run: put(run.phase[1], ("problem", "kind"), "sensing"), "phases")
case("a phase with a smaller gap", lambda run: put(run.phase[1], ("quantities", "initial_gap"), (1e-9).hex()), "phases")
case("a phase that is as printed", lambda run: put(run.phase[1], ("theorem",), "two-layer/as-printed"), "phases")


def _violation_hidden_by_a_phase(run: StoredRun) -> None:
    # The run stood still until then, which the first certificate rules out, and was then certified again.
    name = run.phase[0]
    path = f"checkpoints/{name.removeprefix('certificate-').removesuffix('.json')}.safetensors"
    state = run.arrays[path] | run.weights
    run.certificates = {"certificate.json": run.certificate, name: json.loads(json.dumps(run.certificate))}
    run.arrays = {p: a for p, a in run.arrays.items() if p in ("initial.safetensors", "problem.safetensors")} | {
        path: state
    }


case("a violation hidden by a phase that starts at it", _violation_hidden_by_a_phase, "phases")

# files
PHASE = "certificate-000000007.json"
FILES = (
    "certificate.json",
    "problem.safetensors",
    "initial.safetensors",
    FINAL,
    "checkpoints/000000005.safetensors",
    PHASE,
)
for _file in FILES:
    _run = "phases" if _file == PHASE else "drift"

    def _rewrite(change: Callable[[bytes], bytes], name: str = _file) -> Callable[[Path], None]:
        return lambda directory: (directory / name).write_bytes(change((directory / name).read_bytes())) and None

    file_case(f"{_file} with trailing garbage", _rewrite(lambda content: content + b"garbage"), _run)
    file_case(f"{_file} with a trailing zero byte", _rewrite(lambda content: content + b"\0"), _run)
    file_case(f"{_file} cut in half", _rewrite(lambda content: content[: len(content) // 2]), _run)
    file_case(f"{_file} without its end", _rewrite(lambda content: content[:-4]), _run)
    file_case(f"{_file} empty", _rewrite(lambda content: b""), _run)

    def _link(directory: Path, name: str = _file) -> None:
        target = directory / "elsewhere"
        (directory / name).rename(target)
        (directory / name).symlink_to(target)

    def _broken_link(directory: Path, name: str = _file) -> None:
        (directory / name).unlink()
        (directory / name).symlink_to(directory / "nowhere")

    def _folder(directory: Path, name: str = _file) -> None:
        (directory / name).unlink()
        (directory / name).mkdir()

    file_case(f"{_file} symlinked", _link, _run)
    file_case(f"{_file} a broken symbolic link", _broken_link, _run)
    file_case(f"{_file} a folder", _folder, _run)
for _file in FILES[:3]:
    file_case(f"{_file} removed", lambda directory, name=_file: (directory / name).unlink())


def _text_case(name: str, change: Callable[[str], str]) -> None:
    def apply(directory: Path) -> None:
        file = directory / "certificate.json"
        text = file.read_text()
        assert change(text) != text
        file.write_text(change(text))

    file_case(f"certificate.json {name}", apply)


_text_case("with a duplicate key", lambda text: text.replace('"format"', '"rule": "sharp",\n "format"', 1))
_text_case(
    "with a duplicate quantity",
    lambda text: text.replace('"alpha1":', '"alpha1": "0x1.0000000000000p+9",\n  "alpha1":', 1),
)
_text_case("with a byte order mark", lambda text: "\ufeff" + text)
_text_case("twice", lambda text: text + text)
_text_case("as an array", lambda text: f"[{text}]")
_text_case("nested deeply", lambda text: text.replace('"suggestion": ""', '"suggestion": ' + "[" * 5000 + "]" * 5000))
_text_case("with another line end", lambda text: text + "\n")


def _linked_checkpoints(directory: Path) -> None:
    (directory / "checkpoints").rename(directory / "elsewhere")
    (directory / "checkpoints").symlink_to(directory / "elsewhere")


def _checkpoints_file(directory: Path) -> None:
    shutil.rmtree(directory / "checkpoints")
    (directory / "checkpoints").write_bytes(b"")


file_case("checkpoints a symbolic link", _linked_checkpoints)
file_case("checkpoints a file", _checkpoints_file)
