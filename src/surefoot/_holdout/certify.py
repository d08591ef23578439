"""``certify_holdout`` and ``problems_needed``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from surefoot_check.arrays import FormatError
from surefoot_check.holdout import binomial
from surefoot_check.holdout.record import LIMIT, LONGEST_NAME, MOST, MOST_BYTES, Record
from surefoot_check.holdout.statement import SAID, statement
from surefoot_check.step_sizes.enclosures import load_problem
from surefoot_check.text import visible

from .._core.validate import integer, kind_of, nonnegative, number, positive, unknown
from . import solvers
from .bounds import evaluate, precision
from .certificate import HoldoutCertificate, digests
from .counting import Counter, Drawn
from .targets import RelativeTo

LEAST = 1e-6
"""Of coverage and confidence: what is less says nothing, and 1 - confidence is no longer told from 1."""


def certify_holdout(
    solver: Any,
    problems: Any,
    *,
    gap: float,
    relative_to: RelativeTo | None = "optimum",
    coverage: float = 0.99,
    confidence: float = 0.99,
    iterations: int = 1000,
    keep_solutions: bool = False,
    name: str | None = None,
    progress: bool = True,
) -> HoldoutCertificate:
    """How many iterations the solver needs on most problems of a distribution, from its counts on n problems of it.

    T is the number of iterations until a problem's gap is at most ``gap``, infinite where that is not within the limit. With
    probability at least ``confidence`` over the draw of the held-out problems, at least the share ``coverage`` of all problems of
    their distribution have T ≤ k. k is the r-th smallest of the n counts, r the least rank with
    P(Bin(n, coverage) ≤ r - 1) ≥ ``confidence``; whatever the distribution, ties included (docs/theorems/holdout.md). T is the
    first iteration with that gap; a method that is not monotone may lose it again.

    It rests on what counts cannot show (``HoldoutCertificate.hypotheses``): the held-out problems are exchangeable with those to
    come, nothing of the solver was chosen with them, and the solver treats each problem by itself. One that looks across the
    batch, such as a step size from the largest norm of all matrices, breaks the second half of that, and no count is then the
    problem's own; the baselines that do are refused.

    Args:
        solver: for a batch: an object with ``solve(problems, iterations)`` whose result has a ``trajectory`` (T+1, N, d) or
            ``objectives`` (T+1, N), such as ``sf.nn.StepSizeNet``, ``LassoSolver``, ``sf.nn.LISTA``; the name of a baseline, such
            as "FISTA" (``compare`` lists them); or a function of (problems, iterations) that returns the iterates x_0, x_1 …,
            each (N, d), as a tensor, a list or a generator. For other problems: a function of one problem that returns its
            count, an int, or ``None`` where it fails.
        problems: n held-out problems, in the order in which they were drawn: a batch, which is solved in blocks; several batches,
            such as those of one problem each where the sizes differ; or a sequence of any objects.
        gap: what F - F* must be at most, as a share of what ``relative_to`` says. A problem counts as solved where that is
            certain up to rounding: F* is bounded from below by the gap bound of a reference minimiser. Positive; of other
            objects only recorded.
        relative_to: "optimum": F - F* ≤ gap F*; "start": F - F* ≤ gap (F(0) - F*); ``None``: F - F* ≤ gap. Not used
            of other objects, whose solver decides when one is solved.
        coverage: the share of problems, in [1e-6, 1).
        confidence: in [1e-6, 1).
        iterations: the limit, at least 0. A solver that ends before it, such as one of layers, has its own last iteration for a
            limit, which must be the same for all problems.
        keep_solutions: of a batch, also store the problems and the solution of each at its count, so that the checker proves the
            gaps (claim L2).
        name: what the solver is called; by default its name, or that of its class.
        progress: whether to show a line on a terminal.

    Raises:
        TypeError: a solver, problems or results of a kind that is not known.
        ValueError: arguments out of range; too few problems (``problems_needed`` says how many); a gap relative to 0, or below
            rounding; a baseline whose steps depend on the batch.
        RuntimeError: reference minimisers were not found.

    Example:
        >>> held_out = sf.learned.LeastSquares.random(60, 6, 8, seed=1)  # drawn afresh, nothing was chosen with them
        >>> ask = {"gap": 1e-3, "relative_to": "start", "coverage": 0.9, "confidence": 0.95, "progress": False}
        >>> certificate = sf.learned.certify_holdout("FISTA", held_out, **ask)
        >>> certificate.holds, certificate.iterations < sf.learned.certify_holdout("GD 1/β_p", held_out, **ask).iterations
        (True, True)
    """
    gap, limit = nonnegative("gap", gap), integer("iterations", iterations, 0)
    coverage, confidence = _share("coverage", coverage), _share("confidence", confidence)
    if limit > LIMIT:
        raise ValueError(f"iterations is {limit}; it must be at most {LIMIT}")
    if relative_to not in ("optimum", "start", None):
        raise unknown("relative_to", relative_to, ("optimum", "start", "None"))
    drawn = Drawn.of(problems)
    if drawn.batches:
        positive("gap", gap)
    _enough(drawn.count, coverage, confidence)
    if keep_solutions:
        _storable(drawn)
    name = visible(solvers.called(solver, limit) if name is None else _text("name", name))[:LONGEST_NAME]
    made_of = solvers.sha256(solver)  # before it is used: one that counts its calls is another one after
    counted = Counter(solver, gap, relative_to, solvers.reach(solver, limit)).count(
        drawn, keep=keep_solutions, progress=progress
    )
    arrays: dict[str, dict[str, Tensor]] = {"counts": {"counts": counted.counts}}
    if counted.arrays is not None and counted.solutions is not None:
        arrays |= {"problems": counted.arrays, "solutions": {"x": counted.solutions}}
        try:
            load_problem(drawn.batches[0].kind, {name: value.numpy() for name, value in counted.arrays.items()})
        except FormatError as error:
            raise ValueError(f"keep_solutions: the checker refuses such problems ({error}); leave it out") from error
    fields = evaluate(counted.counts.numpy(), counted.limit, coverage, confidence) | {
        **drawn.described,
        "solver": name,
        "solver_sha256": made_of,
        "gap": gap,
        "relative_to": relative_to or "nothing" if drawn.batches else "user",
    }
    claims = ("L1", "L2") if "solutions" in arrays else ("L1",)
    words = statement(**{name: fields[name] for name in SAID})
    record = Record(claims=claims, statement=words, arrays=digests(arrays), **fields)
    return HoldoutCertificate(record, counted.counts, arrays, solver)


def problems_needed(coverage: float = 0.99, confidence: float = 0.99) -> int:
    """How many held-out problems ``certify_holdout`` needs: the least n with coverageⁿ ≤ 1 - confidence, 459 by default. With so
    few, all must be solved, and k is the largest count; more of them leave room for some that are slow.

    Args:
        coverage, confidence: as of ``certify_holdout``.

    Raises:
        TypeError, ValueError: no numbers in [1e-6, 1), or more than 10¹⁵ problems.

    Example:
        >>> sf.learned.problems_needed(), sf.learned.problems_needed(coverage=0.9, confidence=0.95)
        (459, 29)
    """
    coverage, confidence = _share("coverage", coverage), _share("confidence", confidence)
    with precision():
        return binomial.problems_needed(coverage, confidence)


def _share(name: str, value: Any) -> float:
    """``value`` as a float in [``LEAST``, 1); ``TypeError`` or ``ValueError`` otherwise."""
    wanted = "a number between 0 and 1, such as 0.99"
    result = number(name, value, wanted)
    if not 0.0 < result < 1.0:
        raise ValueError(f"{name} is {value!r}; it must be {wanted}")
    if result < LEAST:
        raise ValueError(f"{name} is {value!r}, of which nothing can be said; it must be at least {LEAST:g}")
    return result


def _text(name: str, value: Any) -> str:
    """``value``; ``TypeError`` or ``ValueError`` unless it is a text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {kind_of(value)}; pass a text")
    if not value.strip():
        raise ValueError(f"{name} is empty; pass a text")
    return value


def _enough(count: int, coverage: float, confidence: float) -> None:
    """``ValueError`` where so many problems can give no statement, before they are solved."""
    needed = problems_needed(coverage, confidence)
    if count < needed:
        raise ValueError(
            f"problems are {count:,}; a coverage of {coverage!r} with confidence {confidence!r} needs at least {needed:,}, all "
            "of them solved: pass more problems, or ask for less coverage or confidence"
        )
    if count > MOST:
        raise ValueError(f"problems are {count:,}; at most {MOST:,} are counted")


def _storable(drawn: Drawn) -> None:
    """``ValueError`` where a file of the problems would be too large for the checker."""
    size = sum(8 * batch.M.numel() for batch in drawn.batches)
    if size > MOST_BYTES // 2:
        raise ValueError(
            f"keep_solutions: the matrices have {size:,} bytes, and the checker reads files of {MOST_BYTES:,}: hold out fewer "
            "problems, or leave it out"
        )
