"""Published base quantities and the checker's enclosures against their independent definitions (``independent``).

``instances`` has the cases: one module a system with ``instances(theorem) -> dict[str, Callable[[], Stored]]`` by the name of the
family of arrays. A builder is called anew for every mutation, so that what it certifies goes through the mutated code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import flint
import numpy as np
import pytest
from independent.reference import DIGITS, Reference
from mpmath import mp, mpf

from surefoot._core.certificate import Certificate, digests
from surefoot._core.plans import PLANS
from surefoot._core.registry import system_of
from surefoot_check import checker
from surefoot_check.rigor.bounds import FAST, Level
from surefoot_check.rigor.intervals import Interval
from surefoot_check.statement import SLACK
from surefoot_check.systems import SYSTEMS

Array = np.ndarray
Arrays = Mapping[str, Array]
PUBLISHED = mpf(SLACK) * (1 + mpf(10) ** -6)
"""Relative slack of published numbers, and their rounding."""
LEAST = 0.01
"""A mutation moves a quantity by this at least."""


@dataclass(frozen=True)
class Stored:
    """What a run directory holds: theorem, kind of problem, its arrays, the initial weights, and the published quantities."""

    theorem: str
    kind: object
    problem: Arrays
    weights: Arrays
    quantities: Mapping[str, float]

    @property
    def system(self) -> str:
        """The name of the system."""
        return self.theorem.split("/")[0]

    @property
    def base(self) -> list[str]:
        """The published base quantities."""
        return [name for name in PLANS[self.theorem].theorem.base if name in self.quantities]


def stored(certificate: Certificate, problem: Mapping[str, Any], weights: Mapping[str, Any]) -> Stored:
    """A certificate with the tensors that it speaks of, which its hashes confirm."""
    assert certificate.arrays == digests(problem, weights)
    copies = ({name: tensor.cpu().numpy().copy() for name, tensor in each.items()} for each in (problem, weights))
    return Stored(certificate.theorem, certificate.problem["kind"], *copies, certificate.quantities)


def certified(net: Any, loss: Any, theorem: str) -> Stored:
    """A network and a loss, certified."""
    import surefoot as sf

    system = system_of(net)
    problem = system.problem(net, loss)
    arrays = getattr(problem, "reduced", problem).arrays()
    return stored(sf.certify(net, loss, theorem), arrays, system.reduced(net, problem))


def references(module: ModuleType, case: Stored) -> dict[str, Reference]:
    """The base quantities of these arrays by their definitions; evaluated once for the same arrays and choices."""
    chosen = PLANS[case.theorem].theorem.chosen(case.quantities)
    choices = {name: value for name, value in case.quantities.items() if name in chosen}
    return _evaluated(module, _Key.of(case, tuple(sorted(choices.items()))))


@dataclass(frozen=True)
class _Key:
    """Arrays and choices, compared by their bytes."""

    bytes: tuple[object, ...]
    at: Any

    @classmethod
    def of(cls, case: Stored, choices: tuple[tuple[str, float], ...]) -> _Key:
        each = sorted([("problem/" + k, v) for k, v in case.problem.items()] + list(case.weights.items()))
        return cls(
            (case.kind, choices, *((k, v.shape, v.dtype.str, v.tobytes()) for k, v in each)), (case, dict(choices))
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)


@cache
def _evaluated(module: ModuleType, key: _Key) -> dict[str, Reference]:
    case, choices = key.at
    with mp.workdps(DIGITS):
        return module.quantities(case.kind, case.problem, case.weights, choices)


@cache
def _gap(gap: Any, key: _Key) -> mpf:
    case, _ = key.at
    with mp.workdps(DIGITS):
        return gap(case.kind, case.problem, case.weights)


def opened(case: Stored, level: Level) -> tuple[Any, dict[str, Array]]:
    """Problem and weights as the checker reads them."""
    arrays = dict(case.problem)
    problem = SYSTEMS[case.system].enclosures.load_problem(case.kind, arrays, level)
    return problem, SYSTEMS[case.system].enclosures.read_weights(case.weights, problem, "initial.safetensors")


def moved(case: Stored) -> Stored:
    """The same with the weights that change moved at random, by a thousandth."""
    draw = np.random.default_rng(0)
    fixed = SYSTEMS[case.system].enclosures.FIXED
    weights = {
        k: v if k in fixed else v * (1.0 + 1e-3 * draw.standard_normal(v.shape)) for k, v in case.weights.items()
    }
    return replace(case, weights=weights)


def wrongly_published(case: Stored, truth: Mapping[str, Reference]) -> dict[str, str]:
    """Published quantities that are on the unsafe side of the truth or beyond their slack on the safe side, and why."""
    wrong: dict[str, str] = {}
    with mp.workdps(DIGITS):
        for name in case.base:
            published, true, sign = mpf(case.quantities[name]), truth[name], _sign(case.system, name)
            room = true.slack + PUBLISHED * (abs(true.value) + true.slack)
            if sign * (published - true.value) < 0:
                wrong[name] = (
                    f"{name} is published as {float(published)!r}, on the unsafe side of {mp.nstr(true.value, 20)}"
                )
            elif sign * (published - true.value) > room:
                wrong[name] = f"{name} is published as {float(published)!r}, far from {mp.nstr(true.value, 20)}"
            elif true.attained is not None and sign * (true.value - true.attained) < 0:
                wrong[name] = (
                    f"{name} is bounded by {mp.nstr(true.value, 20)}, and is {mp.nstr(true.attained, 20)} somewhere"
                )
    return wrong


def wrongly_enclosed(case: Stored, truth: Mapping[str, Reference], level: Level = FAST) -> dict[str, str]:
    """Enclosures of the checker that do not contain the truth, and why; those of base quantities that are missing, too."""
    problem, weights = opened(case, level)
    wrong: dict[str, str] = {}
    enclosures = _in_balls(lambda: SYSTEMS[case.system].enclosures.base_quantities(problem, weights, case.quantities))
    with mp.workdps(DIGITS):
        for name in case.base:
            if name not in enclosures:
                wrong[name] = f"{name} is published, and the checker has no enclosure of it"
                continue
            true, sign = truth[name], _sign(case.system, name)
            low, high = map(mpf, enclosures[name])
            first, last = sorted((true.value, true.value + sign * true.slack))
            contains = low <= true.value <= high
            safe = high >= true.value if sign > 0 else low <= true.value
            if not (contains or (not true.contained and safe and low <= last and high >= first)):
                wrong[name] = f"{name} = {mp.nstr(true.value, 20)} is not in {enclosures[name]}"
    return wrong


def wrong_gap(gap: Any, case: Stored, level: Level = FAST) -> str | None:
    """Whether the checker's bounds of the gap exclude the gap at the stored weights, and why; ``gap`` is the independent one."""
    problem, weights = opened(case, level)
    system = SYSTEMS[case.system].enclosures
    above = _in_balls(lambda: system.gap_upper(problem, weights))
    with mp.workdps(DIGITS):  # the ends of balls are longer than floats
        low, high = _in_balls(lambda: _ends(*system.gap_exact(problem, weights)))
        true = _gap(gap, _Key.of(case, ()))
        if not mpf(above) >= true:
            return f"the gap {mp.nstr(true, 20)} is above gap_upper, {above!r}"
        return None if low <= true <= high else f"the gap {mp.nstr(true, 20)} is not in {low!r} .. {high!r}"


