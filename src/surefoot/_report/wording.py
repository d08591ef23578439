"""Numbers and symbols in words that a person reads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from surefoot_check.systems import SYSTEMS

from .._core.certificate import Condition
from .._core.claims import Claim, Kind
from .._core.rounding import Towards, of_sides, rounded

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

TRAIN_ROWS = "what is guaranteed is about the training rows; nothing is guaranteed of unseen rows"
"""Of scores on held-out rows."""
SCORES: dict[str, tuple[str, str]] = {
    "test_rows": ("Held-out rows", f"never seen in training: {TRAIN_ROWS}"),
    "test_accuracy": ("Accuracy", "share of the held-out rows whose class is right"),
    "optimum_test_accuracy": ("Accuracy of the loss's minimiser", "what training leads to, on the held-out rows"),
    "test_rmse": ("Root mean square error", "on the held-out rows, in the unit of the target"),
    "optimum_test_rmse": (
        "Root mean square error of the loss's minimiser",
        "what training leads to, in the unit of the target",
    ),
    "test_r2": ("R²", "on the held-out rows: 1 is perfect, 0 no better than their mean"),
    "optimum_test_r2": ("R² of the loss's minimiser", "what training leads to, on the held-out rows"),
}
"""Name and remark of the scores that the command line stores."""

MANY = 1e9
"""Counts above this say no more than that: nobody runs so many iterations."""


def by_family(quantities: Mapping[str, float]) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Quantities by name, and families such as ``mass[0]``, ``mass[1]``, ... by the name before the bracket."""
    single: dict[str, float] = {}
    families: dict[str, list[float]] = {}
    for name, value in quantities.items():
        family, bracket, _ = name.partition("[")
        if bracket:
            families.setdefault(family, []).append(value)
        else:
            single[name] = value
    return single, families


def safe_side(theorem: str) -> Callable[[str], Towards]:
    """Where a quantity of a theorem is rounded to, by its name: one that is measured to the side on which it may err; others,
    which follow from those or are chosen, to nearest."""
    system = SYSTEMS.get(theorem.partition("/")[0])
    directions = {} if system is None else system.directions
    sides: dict[str | None, Towards] = {"upper": "up", "lower": "down"}
    return lambda name: sides.get(directions.get(name), "nearest")


def power_of_ten(exponent: int) -> str:
    """10 to an integer power, with superscript digits."""
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def number(value: float, digits: int = 4, towards: Towards = "nearest") -> str:
    """A number with 4 (``digits``) significant digits; thousands separated; powers of ten as such."""
    if isinstance(value, int) and abs(value) < 10**15:
        return f"{value:,}".replace("-", "−")
    try:
        value = float(value)
    except OverflowError:
        return "more than 10³⁰⁸"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0.0 else "−∞"
    if value == 0.0:
        return "0"
    shown = rounded(value, digits, towards)
    exponent = shown.adjusted()
    if -4 <= exponent < 6:
        text = _without_zeros(f"{shown:,f}")
    else:
        mantissa = _without_zeros(f"{shown.scaleb(-exponent):f}")
        ten = power_of_ten(exponent)
        text = {"1": ten, "-1": f"-{ten}"}.get(mantissa, f"{mantissa} × {ten}")
    return text.replace("-", "−")


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def share(value: float, towards: Towards = "nearest") -> str:
    """A part of a whole, in per cent."""
    return f"{number(100.0 * value, 3, towards)} %"


def count(value: float) -> str:
    """A number of iterations; ``inf`` reads as none: no number suffices, or none is known."""
    if not value < math.inf:
        return "none"
    return f"{math.ceil(value):,}" if value <= MANY else "more than 10⁹"


def iterations(value: float) -> str:
    """``1 iteration``, ``12 iterations``, …"""
    return f"{count(value)} iteration{'' if value == 1 else 's'}"


def factor(decrease: float) -> str:
    """The factor 1 - ``decrease`` of the gap in one iteration, rounded up, so that factors near 1 keep their digits."""
    if decrease == 0.0:
        return "1 (no rate)"
    return number(1.0 - decrease, towards="up") if decrease >= 0.01 else f"1 − {number(decrease, towards='down')}"


def fall(claim: Claim) -> str:
    """What is left of the gap, in a few words."""
    match claim.kind:
        case Kind.RATE:
            return factor(claim.decrease or claim.final) + ("" if claim.decrease else " in the end")
        case Kind.SUBLINEAR:
            return f"{number(claim.constant, towards='up')}/t"
        case Kind.LEVELS:
            return "by iteration"
        case Kind.MONOTONE:
            return factor(0.0)
        case Kind.FLOW:
            return f"{factor(claim.decrease)} in a unit of time of the flow"
        case Kind.NOTHING:
            return ""


def ratio(value: float) -> str:
    """A log10 margin as a factor, or in per cent where that is below 2: what is to spare rounded down, what is missing up."""
    towards: Towards = "down" if value >= 0.0 else "up"
    if abs(value) < math.log10(2.0):
        share = f"{number(100.0 * math.expm1(abs(value) * math.log(10.0)), 3, towards)} %"
        return f"{share} to spare" if value >= 0.0 else f"short by {share}"
    times = number(10.0 ** abs(value), 3, towards) if abs(value) < 300.0 else power_of_ten(math.floor(abs(value)))
    return f"{times} times to spare" if value >= 0.0 else f"short by a factor of {times}"


