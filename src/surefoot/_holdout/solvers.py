"""How each kind of solver is followed on a batch: its iterates, or its objectives where it shows no iterates."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot_check.arrays import digest

from .._core.validate import as_tensor, integer, kind_of, unknown
from .._lasso.learned_solver import LassoSolver
from .._lasso.lista import UnrolledISTA
from .._layers.network import LayeredSteps
from .._logistic.solver import LogisticSolver
from .._problems import Problems
from .._step_sizes import baselines
from .._step_sizes.network import StepSizeNet
from .._step_sizes.schedules import SCHEDULES

CHUNK = 32
"""Iterations of a network between two looks at whether all problems are solved."""
Iterates = Iterator[Tensor]
"""x_0, x_1 … (N, d), or F(x_0), F(x_1) … (N,), at most as many as the limit has, and one."""


def called(solver: Any, limit: int) -> str:
    """What a solver is called; of a schedule, which is another one for each number of steps, with that number."""
    if isinstance(solver, str):
        return f"{solver} of {limit:,} steps" if solver in SCHEDULES else solver
    return getattr(solver, "__qualname__", type(solver).__name__)


def sha256(solver: Any) -> str | None:
    """Of the tensors and numbers that the solver is made of, if it is made of any."""
    parts: dict[str, Any] = dict(getattr(solver, "__dict__", {})) if not inspect.isroutine(solver) else {}
    if isinstance(solver, nn.Module):
        parts = {k: v for k, v in parts.items() if not k.startswith("_") and k != "training"} | solver.state_dict()
    digests = {name: _digest(value) for name, value in sorted(parts.items())}
    digests = {name: value for name, value in digests.items() if value is not None}
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest() if digests else None


def _digest(value: Any) -> str | None:
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_meta:
            return None
        value = (value.float() if value.dtype == torch.bfloat16 else value).detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return digest(value) if value.dtype.kind in "biuf" else None
    return repr(value) if isinstance(value, bool | int | float | str) else None


def reach(solver: Any, limit: int) -> int:
    """The limit, or the number of layers where there are fewer."""
    return min(limit, solver.layers) if isinstance(solver, UnrolledISTA | LayeredSteps) else limit


def has_length(solver: Any) -> bool:
    """Whether a solver that ends before the limit has no more iterations. Those of surefoot end where a problem is done."""
    return not isinstance(solver, str | LassoSolver | LogisticSolver)


def kept(solver: Any, limit: int) -> int:
    """How many iterates of a problem may be in memory at once."""
    return CHUNK if isinstance(solver, str | StepSizeNet) else limit + 1


def follower(solver: Any, problems: Problems) -> Callable[[Problems, int, float], Iterates]:
    """The function (block, limit, tolerance) that follows the solver on some of the problems.

    Raises:
        TypeError, ValueError: no solver of such problems.
    """
    if isinstance(solver, str):
        return _baseline(solver, problems)
    if isinstance(solver, type):
        raise TypeError(f"solver is the class {solver.__name__}; pass an object of it")
    if isinstance(solver, UnrolledISTA):
        solver.check(problems)
        return lambda block, limit, tolerance: iter(_layers(solver, block))
    if isinstance(solver, StepSizeNet):
        return lambda block, limit, tolerance: _steps(solver, block, limit)
    if callable(getattr(solver, "solve", None)):
        return lambda block, limit, tolerance: _solved(solver, block, limit, tolerance)
    if callable(solver):
        _require_two(solver)
        return lambda block, limit, tolerance: iterates(solver(block, limit), block, "solver(problems, iterations)")
    raise TypeError(
        f"solver is {kind_of(solver)}; pass a solver with a solve(problems, iterations), the name of a baseline, or a function "
        "of (problems, iterations) that returns the iterates"
    )


def _require_two(solver: Callable[..., Any]) -> None:
    """``TypeError`` where it is known that the function cannot be called with two arguments."""
    try:
        signature = inspect.signature(solver)
    except (TypeError, ValueError):  # some that are not written in Python have none
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"solver cannot be called as solver(problems, iterations) ({error}); of a batch sf.learned.Problems, pass a function "
            "that takes both and returns the iterates"
        ) from None


def _baseline(name: str, problems: Problems) -> Callable[[Problems, int, float], Iterates]:
    admitted = baselines.names(problems)
    if name not in admitted:
        if name == LassoSolver.__name__:
            raise ValueError(
                f"solver is the text {name!r}; pass an object, sf.learned.{name}(), with problems sf.learned.Lasso"
            )
        raise unknown("solver", name, [each for each in admitted if each not in baselines.BY_THE_BATCH])
    if name in baselines.BY_THE_BATCH:
        raise ValueError(
            f"solver is {name!r}, whose step depends on all problems of a batch, so that its counts are not those of each: "
            f"pass {baselines.BY_THE_BATCH[name]!r}, or a function with a step of your own"
        )
    return lambda block, limit, tolerance: baselines.method(name, block)(block, limit)


@torch.no_grad()
def _layers(net: UnrolledISTA, block: Problems) -> Sequence[Tensor]:
    return net.iterates(net.check(block).Y)


def _steps(net: StepSizeNet, block: Problems, limit: int) -> Iterates:
    """Its next step depends on the iterate alone, so that it is followed from where it was."""
    x, done = block.start(), 0
    yield x
    while done < limit:
        trajectory = net.solve(block, min(CHUNK, limit - done), x, trajectory=True).trajectory
        assert trajectory is not None
        yield from trajectory[1:]
        x, done = trajectory[-1], done + len(trajectory) - 1


def _solved(solver: Any, block: Problems, limit: int, tolerance: float) -> Iterates:
    """A trajectory if the solver can have one, else objectives. One of a fixed number of layers is not told how many to take."""
    solve: Any = solver.solve
    known = inspect.signature(solve).parameters
    second = [each for each in [*known.values()][1:2] if each.kind is each.POSITIONAL_OR_KEYWORD]
    asks = "iterations" not in known and any(each.default is each.empty for each in second)
    options: dict[str, Any] = {"trajectory": True} if "trajectory" in known else {}
    if "iterations" in known:
        options["iterations"] = limit
    if isinstance(solver, LassoSolver | LogisticSolver):
        options["tolerance"] = tolerance or None  # once its duality gap is that share of F, nothing remains to be seen
    result = solve(block, *([limit] if asks else []), **options)
    trajectory = getattr(result, "trajectory", None)
    if trajectory is not None:
        return iterates(trajectory, block, "solver.solve(…).trajectory")
    objectives = getattr(result, "objectives", None)
    if objectives is None:
        raise TypeError(
            f"solver.solve returned {kind_of(result)} without a trajectory (T+1, N, d) and without objectives (T+1, N); pass a "
            "function of (problems, iterations) that returns the iterates"
        )
    values = as_tensor("solver.solve(…).objectives", objectives)
    if values.ndim != 2 or values.shape[1] != block.count:
        raise ValueError(
            f"solver.solve(…).objectives has shape {tuple(values.shape)}; it must be (iterations + 1, {block.count}): each "
            "problem's objective, from the start on"
        )
    return iter(values)


def iterates(returned: Any, block: Problems, name: str) -> Iterates:
    """What a user's function returned, checked one by one as it is used."""
    if isinstance(returned, np.ndarray | Tensor):
        if returned.ndim != 3:
            raise ValueError(
                f"{name} has shape {tuple(returned.shape)}; it must be (iterations + 1, {block.count}, {block.columns}): the "
                "iterates of each problem, from the start on"
            )
    elif not isinstance(returned, Iterable):
        raise TypeError(
            f"{name} returned {kind_of(returned)}; return the iterates x_0, x_1 … of shape (problems, columns)"
        )
    if isinstance(returned, Sequence) and len(returned) > 1 and all(x is returned[0] for x in returned):
        raise ValueError(
            f"{name} returned one object {len(returned)} times, which says that it was changed in place; return copies, or a "
            "generator"
        )
    for t, x in enumerate(returned):
        x = as_tensor(f"iterate {t} of {name}", x)
        if x.shape != (block.count, block.columns):
            raise ValueError(
                f"iterate {t} of {name} has shape {tuple(x.shape)}; these problems need {(block.count, block.columns)}"
            )
        yield x.to(block.M.device)


def count_of(value: Any, index: int, limit: int) -> int:
    """What a user's function of one problem returned: a count, -1 for none or one beyond the limit.

    Raises:
        ValueError: neither an integer of at least 0 nor ``None``.
    """
    if value is None:
        return -1
    count = integer(f"what solver(problem) returned for problem {index}, which is None where it fails,", value, 0)
    return count if count <= limit else -1
