"""Words link to the glossary where they first occur, and nowhere inside code, formulas, links or tables."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def hook():
    """The module that mkdocs runs on each page."""
    spec = importlib.util.spec_from_file_location("glossary_hook", ROOT / "docs" / "hooks" / "glossary.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANCHORS = {
    "gap": "gap",
    "duality gap": "duality-gap",
    "lazy": "lazy-training-lazy",
    "lazy training": "lazy-training-lazy",
}
TEXT = """# The gap

`gap` and $gap$, [the gap](x.md) and

| gap |
| --- |

```python
gap = 1
```

The duality gap bounds the gap, and Gaps are gaps; lazy training is lazy, a gap-less word.
"""


def test_the_first_occurrence_in_a_sentence_is_linked() -> None:
    before, after = TEXT.split("The duality gap")
    found = hook().linked(TEXT, ANCHORS, "../glossary.md")
    assert found.startswith(before)
    assert found.removeprefix(before) == (
        "The [duality gap](../glossary.md#duality-gap){ .glossary } bounds the [gap](../glossary.md#gap){ .glossary }"
        ", and Gaps are gaps; [lazy training](../glossary.md#lazy-training-lazy){ .glossary } is lazy, a gap-less word.\n"
    )
    assert after


def test_words_are_those_of_the_glossary_in_all_their_forms() -> None:
    words = hook().words((ROOT / "docs" / "glossary.md").read_text())
    assert {"gap", "margin", "imbalance", "smoothness", "certificate", "replay", "radius", "ntk", "lazy"} <= set(words)
    assert {f"claim l{level}" for level in (1, 2, 3)} <= set(words)
    assert words["ntk"] == words["neural tangent kernel"]
