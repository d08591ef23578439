"""What is said of theorems and systems is asked of those that are registered, whenever that was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from torch import nn

import surefoot as sf
from surefoot._cli.screen import Screen
from surefoot._core.claims import Kind, claim
from surefoot._core.evaluation import conclude
from surefoot._core.plans import PLANS, Plan
from surefoot._core.registry import SYSTEMS
from surefoot._two_layer.system import TwoLayerSystem
from surefoot.cli import main as surefoot
from surefoot_check.numbers import Number, Quantities
from surefoot_check.statement import Inequality, Schedule, Segment, Theorem


class Theirs(Theorem):
    """A theorem of a system that is registered on the way."""

    reference = "of nobody"
    rule = "their-rule"
    base = ()
    choices = ()

    def __init__(self, name: str, statement: str, constant: float | None = None, flow: bool = False) -> None:
        self.id, self.statement, self.constant, self.counts_time = f"theirs/{name}", statement, constant, flow  # type: ignore[misc]

    def derived(self, q: Quantities) -> dict[str, Number]:
        return {}

    def conditions(self, q: Quantities) -> list[Inequality]:
        return []

    def sublinear(self, q: Quantities) -> Number | None:
        return self.constant

    def obligations(self, q: Quantities, schedule: Schedule) -> Iterator[Inequality]:
        return iter(())


class Net(nn.Module):
    """A network of theirs."""


def halves(q: Quantities) -> Schedule:
    return [Segment(0, 4, 1.0, 0.5), Segment(4, None, 0.0625, 0.0)]


THEOREMS = (
    Theirs("flow", "the flow halves the gap", flow=True),
    Theirs("slow", "the gap is at most 3/t", constant=3.0),
    Theirs("levels", "the gap is bounded for a while"),
)


@pytest.fixture
def registered() -> Iterator[None]:
    systems, plans = list(SYSTEMS), dict(PLANS)
    declared = {
        "name": "theirs",
        "network": Net,
        "network_name": "theirs.Net",
        "plans": tuple(Plan(theorem, halves) for theorem in THEOREMS),
        "default_theorem": THEOREMS[0].id,
    }
    sf.register(type("TheirSystem", (TwoLayerSystem,), declared)())
    yield
    SYSTEMS[:] = systems
    PLANS.clear()
    PLANS.update(plans)


@pytest.mark.usefixtures("registered")
def test_claims_follow_a_theorem_that_is_registered_later() -> None:
    claims = [claim(theorem.id, True, halves({}), {}) for theorem in THEOREMS]
    assert [it.kind for it in claims] == [Kind.FLOW, Kind.SUBLINEAR, Kind.LEVELS]
    assert claims[1].constant == 3.0


@pytest.mark.usefixtures("registered")
def test_the_list_has_what_is_registered_later(capsys: pytest.CaptureFixture[str]) -> None:
    assert surefoot(["list", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    theirs = {"name": "theirs", "network": "A network of theirs", "default_theorem": "theirs/flow"}
    assert {**theirs, "commands": ["certify", "train"]} in listing["systems"]
    named = {theorem["name"]: theorem for theorem in listing["theorems"]}
    assert [named[theorem.id]["statement"] for theorem in THEOREMS] == [theorem.statement for theorem in THEOREMS]
    assert all("theirs" in rule["systems"] for rule in listing["step_rules"] if "two-layer" in rule["systems"])


@pytest.mark.usefixtures("registered")
def test_a_target_that_a_schedule_does_not_reach_has_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = [replace(segment, main_step=1.0) for segment in halves({})]
    slow = conclude(
        THEOREMS[1], {"initial_gap": 1.0}, [], schedule, problem={}, arrays={}, optimal_value=0.0, suggestion=""
    )
    Screen().certificate(slow)
    assert "no number to 0.01, no number to 1e-06" in capsys.readouterr().out
