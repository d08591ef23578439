"""The colours of a page: text and lines can be read in light, in the dark and on paper."""

from __future__ import annotations

import re

import pytest

from surefoot._report.canvas import VARIABLES
from surefoot._report.style import CSS, DARK, LIGHT, PAPER

TEXTS = [
    *((text, ground) for text in ("ink", "soft", "link", "ok", "bad") for ground in ("paper", "panel")),
    *((text, f"{kind}back") for kind in ("ok", "warn", "bad") for text in (kind, "ink")),
]
CURVES = ["blue", "sky", "red", "green", "pink", "orange", "faint"]


def _luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[k : k + 2], 16) / 255.0 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK, PAPER], ids=["light", "dark", "print"])
def test_contrast_is_that_of_wcag_aa(colours: dict[str, str]) -> None:
    assert _contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.01)  # the published example
    for text, ground in TEXTS:
        assert _contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for curve in CURVES:
        assert _contrast(colours[curve], colours["paper"]) >= 3.0, curve


def test_every_variable_has_a_colour_in_each_scheme() -> None:
    used = set(re.findall(r"var\(--([\w-]+)\)", CSS)) - {"measure"}
    assert used <= set(LIGHT)
    assert {variable.removeprefix("--") for variable in VARIABLES.values()} <= set(LIGHT)
    assert set(LIGHT) == set(DARK) == set(PAPER)