def spare(condition: Condition) -> float:
    """The difference of the sides, positive on the side that the relation asks for; NaN where it has none."""
    if condition.left == condition.right:
        return 0.0
    difference = condition.left - condition.right
    return -difference if condition.relation.startswith("<") else difference


def distance(condition: Condition) -> float:
    """The margin in powers of ten; beside a side that is not positive no ratio is finite: infinite, with the sign of the
    difference, 0 where there is none, or NaN."""
    if condition.margin is not None:
        return condition.margin
    difference = spare(condition)
    return difference if math.isnan(difference) or difference == 0.0 else math.copysign(math.inf, difference)


def margin(condition: Condition) -> str:
    """How far a hypothesis is from failing, or from holding: the ratio of its sides, or beside a zero their difference."""
    if condition.margin is not None:
        return ratio(condition.margin)
    difference = spare(condition)
    if math.isnan(difference):
        return "a side is not a number"
    if difference == 0.0:
        return "met exactly" if condition.holds else "the sides are equal"
    said = number(abs(difference), towards="down" if condition.holds else "up")
    return f"{said} to spare" if condition.holds else f"short by {said}"


RELATIONS = {"<=": "≤", ">=": "≥"}


def relation(sign: str) -> str:
    """≤ and ≥ for their ASCII forms."""
    return RELATIONS.get(sign, sign)


def both(condition: Condition) -> tuple[str, str]:
    """Both sides of a hypothesis, rounded such that the relation reads as it is."""
    left, right = condition.left, condition.right
    digits, *towards = of_sides(left, condition.relation, right, condition.holds)
    return number(left, digits, towards[0]), number(right, digits, towards[1])


def sides(condition: Condition) -> str:
    """Both sides of a hypothesis with the relation that is asked of them."""
    left, right = both(condition)
    return f"{left} {relation(condition.relation)} {right}"


SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ",
    "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "rho": "ρ", "sigma": "σ", "tau": "τ",
    "omega": "ω", "Delta": "Δ", "Lambda": "Λ", "Sigma": "Σ",
}  # fmt: skip
OVERBAR = "\u0304"
_WRITTEN: tuple[tuple[str, str], ...] = (
    (r"\bsmin(?=\()", "σ_min"),
    (r"\bsr(?=\()", "σ_r"),
    (r"\bs-(?=\()", "s₋"),
    (r"\bgrad\b(?: L\b)?", "∇L"),
    (r"\bsqrt ?(?=[\d(])", "√"),
    (r"\|\|([^|]+)\|\|", r"‖\1‖"),
    (r"(?<!max )\|([^|]+)\|", r"‖\1‖"),
    (r"\bsum (?=[‖αβγη])", "Σ "),
    (r"<=", "≤"),
    (r">=", "≥"),
    (r"\^c\b", "ᶜ"),
    (r"\^d\b", "ᵈ"),
    (r"(?<=[A-Za-zα-ωΑ-Ω₀-₉‖)])'(?!s\b)", "′"),
    (r"(?<= )-(?= )|(?<=[\d)])-(?=[A-Za-zα-ωΑ-Ω(])|(?<=\()-", "−"),
    (r"\bPolyak-Lojasiewicz\b", "Polyak-Łojasiewicz"),
)
"""What is written in ASCII and read as a formula, in this order."""


def symbolic(name: str, symbols: Mapping[str, tuple[str, str]]) -> str:
    """The name of a condition or of an audited inequality in the symbols of the papers; certificates keep it in ASCII.

    Args:
        name: in ASCII, such as ``2 Lambda r0 < sigma_min(J)^2``.
        symbols: of the system (``Words.symbols``); of these, names with an underscore or a digit are no English words.
    """
    said = re.sub(r"\b[A-Za-z]\w*\b", lambda m: _symbol(m[0], symbols), name)
    for pattern, written in _WRITTEN:
        said = re.sub(pattern, written, said)
    return re.sub(r"\^(\d+)", lambda m: m[1].translate(SUPERSCRIPTS), said)


def _symbol(word: str, symbols: Mapping[str, tuple[str, str]]) -> str:
    if word in symbols and re.search(r"_|\d", word):
        return symbols[word][0]
    found = re.fullmatch(r"([A-Za-z]+)(_bar)?_?(\d*)(_\w+)?", word)
    if found is None or not (found[1] in GREEK or len(found[1]) == 1):
        return word
    return (
        f"{GREEK.get(found[1], found[1])}{OVERBAR if found[2] else ''}{found[3].translate(SUBSCRIPTS)}{found[4] or ''}"
    )


def in_terminal(name: str, symbols: Mapping[str, tuple[str, str]], encoding: str) -> str:
    """``symbolic`` where an encoding has these symbols, else the name as it is."""
    said = symbolic(name, symbols)
    try:
        said.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return name
    return said


def flat(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings one by one, each by its dotted name."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def plain(value: Any) -> str:
    """A settings value as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return str(value)
