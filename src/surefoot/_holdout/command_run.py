"""What ``certify holdout`` does."""

from __future__ import annotations

import errno
import math
import shlex
from pathlib import Path
from typing import Any

from surefoot_check.holdout.verify import ORDER_LEVEL
from surefoot_check.text import counted

from .._cli.errors import Exit, message_of
from .._cli.screen import Screen, count, number, print_json
from .._cli.training import SETTINGS
from .._cli.values import matrix_size
from .._core.descent import certify
from .._core.io import RunDirectoryError, read_json, refuse_used
from .._core.validate import unknown
from .._lasso.learned_solver import LassoSolver
from .._layers.network import LayeredSteps
from .._problems import LeastSquares, Problems
from .._step_sizes.baselines import BY_THE_BATCH, names
from .._step_sizes.command_problems import KINDS, Kind, RandomProblems
from .._step_sizes.network import StepSizeNet
from .certificate import HoldoutCertificate
from .certify import certify_holdout
from .command import Holdout
from .report import write as write_report
from .report_context import Context, Others
from .shift import ShiftTest
from .table import advice, rank

SOLVERS: dict[str, tuple[Kind, type[Any]]] = {"LassoSolver": ("lasso", LassoSolver)}
"""Solvers that are no baselines, by name, with the problems that they are for."""
NETWORKS = (StepSizeNet, LayeredSteps)
"""What a file of ``surefoot train`` may hold."""
RATE = "step-sizes/rate"


def solvers() -> list[dict[str, Any]]:
    """What ``--solver`` may name, with the problems that it is for."""
    small = {kind: RandomProblems(problem=kind, size="4x6", problems=1).draw(0) for kind in KINDS}
    of: dict[str, list[str]] = {name: [kind] for name, (kind, _) in SOLVERS.items()}
    for kind, problems in small.items():
        for name in names(problems):
            if name not in BY_THE_BATCH:
                of.setdefault(name, []).append(kind)
    return [{"name": name, "problems": kinds} for name, kinds in of.items()]


def run_holdout(options: Holdout) -> int:
    """``surefoot certify holdout``."""
    screen = Screen(silent=options.json)
    if options.out is not None:
        refuse_used(Path(options.out))
    elif options.keep_solutions:
        raise ValueError("--keep-solutions needs --out, the directory that they are kept in")
    held_out = options.draw(options.seed)
    shifted = None if options.shift is None else matrix_size(options.shift, "--shift")
    others = None if shifted is None else options.draw(options.seed + 1, shifted)
    solver = _solver(options, held_out)
    facts = {**options.described(held_out), "seed": options.seed}
    certificate = certify_holdout(
        solver,
        held_out,
        gap=options.gap,
        relative_to="start" if isinstance(held_out, LeastSquares) else "optimum",
        coverage=options.coverage,
        confidence=options.confidence,
        iterations=options.iterations,
        keep_solutions=options.keep_solutions,
        name=None if isinstance(solver, str) else type(solver).__name__,
        progress=not options.json,
    )
    shift = None if others is None else certificate.shift_test(others, progress=not options.json)
    bound = _worst_case(solver, held_out, options.gap)
    context = Context(
        data=f"{facts['data']}, seed {options.seed}",
        bound=bound,
        theorem="" if bound is None else RATE,
        others=None
        if shift is None or others is None
        else Others(options.described(others)["data"], tuple(shift.counts.tolist()), shift.p_value),
    )
    report = _keep(options, certificate, context)  # before anything is printed, which a closed pipe ends
    screen.heading("Problem", f"{context.data}, held out")
    _show(screen, certificate, context, shift)
    _next(options, report, screen)
    if options.json:
        print_json(_record(options, facts, certificate, context, shift, report))
    return Exit.YES if certificate.holds and not _out_of_order(certificate) else Exit.NO


def _solver(options: Holdout, problems: Problems) -> Any:
    """A network, a solver, or the name of a method without learning."""
    name = options.solver
    if name in names(problems.select(slice(0, 1))):  # all are of one kind
        return name
    known = {solver["name"]: solver["problems"] for solver in solvers()}
    if name in SOLVERS and options.problem in known[name]:
        return SOLVERS[name][1]()
    if name in known:
        raise ValueError(f"--solver {name} is for --problem {' and '.join(known[name])}; choose another")
    path = Path(name)
    if path.is_dir():
        files = [path / file for file in ("net.safetensors", "layers.safetensors") if (path / file).exists()]
        raise ValueError(
            f"--solver {name} is a directory; pass {files[0] if files else 'the file of a trained network'}"
        )
    if path.suffix != ".safetensors" and not path.exists():
        raise unknown("solver", name, [name for name, kinds in known.items() if options.problem in kinds])
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file; --solver takes one of `surefoot train`, or a name", name)
    _refuse_the_problems_of_its_training(options, path)
    errors: list[Exception] = []
    for kind in NETWORKS:
        try:
            return kind.load(path).double()
        except (OSError, RunDirectoryError) as error:
            errors.append(error)
    raise ValueError(f"--solver is {name}: {message_of(errors[0])}")


