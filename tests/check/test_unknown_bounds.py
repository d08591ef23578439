"""A primitive that knows no bound, or a level that takes another's: nothing false follows, whatever the order of max and min."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
import tamper
from changes import GoodRun, once
from theorem_runs import EVERY

from surefoot_check import checker
from surefoot_check.checker import PRECISION, check
from surefoot_check.rigor import bounds
from surefoot_check.rigor.balls import float_above, float_below
from surefoot_check.rigor.bounds import FAST, Level, NotFiniteError
from surefoot_check.rigor.intervals import bounded
from surefoot_check.systems import SYSTEMS
from surefoot_check.verdict import Outcome

MEASURING = ("product", "scaled_columns", "signed_gram", "indefiniteness", "residual", "sharp_residual", "defect")
"""Primitives of a level that return a bound: beside a matrix, or alone."""
REFUSED = (NotFiniteError, OverflowError, np.linalg.LinAlgError)
"""What the checker takes for undecided."""


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``run_of(name)``: the directory of a run of a theorem, made once."""
    return once(tmp_path_factory, lambda name, path: EVERY[name](path))


def without_bound(name: str, unknown: float) -> Level:
    """Level fast, of which one primitive knows no bound."""
    original: Callable[..., Any] = getattr(FAST, name)

    def unbounded(*arguments: Any) -> Any:
        answer = original(*arguments)
        return (answer[0], unknown) if isinstance(answer, tuple) else None if answer is None else unknown

    return replace(FAST, **{name: unbounded})


def enclosures(directory: Path, level: Level) -> tuple[dict[str, tuple[float, float]], float]:
    """Of the base quantities, and the upper bound of the gap."""
    run = tamper.StoredRun.read(directory)
    record, system = run.certificate, SYSTEMS[run.certificate["system"]].enclosures
    published = {name: float.fromhex(text) for name, text in record["quantities"].items()}
    with np.errstate(over="ignore", invalid="ignore"), flint.ctx.workprec(PRECISION):
        problem = system.load_problem(record["problem"]["kind"], run.arrays["problem.safetensors"], level)
        weights = system.read_weights(run.arrays["initial.safetensors"], problem, "initial.safetensors")
        return bounded(system.base_quantities(problem, weights, published)), system.gap_upper(problem, weights)


@pytest.mark.parametrize("unknown", [math.nan, math.inf], ids=["nan", "inf"])
@pytest.mark.parametrize("name", EVERY)
def test_what_is_not_known_widens_an_enclosure_or_ends_the_check(name: str, unknown: float, run_of: GoodRun) -> None:
    true, gap = enclosures(run_of(name), FAST)
    directions = SYSTEMS[name.partition(" ")[0]].directions
    for primitive in MEASURING:
        try:
            intervals, above = enclosures(run_of(name), without_bound(primitive, unknown))
        except REFUSED:
            continue
        for quantity, (low, high) in intervals.items():
            safe = low <= true[quantity][1] if directions[quantity] == "lower" else high >= true[quantity][0]
            assert safe, (primitive, quantity)
        assert above >= 0.999 * gap or math.isinf(above), primitive


@pytest.mark.parametrize("name", EVERY)
def test_without_any_bound_nothing_is_accepted(name: str, run_of: GoodRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """All primitives at once: of what rests on none of them, matrix-free and in balls, everything is still proved."""
    for unknown in (math.nan, math.inf):
        level = FAST
        for primitive in (*MEASURING, "softmax"):
            level = replace(level, **{primitive: getattr(without_bound(primitive, unknown), primitive)})
        monkeypatch.setitem(checker.LEVELS, "fast", level)
        outcome = check(run_of(name)).outcome
        assert outcome is (Outcome.ACCEPT if name.startswith("inverse ") else Outcome.UNDECIDED)


@pytest.mark.parametrize("name", EVERY)
def test_level_exact_takes_no_primitive_of_level_fast(
    name: str, run_of: GoodRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = run_of(name)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a primitive of level fast was called at level exact")

    with monkeypatch.context() as patch:
        for field in fields(Level):
            if field.name in (*MEASURING, "softmax", "cross_entropy"):
                patch.setitem(vars(FAST), field.name, forbidden)
        for primitive in ("product_with_error", "residual_upper", "factorisation_error"):
            patch.setattr(bounds, primitive, forbidden)
        assert check(directory, "exact").outcome is Outcome.ACCEPT
        if not name.startswith("inverse "):
            with pytest.raises(AssertionError, match="level fast"):
                check(directory, "fast")


def test_arrays_and_balls_without_a_number_have_no_bound() -> None:
    for towards in (bounds.array_up, bounds.array_down):
        with pytest.raises(NotFiniteError, match="NaN"):
            towards(np.array([1.0, math.nan]), 1)
    assert bounds.array_up(np.array([math.inf]), 1) == math.inf
    nan = flint.arb("nan")
    assert float_above(nan) == math.inf and float_below(nan) == -math.inf
    assert bounded({"a": (math.nan, 1.0), "b": (0.0, math.nan), "c": (0.0, math.inf), "d": (0.0, 1.0)}) == {
        "d": (0.0, 1.0)
    }
