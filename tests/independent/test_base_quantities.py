"""Every published base quantity of every theorem against an independent definition of it, and mutations of each.

Certifier and checker share their enclosures: a wrong line there would make a false certificate and accept it. What they share is
compared here with ``tests/support/independent``, which imports nothing of either.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import enclosed
import independent
import pytest
from enclosed import Stored
from instances.two_layer import families
from named import named

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot_check.checker import check
from surefoot_check.problems import Quadratic
from surefoot_check.rigor import gram as gram_bounds
from surefoot_check.rigor.bounds import FAST
from surefoot_check.rigor.exact import EXACT
from surefoot_check.systems import SYSTEMS
from surefoot_check.two_layer import imbalance
from surefoot_check.verdict import Outcome

UNCERTIFIED = ("step-sizes/as-printed", "inverse/training")
"""Theorems without certificates; their numbers are those of ``test_uncertified_theorems``."""


def module(package: str, system: str) -> ModuleType:
    """The module of a system in ``independent`` or ``instances``."""
    return import_module(f"{package}.{system.replace('-', '_')}")


@cache
def builders(theorem: str) -> dict[str, Callable[[], Stored]]:
    """The cases of a theorem by name."""
    return module("instances", theorem.split("/")[0]).instances(theorem)


@cache
def built(theorem: str, family: str) -> Stored:
    """One of them, certified."""
    return builders(theorem)[family]()


def theorems() -> list[str]:
    """Those of every system; one that ``independent`` or ``instances`` does not know is an error here."""
    return [name for name in PLANS if name not in UNCERTIFIED]


def gap_cases(system: str) -> dict[str, str]:
    """Every family of a system with one theorem, of which gaps do not depend."""
    first: dict[str, str] = {}
    for theorem in theorems():
        if theorem.startswith(f"{system}/"):
            first = {**dict.fromkeys(builders(theorem), theorem), **first}
    assert first, "no family of this system"
    return first


def enclosing(system: str, name: str) -> Callable[..., dict[str, tuple[float, float]]]:
    """The innermost function, shared by certifier and checker, that encloses the quantity."""
    shared = getattr(module("instances", system), "shared", None)
    function = (shared and shared(name)) or SYSTEMS[system].enclosures.base_quantities
    return getattr(function, "__func__", function)  # of a method, what its class has


MINIMUM_SLOW = pytest.mark.parametrize(
    "theorem",
    [pytest.param(name, marks=pytest.mark.slow if name == "feed-forward/minimum" else ()) for name in theorems()],
)
"""The theorems; that of a minimum takes as long as several. The fast tests mutate its enclosures, below."""


@MINIMUM_SLOW
def test_published_quantities_are_safe_and_sharp(theorem: str) -> None:
    for family in builders(theorem):
        with named(family):
            at = built(theorem, family)
            truth = enclosed.references(module("independent", at.system), at)
            assert set(at.base) <= truth.keys(), "a base quantity has no independent definition"
            wrong = enclosed.wrongly_published(at, truth)
            assert not wrong, wrong


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@MINIMUM_SLOW
def test_enclosures_contain_the_truth(theorem: str, level: enclosed.Level) -> None:
    for family in builders(theorem):
        with named(family):
            at = built(theorem, family)
            wrong = enclosed.wrongly_enclosed(at, enclosed.references(module("independent", at.system), at), level)
            assert not wrong, wrong


@pytest.mark.parametrize("level", [FAST, EXACT], ids=lambda level: level.name)
@pytest.mark.parametrize("system", SYSTEMS)
def test_bounds_of_the_gap_contain_it(system: str, level: enclosed.Level) -> None:
    for family, theorem in gap_cases(system).items():
        start = built(theorem, family)
        for at in (start, enclosed.moved(start)):
            with named(family):
                why = enclosed.wrong_gap(module("independent", at.system).gap, at, level)
                assert why is None, why


@pytest.mark.parametrize(
    "theorem",
    [
        "two-layer/drift",
        "linear-resnet/local",
        "feed-forward/local",
        pytest.param("feed-forward/minimum", marks=pytest.mark.slow),
        pytest.param("implicit/local", marks=pytest.mark.slow),
    ],
)
def test_methods_for_large_arrays(theorem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds by Cholesky factorisations, and the imbalance from one Gram matrix, on the same small arrays."""
    monkeypatch.setattr(gram_bounds, "SMALL", 0)
    monkeypatch.setattr(imbalance, "SMALL", 0)
    for family, build in builders(theorem).items():
        at = build()
        truth = enclosed.references(module("independent", at.system), at)
        wrong = enclosed.wrongly_published(at, truth) | enclosed.wrongly_enclosed(at, truth)
        assert not wrong, (family, wrong)


