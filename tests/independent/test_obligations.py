"""Theorems as data: what ``surefoot-check --obligations`` prints, evaluated and differentiated by other code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import flint
import pytest
from changes import GoodRun, once
from independent import graph as arithmetic
from independent.graph import Graph, derivatives, evaluate, holds
from mpmath import mp, mpf
from theorem_runs import EVERY

from surefoot_check.__main__ import main
from surefoot_check.checker import PRECISION
from surefoot_check.run_files import Certificate
from surefoot_check.statement import Inequality, converted
from surefoot_check.systems import SYSTEMS, THEOREMS
from surefoot_check.tracing import Graph as Tracing
from surefoot_check.tracing import graph_of

every_theorem = pytest.mark.parametrize("name", EVERY)
NODES = 40_000
"""Nodes that are evaluated for the changes of one certificate."""
NEGLIGIBLE = mpf(10) ** -50
"""A slope that is 0 up to rounding, relative to its terms."""

SPECTRUM = "it says on which side of l and u the factor is largest, and holds of any l and u that enclose the spectrum"
EQUALITY = "with the inequality beside it this is an equality between published numbers"
POSITIVE = "what it divides by is positive; any positive bound will do"
ROOT = "the published root solves its equation up to its accuracy, from both sides"
SPENT = "less is spent of a smaller alpha1, which any lower bound is: then s+ and with it the smoothness grow less"
EXACT = "the parameters of the method are published exactly as they are stored"
ANY_BOUNDS = "the theorem holds for any upper bounds of the norms in it; its largest step is not monotone in them"
ANY_LOWER = (
    "the theorem holds for any lower bound m0, and a smaller one allows a larger step and guarantees a smaller rate"
)
OF_USE = "it says only that the bounds are of use; each of them is an obligation of its own"
ITS_INTERVAL = "the theorem speaks of the matrices of the published interval"

CHAINED = "b²R_j²/2 is the level of an epoch, chained to the first one, of the same b: R_j is free of it"
NOT_MONOTONE: dict[tuple[str, str], tuple[str, str]] = {
    ("two-layer/.*", r"segment: the floor step is at most 2/\(l\+u\)"): (
        "strong_convexity lambda_n lambda_m",
        SPECTRUM,
    ),
    ("two-layer/.*", "segment: the gain increases up to the floor step"): (
        "lambda_n lambda_m",
        SPENT,
    ),
    ("two-layer/sharp", "smoothness: K > 0"): ("smoothness", POSITIVE),
    ("two-layer/prescribed", "the steps lower the bound: .*"): ("initial_gap", OF_USE),
    ("two-layer/corrected", "e1 solves eta K_bar0 = 1 from above|e2 is where it no longer stays close"): (
        "smoothness strong_convexity lambda_plus lambda_minus lambda_n lambda_m initial_gap initial_distance "
        "optimum_sigma_max",
        ROOT,
    ),
    ("feed-forward/minimum", "the floor step: .*"): ("lambda_min_H", ANY_LOWER),
    ("implicit/spectral", "the first level is the initial gap"): ("initial_gap", EQUALITY),
    ("implicit/measured", "the step: .*"): ("sigma_min_Z", SPECTRUM),
    ("implicit/gd", r"there are inputs: \|X\|_F > 0"): ("frobenius_X", POSITIVE),
    ("implicit/gd", r"\(20\): eta is below its bound"): ("gamma norm_b", ANY_BOUNDS),
    ("step-sizes/.*", "the step is at least the first step"): ("range_low", EQUALITY),
    ("step-sizes/prox-rate", "the iterates stay in a bounded set: E > 0"): ("radius_energy", POSITIVE),
    ("inverse/.*", "the interval is positive: lower > 0"): ("lower", ITS_INTERVAL),
    (".*/sgd.*", "segment: the decrease is the theorem's"): ("norm_J_ball", CHAINED),
    ("deconvolution/ladmm", "the step is at most the first step"): ("alpha", EXACT),
    ("deconvolution/ladmm", "segment: level is at least D/t"): ("beta gamma", EXACT),
    ("deconvolution/tv", "the step is at most the first step"): ("beta", EXACT),
    ("deconvolution/tv", "beta > 0"): ("beta", EXACT),
}
"""By patterns of theorems and inequalities: base quantities that make them easier on their safe side, and why that is right."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``directory(name)``: a run of ``EVERY``, made once."""
    return once(tmp_path_factory, lambda name, path: EVERY[name](path))


