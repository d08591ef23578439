"""Numbers and symbols in words that a person reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .._core.certificate import Condition
from .._core.claims import Claim, Kind

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

SCORES: dict[str, tuple[str, str]] = {
    "test_rows": ("Held-out rows", "never seen in training"),
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


def power_of_ten(exponent: int) -> str:
    """10 to an integer power, with superscript digits."""
    return f"10{str(exponent).translate(SUPERSCRIPTS)}"


def number(value: float, digits: int = 4) -> str:
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
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    if -4 <= int(exponent) < 6:
        text = f"{float(f'{value:.{digits}g}'):,.{max(digits - 1 - int(exponent), 0)}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa = mantissa.rstrip("0").rstrip(".")
        ten = power_of_ten(int(exponent))
        text = ten if mantissa == "1" else f"{mantissa} × {ten}"
    return text.replace("-", "−")


def share(value: float) -> str:
    """A part of a whole, in per cent."""
    return f"{number(100.0 * value, 3)} %"


def count(value: float) -> str:
    """A number of iterations; ``inf`` reads as none: no number suffices, or none is known."""
    if not value < math.inf:
        return "none"
    return f"{int(value):,}" if value <= MANY else "more than 10⁹"


def iterations(value: float) -> str:
    """``1 iteration``, ``12 iterations``, …"""
    return f"{count(value)} iteration{'' if value == 1 else 's'}"


def factor(decrease: float) -> str:
    """The factor 1 - ``decrease`` of the gap in one iteration, so that factors near 1 keep their digits."""
    if decrease == 0.0:
        return "1 (no rate)"
    return number(1.0 - decrease) if decrease >= 0.01 else f"1 − {number(decrease)}"


def fall(claim: Claim) -> str:
    """What is left of the gap, in a few words."""
    match claim.kind:
        case Kind.RATE:
            return factor(claim.decrease or claim.final) + ("" if claim.decrease else " in the end")
        case Kind.SUBLINEAR:
            return f"{number(claim.constant)}/t"
        case Kind.LEVELS:
            return "by iteration"
        case Kind.MONOTONE:
            return factor(0.0)
        case Kind.FLOW:
            return f"{factor(claim.decrease)} in a unit of time of the flow"
        case Kind.NOTHING:
            return ""


def margin(value: float | None) -> str:
    """A log10 margin as a factor, or in per cent where that is below 2."""
    if value is None:
        return "no ratio: a side is ≤ 0"
    if abs(value) < math.log10(2.0):
        share = f"{number(100.0 * math.expm1(abs(value) * math.log(10.0)), 3)} %"
        return f"{share} to spare" if value >= 0.0 else f"short by {share}"
    ratio = number(10.0 ** abs(value), 3) if abs(value) < 300.0 else power_of_ten(round(abs(value)))
    return f"{ratio} times to spare" if value >= 0.0 else f"short by a factor of {ratio}"


def relation(sign: str) -> str:
    """≤ and ≥ for their ASCII forms."""
    return {"<=": "≤", ">=": "≥"}.get(sign, sign)


def sides(condition: Condition) -> str:
    """Both sides of a hypothesis with the relation that is asked of them."""
    return f"{number(condition.left)} {relation(condition.relation)} {number(condition.right)}"


def plain(value: Any) -> str:
    """A settings value as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return str(value)
