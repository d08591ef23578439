"""The example in every public docstring runs, and prints what stands there."""

from __future__ import annotations

import doctest
import enum
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot as sf
from surefoot._core.registry import SYSTEMS

MODULES = (
    "surefoot",
    "surefoot.callbacks",
    "surefoot.data",
    "surefoot.deconvolution",
    "surefoot.distributed",
    "surefoot.estimators",
    "surefoot.extending",
    "surefoot.extending.report",
    "surefoot.learned",
    "surefoot.linalg",
    "surefoot.nn",
    "surefoot.optim",
    "surefoot.sgd",
    "surefoot.steps",
)
"""Public modules; every function and class that they export has an example."""

RESULTS: frozenset[str] = frozenset(
    {"SVD", "Cholesky", "Eigh", "LowRank", "LstSq", "Polar", "StiefelResult", "StiefelTrace"}
    | {"Contractive", "Equilibrium", "JacobianPenalty", "JacobianSpectrum", "LearnedSVDResult", "SVDInfo", "SolveInfo"}
    | {"Trajectory"}
    | {"AuditLine", "Facts", "Flow", "SGDGuarantee", "SGDRun", "Watch", "WidthEstimate"}
    | {"Deblurred", "DeconvolutionSolution", "DualityGap", "InnerSolution", "NoiseEstimate", "PoissonTVSolution"}
    | {"Restoration", "RichardsonLucySolution", "State", "TVState"}
    | {"AnalyticWeights", "Comparison", "HoldoutCertificate", "LassoSolution", "LayersRun", "LogisticSolution"}
    | {"ShiftTest", "Solution", "TrainRun"}
)
"""Classes that a user is given and does not make: the example stands with what returns them."""

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def has_no_example_of_its_own(thing: Any) -> bool:
    """Whether it is a result, an enumeration, an exception, or a description of what others write."""
    kind = isinstance(thing, type)
    return thing.__name__ in RESULTS or (
        kind and (issubclass(thing, enum.Enum | BaseException) or getattr(thing, "_is_protocol", False))
    )


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            thing = getattr(importlib.import_module(module), name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                yield f"{module}.{name}", thing


PUBLIC = dict(public())


@pytest.mark.parametrize("name", PUBLIC)
def test_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    thing = PUBLIC[name]
    scope = {"sf": sf, "torch": torch, "np": np}
    found = doctest.DocTestFinder(exclude_empty=True).find(thing, name, globs=scope)
    assert has_no_example_of_its_own(thing) or any(test.name == name and test.examples for test in found), "no example"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SYSTEMS, "data", list(SYSTEMS))  # what an example registers is forgotten
    torch.manual_seed(0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    for test in found:
        runner.run(test, out=said.append)
    assert not said, "".join(said)