@pytest.fixture(scope="module")
def graph(directory: GoodRun) -> Callable[[str], Graph]:
    """``graph(name)``: the graph of its certificate, as it is printed."""
    return cache(lambda name: json.loads(json.dumps(graph_of(directory(name), SYSTEMS))))


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    with flint.ctx.workprec(PRECISION), mp.workprec(arithmetic.PRECISION):
        yield


class Stated:
    """What the checker has of a certificate, in balls, with some numbers changed: derived quantities, conditions, obligations."""

    def __init__(self, directory: Path, changed: dict[str, float] | None = None) -> None:
        certificate, changed = Certificate.read(directory / "certificate.json", SYSTEMS), changed or {}
        theorem = certificate.theorem
        numbers = {**certificate.quantities, **changed}
        names = [name for name in (*theorem.base, *theorem.chosen(numbers)) if name in numbers]
        q = {name: flint.arb(numbers[name]) for name in names} | certificate.sizes
        schedule = list(certificate.schedule)
        for name in changed:
            if found := re.fullmatch(r"segment\[(\d+)\]\.(\w+)", name):
                index = int(found[1])
                schedule[index] = replace(schedule[index], **{found[2]: changed[name]})
        self.derived: dict[str, Any] = theorem.derived(q)
        self.conditions = theorem.conditions(q)
        self._obligations = lambda: list(theorem.obligations(q, converted(schedule, flint.arb)))

    @property
    def obligations(self) -> list[Inequality]:
        """Only where the conditions hold."""
        return self._obligations()


def meet(interval: Any, ball: Any) -> bool:
    """Whether both are narrow and have a number in common."""
    middle, radius = (
        mpf(int(part)) * mpf(2) ** int(power) for part, power in (x.man_exp() for x in (ball.mid(), ball.rad()))
    )
    width = max(radius, interval.b - interval.a)
    return bool(
        width <= abs(middle) * mpf(10) ** -25 and middle - radius <= interval.b and interval.a <= middle + radius
    )


def same(found: dict[str, Any], inequality: Inequality, values: list[Any]) -> None:
    """One inequality of a graph and of the checker: the name, both sides and the verdict."""
    assert (found["name"], found["relation"]) == (inequality.name, inequality.relation)
    for side in ("left", "right"):
        assert meet(values[found[side]], flint.arb(getattr(inequality, side))), (inequality.name, side)
    assert holds(found, values) == inequality.certain, inequality.name


def test_there_is_a_run_of_every_theorem(graph: Callable[[str], Graph]) -> None:
    assert {graph(name)["theorem"] for name in EVERY} == set(THEOREMS)


@every_theorem
def test_values_and_verdicts_are_those_of_the_checker(
    name: str, graph: Callable[[str], Graph], directory: GoodRun
) -> None:
    data, stated = graph(name), Stated(directory(name))
    values = evaluate(data)
    assert data["derived"].keys() == stated.derived.keys()
    for symbol, value in stated.derived.items():
        entry = data["derived"][symbol]
        assert meet(values[entry["node"]], flint.arb(value)), symbol
        assert abs(values[entry["node"]].mid - float.fromhex(entry["published"])) <= 1e-9 * abs(
            values[entry["node"]].mid
        )
    for key in ("conditions", "obligations"):
        for found, inequality in zip(data[key], getattr(stated, key), strict=True):
            same(found, inequality, values)
            assert holds(found, values)
    assert all(holds(choice, values) for choice in data["choices"])