def _ends(low: Any, high: Any) -> tuple[mpf, mpf]:
    """Of balls, or ``None`` and floats, in their far ends."""
    return mpf(0) if low is None else _number(low.lower()), _number(high.upper()) if isinstance(
        high, flint.arb
    ) else mpf(high)


def _number(x: flint.arb) -> mpf:
    """An exact ball as an mpf."""
    mantissa, exponent = x.man_exp()
    return mp.ldexp(mpf(int(mantissa)), int(exponent))


def _in_balls(compute: Callable[[], Any]) -> Any:
    """At the checker's precision, and with its treatment of overflow."""
    before = flint.ctx.prec
    flint.ctx.prec = checker.PRECISION
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return compute()
    finally:
        flint.ctx.prec = before


def _sign(system: str, name: str) -> int:
    """The direction in which the quantity must err."""
    return 1 if SYSTEMS[system].directions[name] == "upper" else -1


def unsafe_factor(system: str, name: str, reference: Reference) -> float | None:
    """What moves the quantity to its unsafe side by 1 + max(2 slack, 0.01); ``None`` where floats do not resolve the quantity."""
    if reference.value == 0 or reference.slack >= 0.6 * abs(reference.value):
        return None
    size = float(1 + max(2 * reference.slack / abs(reference.value), mpf(LEAST)))
    return 1.0 / size if _sign(system, name) > 0 else size


def mutate(
    patch: pytest.MonkeyPatch, enclosing: Callable[..., Mapping[str, Interval]], name: str, factor: float
) -> None:
    """Multiply one quantity in what ``enclosing`` returns, wherever surefoot or its checker refers to that function."""

    def wrong(*args: Any, **kwargs: Any) -> dict[str, Interval]:
        enclosures = dict(enclosing(*args, **kwargs))
        if name in enclosures:
            low, high = (end * factor for end in enclosures[name])
            enclosures[name] = (low, high)
        return enclosures

    modules = [
        module for key, module in list(sys.modules.items()) if key.split(".")[0] in ("surefoot", "surefoot_check")
    ]
    places: list[tuple[Any, str]] = [
        (module, key) for module in modules for key, value in list(vars(module).items()) if value is enclosing
    ]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    places += [(owner, key) for owner in classes for key, value in list(vars(owner).items()) if value is enclosing]
    assert places
    for owner, key in places:
        patch.setattr(owner, key, wrong)
