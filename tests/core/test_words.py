"""The words of a system: a symbol for every quantity of every theorem, and a sentence for everything that it cannot do."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from surefoot._core.plans import PLANS
from surefoot._core.registry import SYSTEMS, system_named
from surefoot._core.system import Certifiable, Descendable, Recordable, System
from surefoot_check.statement import Theorem

SIZES = dict.fromkeys(("n", "m", "h", "K", "L", "T", "N", "samples", "depth"), 2) | {
    "quadratic": True,
    "proximal": True,
}


def quantities(theorem: Theorem) -> set[str]:
    """Names of what is measured, chosen and derived, at some numbers."""
    numbers = {
        **SIZES,
        **dict.fromkeys((*theorem.base, *theorem.choices, *chain(*theorem.sequences)), 0.5),
        "upper": 1.0,
        "T": 2.0,
    }
    numbers |= PLANS[theorem.id].parameters(numbers)
    return {
        name.partition("[")[0]
        for name in (*theorem.base, *theorem.choices, *chain(*theorem.sequences), *theorem.derived(numbers))
    }


@pytest.mark.parametrize("theorem", PLANS)
def test_every_quantity_has_a_symbol_and_a_meaning(theorem: str) -> None:
    symbols = system_named(theorem.split("/")[0]).words.symbols
    for name in quantities(PLANS[theorem].theorem):
        symbol, meaning = symbols[name]
        assert symbol and meaning and not meaning.endswith(".")


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_what_a_system_cannot_do_it_says(system: System) -> None:
    missing = set() if isinstance(system, Descendable) else {"descend"}
    missing |= set() if isinstance(system, Recordable) else {"trace", "certify_every"}
    assert set(system.words.instead) == (missing if isinstance(system, Certifiable) else {"certify"})


@pytest.mark.parametrize("theorem", PLANS)
def test_a_meaning_uses_no_symbol_that_is_not_explained_beside_it(theorem: str) -> None:
    symbols = system_named(theorem.split("/")[0]).words.symbols
    shown = quantities(PLANS[theorem].theorem)
    beside = {symbols[name][0] for name in shown}
    strange = {symbol for symbol, _ in symbols.values() if not symbol.isascii()} - beside
    said = "; ".join(symbols[name][1] for name in sorted(shown))
    used = set(re.findall(r"[^\s,;:()]+", said)) & strange
    assert not [symbol for symbol in used if f"{symbol} = " not in said and f"the {symbol} that " not in said]