def _refuse_the_problems_of_its_training(options: Holdout, network: Path) -> None:
    """Raise ``ValueError`` where ``surefoot train`` drew the matrices that the network was trained on by the same seed."""
    settings = network.parent / SETTINGS
    stored = read_json(settings) if settings.exists() else {}
    trained = stored.get("options") if isinstance(stored, dict) else None
    if not isinstance(trained, dict):
        return
    same = all(trained.get(name) == getattr(options, name) for name in ("problem", "size"))
    if same and options.seed in (trained.get("seed"), trained.get("seed", -2) + 1):
        raise ValueError(
            f"--seed is {options.seed}, by which {network.parent} drew its own problems; choose another, so that those held out "
            "are new to the network"
        )


def _worst_case(solver: Any, problems: Problems, gap: float) -> int | None:
    """Iterations that a theorem guarantees for each of the problems: all of them contract by the factor of the worst."""
    if not isinstance(solver, StepSizeNet) or not isinstance(problems, LeastSquares):
        return None
    certificate = certify(solver, problems, RATE)
    needed = certificate.iterations_to(gap) if certificate.holds else math.inf
    return int(needed) if needed < math.inf else None


def _out_of_order(certificate: HoldoutCertificate) -> bool:
    """Whether the counts depend on the order of the problems, so that these are not exchangeable."""
    return certificate.order_test < ORDER_LEVEL


def _keep(options: Holdout, certificate: HoldoutCertificate, context: Context) -> str | None:
    """Write directory and report; the report's path."""
    if options.out is None:
        return None
    certificate.save(options.out)
    context.write(Path(options.out))
    return str(write_report(Path(options.out)))


def _next(options: Holdout, report: str | None, screen: Screen) -> None:
    """Say what comes next."""
    if options.out is None:
        screen.following("--out DIR keeps certificate, counts and report", {})
        return
    proved = "and the gaps of the solutions" if options.keep_solutions else "from the recorded counts"
    screen.following(
        f"open {report}",
        {f"surefoot check {shlex.quote(options.out)}": f"prove the arithmetic, {proved}, independently"},
    )


# -- what is shown ---------------------------------------------------------------------------------------------------


def _show(screen: Screen, certificate: HoldoutCertificate, context: Context, shift: ShiftTest | None) -> None:
    screen.heading("Certificate", "holds" if certificate.holds else "FAILS")
    screen.say(f"  {certificate.statement}", style="" if certificate.holds else "yellow")
    record = certificate.record
    solved = certificate.counts[certificate.counts >= 0].double()
    pairs = {"rank": rank(record)}
    if len(solved):
        pairs["counted"] = f"median {count(float(solved.median()))}, most {count(float(solved.max()))}"
    if record.failures:
        pairs["not solved"] = f"{counted(record.failures, 'problem')} within {count(record.limit)} iterations"
    if not certificate.holds:
        pairs["would help"] = advice(record)
    if context.bound is not None:
        pairs["worst case"] = f"{count(context.bound)} iterations, for each of these problems, by {context.theorem}"
    screen.pairs(pairs)
    screen.heading("It rests on")
    for said in certificate.hypotheses:
        screen.say(f"  {said}")
    order = f"first half against second half of those held out: p = {number(certificate.order_test, 3)}"
    if _out_of_order(certificate):
        screen.say(f"  {order}: THEY DIFFER, so do not rely on the statement", style="bold red")
    else:
        screen.pairs({"order": f"{order}, no difference found"})
    if shift is not None and context.others is not None:
        screen.heading("Shift", context.others.name)
        screen.say(f"  {shift}", style="yellow" if shift.shifted() else "")


def _record(
    options: Holdout,
    facts: dict[str, Any],
    certificate: HoldoutCertificate,
    context: Context,
    shift: ShiftTest | None,
    report: str | None,
) -> dict[str, Any]:
    """For JSON."""
    record = certificate.record
    return {
        "directory": options.out,
        "problem": facts,
        "solver": record.solver,
        "holds": certificate.holds,
        "statement": certificate.statement,
        "hypotheses": list(certificate.hypotheses),
        "iterations": certificate.iterations,
        "coverage": record.coverage,
        "confidence": record.confidence,
        "gap": record.gap,
        "relative_to": record.relative_to,
        "limit": record.limit,
        "rank": record.rank,
        "failures": record.failures,
        "coverage_at_limit": record.coverage_at_limit,
        "order_test": record.order_test,
        "worst_case": context.bound,
        "shift": None
        if shift is None or context.others is None
        else {
            "data": context.others.name,
            "problems": shift.problems,
            "exceeding": shift.exceeding,
            "p_value": shift.p_value,
            "shifted": shift.shifted(),
        },
        "counts": certificate.counts.tolist(),
        "report": report,
    }
