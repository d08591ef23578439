"""The reference of the API: every public name, every constructor with its arguments."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
import yaml

import surefoot as sf

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
MODULES = [
    "surefoot_check",
    "surefoot.extending.command",
    "surefoot.extending.report",
    *(f"surefoot.{name}" for name in sf.__all__ if inspect.ismodule(getattr(sf, name))),
]
"""Public modules whose names stand in ``__all__``, without the package."""


def entries() -> dict[str, dict[str, list[str]]]:
    """What the page takes from docstrings, with the options of each."""
    found = re.findall(r"^::: (\S+)\n((?: {4}.*\n)*)", PAGE + "\n", re.MULTILINE)
    return {name: (yaml.safe_load(options) or {}).get("options", {}) for name, options in found}


def covered() -> set[str]:
    """Every name that the page documents, with its module."""
    names: set[str] = set()
    for name, options in entries().items():
        if name in MODULES:
            hidden = [pattern.removeprefix("!") for pattern in options.get("filters", ["!^_"])]
            public = importlib.import_module(name).__all__
            names |= {f"{name}.{one}" for one in public if not any(re.search(pattern, one) for pattern in hidden)}
        else:
            names.add(name)
    return names


def test_every_public_name_is_on_the_page() -> None:
    public = {f"surefoot.{name}" for name in sf.__all__ if not name.startswith("_")} - set(MODULES)
    public |= {f"{module}.{name}" for module in MODULES for name in importlib.import_module(module).__all__}
    missing = {name for name in public - covered() if name.rpartition(".")[2] not in elsewhere(name)}
    assert not missing
    assert set(entries()) <= public | set(MODULES), "a name of the page that is not public"


def elsewhere(name: str) -> set[str]:
    """Names of the same object that the page has under another module, or that the page says are there."""
    module, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(module), last)
    others = [one for one in covered() if one.rpartition(".")[2] == last]
    return (
        {last} if any(getattr(importlib.import_module(o.rpartition(".")[0]), last) is value for o in others) else set()
    )


@pytest.mark.slow
def test_every_class_with_arguments_shows_them(site: Path) -> None:
    """Types and defaults as well: an argument is never shown bare."""
    page = (site / "api.html").read_text()
    sections = {
        match[1]: part
        for part in page.split('doc doc-object doc-class"')[1:]
        if (match := re.search(r'id="([\w.]+)"', part))
    }
    assert len(sections) > 100
    for name, section in sections.items():
        module, _, last = name.rpartition(".")
        value = getattr(importlib.import_module(module), last)
        own = value.__dict__.get("__init__")
        if own is not None and len(inspect.signature(own).parameters) > 1 and "Protocol" not in str(value.__mro__):
            assert "doc-signature" in section.split("doc-contents")[0], name


@pytest.mark.slow
def test_an_entry_of_several_names_shows_each_with_its_type(site: Path) -> None:
    page = (site / "api.html").read_text()

    def entry(section: str, name: str) -> str:
        entries = page.split(f'id="{section}"')[1]
        found = re.split(rf"<b><code>(?:<\w[^>]*>)?{name}</", entries)[1].split("</li>")[0]
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", found))

    assert re.search(r"tuple.*default.*0\.9.*0\.999.*eps.*float.*default", entry("surefoot.optim.CayleyAdam", "betas"))
    assert re.search(r"str.*, engine.*str.*names of", entry("surefoot.Run", "rule"))


@pytest.mark.slow
def test_examples_are_code(site: Path) -> None:
    """Lines of an interpreter, which would otherwise be read as quotations."""
    page = (site / "api.html").read_text()
    assert "<blockquote>" not in page
    assert page.count('<span class="gp">') >= 20