def with_a_new_quantity() -> list[Any]:
    """The theorems; the slow tests have those whose quantities all belong to an earlier theorem of their system."""
    known: set[tuple[str, str]] = set()
    params: list[Any] = []
    for theorem in theorems():
        names = {(theorem.split("/")[0], name) for name in PLANS[theorem].theorem.base}
        params.append(pytest.param(theorem, marks=pytest.mark.slow if names <= known else ()))
        known |= names
    return params


@pytest.mark.parametrize("theorem", with_a_new_quantity())
def test_a_wrong_enclosure_is_noticed(theorem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certifier and checker both use one on its unsafe side: of each quantity, on the first family of each kind of problem."""
    for name in (name for name in PLANS[theorem].theorem.base if name in found(theorem)):
        with named(name):
            notice(theorem, name, monkeypatch)


def notice(theorem: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation of one quantity, where it is not 0."""
    system = theorem.split("/")[0]
    definitions, seen = module("independent", system), set()
    for family, build in builders(theorem).items():
        good = built(theorem, family)
        if good.kind in seen or name not in good.base:
            continue
        by = enclosed.unsafe_factor(system, name, enclosed.references(definitions, good)[name])
        if by is None:
            continue
        seen.add(good.kind)
        with monkeypatch.context() as patch:
            enclosed.mutate(patch, enclosing(system, name), name, by)
            at = build()
            truth = enclosed.references(definitions, at)
            wrong = enclosed.wrongly_published(at, truth) | enclosed.wrongly_enclosed(at, truth)
        assert name in wrong, f"{family}: {name} times {by} is not noticed"
    assert seen, "no family has this quantity, away from 0"


@pytest.mark.parametrize("level", [FAST.name, EXACT.name])
def test_the_checker_alone_accepts_what_it_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """Why there is a second implementation: with a doubled μ in what both use, a false certificate passes every check."""
    right = Quadratic.strong_convexity
    monkeypatch.setattr(Quadratic, "strong_convexity", lambda problem: tuple(2.0 * end for end in right(problem)))
    weights, loss = families()["random"]()
    net = sf.nn.TwoLayerLinear(*weights)
    start = copy.deepcopy(net)  # which descent moves
    sf.descend(net, loss, max_iterations=20, directory=tmp_path, progress=False)
    assert check(tmp_path, level=level, replay=True).outcome is Outcome.ACCEPT
    at = enclosed.certified(start, loss, "two-layer/drift")
    truth = enclosed.references(module("independent", "two-layer"), at)
    assert "strong_convexity" in enclosed.wrongly_published(at, truth)
    assert "strong_convexity" in enclosed.wrongly_enclosed(at, truth)


def test_every_base_quantity_has_a_definition() -> None:
    """Also those that a theorem will have: the mutations above run over all that are found."""
    for theorem in theorems():
        statement = PLANS[theorem].theorem
        missing = set(statement.base) - found(theorem)
        if (
            statement.sequences
        ):  # it has bounds of as many steps as a certificate needs, and no family needs as many as there may be
            missing = {name for name in missing if f"{name.partition('[')[0]}[1]" not in found(theorem)}
        assert not missing, theorem


def found(theorem: str) -> set[str]:
    """The base quantities that are published in some family."""
    return {name for family in builders(theorem) for name in built(theorem, family).base}


def test_definitions_import_neither_certifier_nor_checker() -> None:
    """Nor does any module of the tests that they import."""
    package = Path(independent.__file__).parent
    waiting, seen = set(package.glob("*.py")), set()
    while waiting:
        file = waiting.pop()
        seen.add(file)
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for top in (name.split(".")[0] for name in names):
                assert top not in ("surefoot", "surefoot_check", "torch", "importlib"), f"{file.name} imports {top}"
                found = package.parent / f"{top}.py"
                waiting |= {found} - seen if found.exists() else set()
    assert {file.stem for file in seen} >= {system.replace("-", "_") for system in SYSTEMS}
