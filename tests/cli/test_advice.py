"""Advice at the command line names options that the command has, and speaks of nothing in Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surefoot._cli.commands import options_of
from surefoot._cli.described import options_of as described
from surefoot._core.advice import ARGUMENTS, in_options
from surefoot.commands import COMMANDS

ADVICE = re.compile(r"(?:suggestion|no practical use): (.*?)(?:\n\S|\Z)", re.DOTALL)
PYTHON = re.compile(r"\bsf\.|\btorch\.|\b[a-z_]+=['\"\w]|certify_every")
FAILING = [
    ("two-layer", "--theorem two-layer/as-printed"),
    ("two-layer", "--theorem two-layer/prescribed"),
    ("two-layer", "--width 2"),
    ("two-layer", "--step 1e6"),
    ("two-layer", "--loss softmax --l2 0"),
    ("linear-resnet", "--transform gaussian --width 20"),
    ("linear-resnet", "--width 2 --transform gaussian"),
    ("linear-resnet", "--batch 10"),
    ("implicit", "--gamma 0.5"),
    ("implicit", "--gamma 0.9 --theorem implicit/local"),
    ("feed-forward", ""),
    ("feed-forward", "--loss mse --hidden 4"),
    ("inverse", "--coefficients ones --interval 0.001,3"),
    ("step-sizes", "--range 0,3"),
    ("step-sizes", "--theorem step-sizes/rate"),
]


@pytest.mark.parametrize(("system", "options"), FAILING, ids=lambda value: value or "default")
def test_advice_names_options_that_there_are(
    run, classes: Path, system: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    data = [] if system in ("inverse", "step-sizes") else ["--data", classes]
    outcome = run("certify", system, *data, *options.split())
    assert outcome.code == 1, outcome
    said = " ".join(ADVICE.findall(outcome.out))
    assert said and not PYTHON.search(said), said
    own = {kind: _names(f"{kind} {system}") for kind in ("certify", "train")}
    of_train = set(re.findall(r"(--[a-z-]+)(?: [a-z-]+)? of `surefoot train`", said))
    assert of_train <= own["train"]
    # commands in backquotes have options of their own
    plain = re.sub(r"`surefoot [^`]*`", "", said)
    assert set(re.findall(r"--[a-z0-9-]+", plain)) - of_train <= own["certify"], said


def _names(command: str) -> set[str]:
    return {option.name for option in described(options_of(COMMANDS[command]))}


def test_what_is_translated_is_an_option_of_some_command() -> None:
    known = {name for command, each in COMMANDS.items() if each.options for name in _names(command)}
    assert {f"--{name.replace('_', '-')}" for name in ARGUMENTS} <= known


@pytest.mark.parametrize(
    ("python", "options"),
    [
        ("use the step rule 'x': pass steps=None", "use the step rule 'x': leave out --steps"),
        ("missing='drop' leaves out such rows", "--missing drop leaves out such rows"),
        ("decimal=',' takes the other sign (--decimal on the command line)", "--decimal , takes the other sign"),
        ("step=0.1, and every smaller one, is certified", "a step of 0.1, and every smaller one, is certified"),
        ("the loss is not strongly convex: use l2 > 0, for example l2=1e-3", None),
        ("choose another (directory=, --out)", "choose another (--out)"),
        ("std is 0.0; it must be a positive number", "--std is 0.0; it must be a positive number"),
        ("the margin alpha2/alpha1 = 3 is small", "the margin alpha2/alpha1 = 3 is small"),
    ],
)
def test_translations(python: str, options: str | None) -> None:
    expected = options or "the loss is not strongly convex: use --l2 above 0, for example --l2 1e-3"
    assert in_options(python) == expected
