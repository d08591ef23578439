"""Systems of others: registered by a module that a person names, and refused where a name is taken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot._core.registry import SYSTEMS
from surefoot._two_layer.system import TwoLayerSystem
from surefoot.cli import main as surefoot
from surefoot.nn import TwoLayerLinear


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, in which Python finds modules; what is imported from it and registered is forgotten."""
    systems, plans, modules = list(SYSTEMS), dict(PLANS), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    SYSTEMS[:] = systems
    PLANS.clear()
    PLANS.update(plans)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


class Net(nn.Module):
    """Of a system that is none yet."""


class Narrow(TwoLayerLinear):
    """Of the two-layer system already."""


def system(**declared: Any) -> sf.extending.Certifiable[Any, Any]:
    """A system of these declarations."""
    theorems = {"plans": (), "default_theorem": "mine/none"}
    return type("Mine", (TwoLayerSystem,), {"name": "mine", "network": Net, **theorems, **declared})()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"name": "two-layer"}, "'two-layer', which is taken"),
        ({"name": "Two/Layer"}, "lower-case letters, digits and single hyphens"),
        ({"network": TwoLayerLinear}, "system 'mine' has networks of the class TwoLayerLinear, and system 'two-layer'"),
        ({"network": Narrow}, "and system 'two-layer' those of TwoLayerLinear: a network would be of both"),
        ({"network": nn.Module}, "a network would be of both"),
        ({"plans": TwoLayerSystem.plans}, "each needs an id of its own that starts with 'mine/'"),
        ({}, "default theorem 'mine/none', which is none of its plans"),
    ],
)
def test_what_is_taken_or_wrong_is_refused_and_changes_nothing(declared: dict[str, Any], message: str) -> None:
    before = list(SYSTEMS), dict(PLANS)
    with pytest.raises(ValueError, match=message):
        sf.register(system(**declared))
    assert (list(SYSTEMS), dict(PLANS)) == before


def test_what_is_no_system_is_refused() -> None:
    with pytest.raises(TypeError, match="pass an object of a class of surefoot"):
        sf.register(TwoLayerSystem)  # type: ignore[arg-type] - the class, not an object of it


NAMED = """
import surefoot as sf
from surefoot.extending import System, Words

class Silent(System):
    name = "silent"
    network_name = "Silent"
    words = Words(instead={"certify": "nothing is known of silent networks"})

sf.register(Silent())
"""


def test_a_module_is_named_before_the_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "silent.py").write_text(NAMED)
    for first in (["--system", "silent"], ["--system=silent"], []):  # once named, it is known to this process
        assert surefoot([*first, "certify", "silent"]) == 2
        assert "nothing is known of silent networks" in capsys.readouterr().err
    assert surefoot(["--help"]) == 0
    assert "--system MODULE before the command" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--system"], "--system lacks its module"),
        (["--system", "--help"], "--system lacks its module"),
        (["--system=", "list"], "--system lacks its module"),
        (["--system", "nowhere", "list"], "--system nowhere cannot be imported (ModuleNotFoundError"),
        (["--system", "broken", "list"], "--system broken cannot be imported (AssertionError: broken)"),
        (["--system", "empty", "list"], "--system empty registers no system"),
        (["--system", "silent", "--system", "again", "list"], "'silent', which is taken"),
    ],
)
def test_modules_that_cannot_be_used(
    arguments: list[str], message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "broken.py").write_text("raise AssertionError('broken')")
    (place / "empty.py").write_text("")
    for name in ("silent", "again"):
        (place / f"{name}.py").write_text(NAMED)
    assert surefoot(arguments) == 2
    assert message in capsys.readouterr().err