@every_theorem
def test_verdicts_on_other_numbers_are_those_of_the_checker(
    name: str, graph: Callable[[str], Graph], directory: GoodRun
) -> None:
    """One number moved at a time. Where a choice no longer holds, the graph is not that of the number, and says so."""
    data, failing, compared = graph(name), 0, 0
    changes = list(moved(data))
    for input, value in changes[:: 1 + len(changes) * len(data["nodes"]) // NODES]:
        values, stated = evaluate(data, {input: value}), Stated(directory(name), {input: value})
        for key in ("conditions", "obligations"):
            if key == "obligations" and not all(holds(choice, values) for choice in data["choices"]):
                break
            for found, inequality in zip(data[key], getattr(stated, key), strict=False):
                same(found, inequality, values)
                compared += 1
                if not inequality.certain:
                    failing += 1
                    break
            else:
                continue
            break
    assert failing >= 1 and compared > failing


def moved(data: Graph) -> Iterator[tuple[str, float]]:
    """Inputs that may be moved, of the schedule those of three segments, and values beside their own; first a level too low."""
    segments = {name.split(".")[0] for name, entry in data["inputs"].items() if entry["kind"] == "segment"}
    some = {f"segment[{index}]" for index in (0, len(segments) // 2, len(segments) - 1)}
    yield "segment[0].level", (1.0 - 1e-3) * float.fromhex(data["inputs"]["segment[0].level"]["value"])
    for name, entry in data["inputs"].items():
        if not entry["fixed"] and (entry["kind"] in ("base", "choice") or name.split(".")[0] in some):
            if isinstance(entry["value"], int):
                yield name, entry["value"] + 1
            else:
                value = float.fromhex(entry["value"])
                yield from ((name, value * factor) for factor in (1.0 - 1e-3, 1.0 + 1e-3) if value != 0.0)


@pytest.fixture(scope="module")
def easier(graph: Callable[[str], Graph]) -> Callable[[str], set[tuple[str, str, str]]]:
    """``easier(name)``: theorem, inequality and base quantity, where the slope says that the inequality becomes easier as the
    quantity moves to the side on which it is published."""
    return cache(lambda name: _easier(graph(name)))


def _easier(data: Graph) -> set[tuple[str, str, str]]:
    bases = [x for x, entry in data["inputs"].items() if entry["kind"] == "base" and not left_out(x)]
    slopes, found = derivatives(data, bases), set[tuple[str, str, str]]()
    for inequality in (*data["conditions"], *data["obligations"]):
        toward = 1 if inequality["relation"] in ("<", "<=") else -1
        for base in bases:
            left, right = (slopes[inequality[side]].get(base, mpf(0)) for side in ("left", "right"))
            outward = 1 if data["inputs"][base]["direction"] == "upper" else -1
            if toward * outward * (right - left) > NEGLIGIBLE * (abs(left) + abs(right)):
                found.add((data["theorem"], re.sub(r"segment \d+", "segment", inequality["name"]), base))
    return found


@every_theorem
def test_no_base_quantity_makes_an_inequality_easier_on_its_safe_side(
    name: str, easier: Callable[[str], set[tuple[str, str, str]]]
) -> None:
    """Else a bound that errs to the safe side would prove more than the true value does."""
    unexplained = [each for each in sorted(easier(name)) if not any(excused(excuse, *each) for excuse in NOT_MONOTONE)]
    assert not unexplained


def test_what_is_not_monotone_is_so(easier: Callable[[str], set[tuple[str, str, str]]]) -> None:
    found = {each for name in EVERY for each in easier(name)}
    for excuse, (bases, _) in NOT_MONOTONE.items():
        for base in bases.split():
            assert any(each[2] == base and excused(excuse, *each) for each in found), (excuse, base)


def left_out(name: str) -> bool:
    """Of the many masses of a spectrum, all but three, which enter alike."""
    return name.startswith("mass[") and name not in ("mass[0]", "mass[64]", "mass[127]")


def excused(excuse: tuple[str, str], theorem: str, inequality: str, base: str) -> bool:
    """Whether an entry of ``NOT_MONOTONE`` is about this."""
    same = re.fullmatch(excuse[0], theorem) and re.fullmatch(excuse[1], inequality)
    return bool(same) and base in NOT_MONOTONE[excuse][0].split()


def test_the_differentiation_agrees_with_differences(graph: Callable[[str], Graph]) -> None:
    for name in ("two-layer corrected", "step-sizes logistic", "implicit gd", "inverse order"):
        data = graph(name)
        bases = [x for x, entry in data["inputs"].items() if entry["kind"] == "base" and not entry["fixed"]]
        slopes = derivatives(data, bases)
        for base in bases:
            value = mpf(float.fromhex(data["inputs"][base]["value"]))
            ends = [evaluate(data, {base: value * (1 + sign * mpf(2) ** -80)}) for sign in (1, -1)]
            for entry in data["derived"].values():
                high, low = (mpf(values[entry["node"]].mid) for values in ends)
                slope = slopes[entry["node"]].get(base, mpf(0))
                difference = (high - low) / (value * mpf(2) ** -79) if value else slope
                assert abs(difference - slope) <= 1e-15 * (abs(slope) + abs(high))


def test_the_interpreter_knows_every_operation() -> None:
    tracing = Tracing()
    x = tracing.input("x", 0.5)
    for found in (
        x + 1,
        1 - x,
        x * x,
        1 / x,
        x**2,
        -x,
        x.max(1),
        x.min(1),
        x.sqrt(),
        x.exp(),
        x.expm1(),
        x.log(),
        x.log1p(),
    ):
        assert meet(arithmetic.evaluate(described(tracing))[found.index], found.value)
    operations = {node[0] for node in tracing.nodes} - {"input", "constant"}
    assert operations == arithmetic.OPERATIONS.keys()


def described(tracing: Tracing) -> Graph:
    """Inputs and nodes of a graph as they are printed."""
    inputs = {name: {**entry, "value": entry["value"].hex()} for name, entry in tracing.inputs.items()}
    return {"inputs": inputs, "nodes": [list(node) for node in tracing.nodes]}


def test_what_is_computed_is_no_plain_number() -> None:
    tracing = Tracing()
    x = tracing.input("x", 2.0)
    assert float(x) == 2.0 and tracing.inputs["x"]["fixed"]
    for read in (float, int, bool, lambda value: value == 4.0):
        with pytest.raises(TypeError, match=r"surefoot_check\.numbers"):
            read(x * 2.0)


def test_a_comparison_is_a_choice_only_where_it_is_certain() -> None:
    tracing = Tracing()
    x = tracing.input("x", 2.0)
    root = x.sqrt()
    assert root < 1.5 and not root > 1.5 and not root * root < 2.0 and not root * root >= 2.0
    assert [relation for _, relation, _ in tracing.choices] == ["<", "<="]


# -- the command --------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_graph(
    directory: GoodRun, graph: Callable[[str], Graph], capsys: pytest.CaptureFixture[str]
) -> None:
    path = directory("two-layer corrected")
    for given in (path, path / "certificate.json"):
        assert main(["--obligations", str(given)]) == 0
        assert json.loads(capsys.readouterr().out) == graph("two-layer corrected")
    assert graph("two-layer corrected")["format"] == "surefoot-obligations/1"


def test_the_command_says_what_is_wrong(directory: GoodRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((directory("two-layer corrected") / "certificate.json").read_text())
    quantities, problem = record["quantities"], record["problem"]
    without = {name: value for name, value in quantities.items() if name != "smoothness"}
    changes = {
        "nothing is claimed": {"status": "fails", "claims": []},
        "cannot be evaluated with its quantities and sizes (KeyError('smoothness'))": {"quantities": without},
        "(KeyError('n'))": {"problem": {**problem, "n": "3"}},
        "'strong convexity: mu > 0' is not certain": {"quantities": {**quantities, "strong_convexity": "0x0.0p+0"}},
    }
    for message, change in changes.items():
        (tmp_path / "changed.json").write_text(json.dumps({**record, **change}))
        assert main(["--obligations", str(tmp_path / "changed.json")]) == 2
        assert message in capsys.readouterr().err
    assert main(["--obligations", str(tmp_path / "absent.json")]) == 2
    assert "absent.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [[], ["--obligations", "certificate.json", "DIR"], ["--obligations", "certificate.json", "--replay"]],
    ids=["neither", "both", "an option of a check"],
)
def test_it_is_a_directory_or_a_certificate(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "--obligations" in capsys.readouterr().err
