"""The independent checker on honest runs, on runs that break their promise, and on hostile input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
import tamper
import torch

import surefoot as sf
from surefoot._core.run import Run
from surefoot_check.__main__ import main
from surefoot_check.checker import PRECISION, check
from surefoot_check.problems import Sensing, Softmax, Squared
from surefoot_check.rigor.approximation import Approximation
from surefoot_check.rigor.balls import arb_matrix
from surefoot_check.rigor.bounds import FAST
from surefoot_check.verdict import Outcome, Report, lines

MakeLoss = Callable[..., Any]
GoodRun = Callable[[str], Path]


def exact_product(W1: np.ndarray, W2: np.ndarray) -> object:
    return arb_matrix(W1) * arb_matrix(W2).transpose()


def product_of_factors(W1: np.ndarray, W2: np.ndarray) -> Approximation:
    """W1 W2ᵀ in floats, with its error."""
    return Approximation(*FAST.product(W1, W2.T))


def descend(directory: Path, loss: Any, theorem: str, width: int = 12, **settings: Any) -> Run:
    """A run with its directory; 40 iterations unless told otherwise."""
    net = sf.nn.TwoLayerLinear.gaussian(*loss.shape, width, std=1.0, seed=0)
    settings = {"max_iterations": 40, "tolerance": 1e-14, **settings}
    certificate = sf.certify(net, loss, f"two-layer/{theorem}")
    return sf.descend(net, loss, certificate=certificate, directory=directory, progress=False, **settings)


def failures(report: Report) -> str:
    """The lines that are not accepted."""
    return "\n".join(str(line) for line in report.lines if line.outcome is not Outcome.ACCEPT)


# -- honest runs are accepted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theorem", "kind", "sizes", "width", "every"),
    [
        ("drift", "squared", (3, 2), 12, None),
        ("drift", "squared", (2, 3), 12, None),
        ("drift", "squared", (4, 1), 12, None),
        ("drift", "squared", (3, 1), 3, None),  # width below n + m
        ("drift", "squared", (4, 2, 2), 12, None),  # X of rank 2
        ("drift", "squared", (3, 2), 12, 7),
        ("drift", "squared", (4, 2, 2), 12, 7),
        ("drift", "sensing", (3, 2, 9), 12, None),
        ("drift", "sensing", (3, 2, 4), 12, None),  # fewer measurements than entries: no unique minimiser
        ("drift", "sensing", (2, 3, 3), 12, 7),
        ("drift", "completion", (3, 2, 5), 12, None),
        ("drift", "completion", (2, 3, 5), 12, 7),
        ("constant", "completion", (3, 2, 5), 12, None),
        ("drift", "softmax", (3, 2), 12, None),
        ("drift", "softmax", (2, 4), 12, 7),
        ("drift", "softmax", (3, 1), 12, None),
        ("drift", "softmax-offset", (3, 2), 12, None),
        ("contraction", "squared", (2, 3), 12, None),
        ("contraction", "squared", (4, 2, 2), 12, None),
        ("contraction", "sensing", (3, 2, 9), 12, 20),
        ("constant", "squared", (3, 2), 12, None),
        ("constant", "sensing", (3, 2, 4), 12, None),
        ("constant", "softmax", (3, 2), 12, None),
        ("sharp", "squared", (3, 2), 12, None),
        ("sharp", "sensing", (3, 2, 4), 12, None),
        ("sharp", "softmax", (2, 4), 12, None),
        ("corrected", "squared", (2, 3), 12, None),
        ("corrected", "squared", (4, 1), 12, 15),
        ("corrected", "sensing", (3, 2, 9), 12, None),
        ("corrected", "softmax", (3, 2), 12, None),
    ],
)
def test_an_honest_run_is_accepted(
    theorem: str, kind: str, sizes: tuple[int, ...], width: int, every: int | None, make_loss: MakeLoss, tmp_path: Path
) -> None:
    run = descend(tmp_path / "run", make_loss(kind, *sizes), theorem, width, certify_every=every)
    assert run.certificate.holds
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, failures(report)
    # every checkpoint and the final weights were compared with all bounds in force; the line names the least
    stored = len(list((tmp_path / "run" / "checkpoints").iterdir())) + 1
    judged = [line.name for line in report.lines if line.claim == "L2"]
    assert len(judged) == stored and all("certificate" in name for name in judged)
    assert sum("promises at its start at most" in line.name for line in report.lines) == sum(
        range(len(run.adopted) + 1)
    )
    assert sum(line.claim.startswith("L1 (from") and "sha256" in line.name for line in report.lines) == len(run.adopted)


@pytest.mark.parametrize("tolerance", [1e-12, 1e-16, 1e-20])
def test_a_converged_run_under_a_tight_bound_is_accepted(tolerance: float, tmp_path: Path) -> None:
    """Near the optimum loss minus optimal value cancels; the witness does not."""
    generator = torch.Generator().manual_seed(3)
    X = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    loss = sf.SquaredLoss(X, torch.randn(4, 4, generator=generator, dtype=torch.float64))
    run = descend(tmp_path / "run", loss, "contraction", 300, tolerance=tolerance, max_iterations=500)
    guaranteed = run.certificate.bound(run.iterations)
    assert run.gaps[-1] <= tolerance * run.gaps[0]
    assert guaranteed <= tolerance * run.gaps[0] * 1e6  # the bound that L2 has to confirm is small, too
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, failures(report)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("squared", (3, 2)), ("softmax", (3, 2)), ("sensing", (3, 2, 4)), ("completion", (3, 2, 5))],
)
def test_a_run_to_the_rounding_level_is_accepted(
    kind: str, sizes: tuple[int, ...], make_loss: MakeLoss, tmp_path: Path
) -> None:
    descend(tmp_path / "run", make_loss(kind, *sizes), "drift", tolerance=1e-20, max_iterations=1000)
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, failures(report)


# -- what guarantees nothing is rejected -------------------------------------------------------------------------------


def test_a_theorem_as_printed_is_rejected(make_loss: MakeLoss, tmp_path: Path) -> None:
    descend(tmp_path / "run", make_loss("squared", 2, 2), "as-printed")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert "as-printed" in failures(report)


def test_a_certificate_that_fails_is_rejected(make_loss: MakeLoss, tmp_path: Path) -> None:
    run = descend(tmp_path / "run", make_loss("softmax", 3, 2), "contraction")
    assert not run.certificate.holds
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert "nothing is claimed" in failures(report)


@pytest.mark.parametrize(("kind", "sizes"), [("squared", (3, 2)), ("sensing", (3, 2, 9)), ("softmax", (3, 2))])
@pytest.mark.parametrize("theorem", ["drift", "corrected"])
def test_steps_too_small_for_the_promise_are_rejected_at_L2(
    theorem: str, kind: str, sizes: tuple[int, ...], make_loss: MakeLoss, tmp_path: Path
) -> None:
    descend(tmp_path / "run", make_loss(kind, *sizes), theorem, steps=1e-12, max_iterations=100)
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert {line.claim for line in report.lines if line.outcome is Outcome.REJECT} == {"L2"}
    assert "the steps did not keep the theorem's conditions" in failures(report)


def test_a_diverging_run_is_rejected_at_L2(make_loss: MakeLoss, tmp_path: Path) -> None:
    run = descend(tmp_path / "run", make_loss("squared", 3, 2), "drift", steps=0.02)
    assert run.gaps[-1] > run.gaps[0]
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.REJECT
    assert {line.claim for line in report.lines if line.outcome is Outcome.REJECT} == {"L2"}


# -- undecided ---------------------------------------------------------------------------------------------------------


def test_a_quantity_between_the_ends_of_its_enclosure_is_undecided(good_run: GoodRun, tmp_path: Path) -> None:
    run = tamper.StoredRun.read(good_run("drift"))
    gap = float.fromhex(run.certificate["quantities"]["initial_gap"])
    run.certificates["certificate.json"] = tamper.reevaluated(run.certificate, {"initial_gap": 0.9 * gap})
    run.seal()
    run.write(tmp_path / "run")
    assert check(tmp_path / "run").outcome is Outcome.UNDECIDED
    assert main([str(tmp_path / "run")]) == 3


def test_final_weights_older_than_a_checkpoint_are_undecided(good_run: GoodRun, tmp_path: Path) -> None:
    """That is what a resumed run leaves behind when it is killed."""
    run = tamper.StoredRun.read(good_run("drift"))
    run.arrays["final.safetensors"] = run.arrays["checkpoints/000000002.safetensors"]
    run.write(tmp_path / "run")
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.UNDECIDED
    assert "older than the newest checkpoint" in failures(report)


def test_a_run_cut_short_is_checked_as_far_as_it_went(good_run: GoodRun, tmp_path: Path) -> None:
    run = tamper.StoredRun.read(good_run("drift"))
    del run.arrays["final.safetensors"]
    run.write(tmp_path / "run")
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


# -- the program -------------------------------------------------------------------------------------------------------


def test_exit_codes_and_text(good_run: GoodRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(good_run("drift"))]) == 0
    assert capsys.readouterr().out.endswith("outcome: accept\n")
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / "empty")]) == 1
    assert "certificate.json" in capsys.readouterr().out
    assert main([str(tmp_path / "absent")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    assert main([""]) == 2  # not the current folder
    assert "the directory is an empty text; pass the directory of a run" in capsys.readouterr().err
    (tmp_path / "file").write_bytes(b"")
    assert main([str(tmp_path / "file")]) == 2
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2


def test_json_report(good_run: GoodRun, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(good_run("drift")), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["outcome"] == "accept"
    assert record["theorem"] == "two-layer/drift"
    assert {check["outcome"] for check in record["checks"]} == {"accept"}
    assert {check["claim"] for check in record["checks"]} == {"L1", "L2"}


def test_a_failed_self_test_is_no_verdict(
    good_run: GoodRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("self-test: failed")

    monkeypatch.setattr("surefoot_check.checker.self_test", fail)
    assert main([str(good_run("drift"))]) == 2
    assert "self-test" in capsys.readouterr().err


def test_it_works_where_torch_and_surefoot_cannot_be_imported(good_run: GoodRun) -> None:
    program = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "surefoot", "safetensors", "scipy"):
            raise AssertionError(f"{name} was imported")

sys.meta_path.insert(0, Refuse())
from surefoot_check.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(good_run("drift"))], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("outcome: accept\n")


def test_the_precision_of_the_caller_is_left_as_it_was(good_run: GoodRun) -> None:
    before = flint.ctx.prec
    try:
        flint.ctx.prec = 77
        check(good_run("drift"))
        assert flint.ctx.prec == 77
    finally:
        flint.ctx.prec = before


# -- hostile work ------------------------------------------------------------------------------------------------------


def timed(directory: Path) -> tuple[Report, float]:
    """The report and the processor time it took."""
    start = time.process_time()
    report = check(directory)
    return report, time.process_time() - start


@pytest.mark.parametrize(("count", "outcome"), [(9_000, Outcome.ACCEPT), (100_000, Outcome.REJECT)])
def test_a_schedule_of_very_many_segments_ends_quickly(
    count: int, outcome: Outcome, good_run: GoodRun, tmp_path: Path
) -> None:
    run = tamper.StoredRun.read(good_run("contraction"))
    tamper.split(run.certificate, count)
    run.arrays = {path: run.arrays[path] for path in ("initial.safetensors", "problem.safetensors")}
    run.seal()
    run.write(tmp_path / "run")
    report, seconds = timed(tmp_path / "run")
    assert report.outcome is outcome, failures(report)
    assert seconds < 10.0


def test_astronomical_counts_and_iterations_end_quickly(good_run: GoodRun, tmp_path: Path) -> None:
    run = tamper.StoredRun.read(good_run("drift"))
    tamper.lengthen(run.certificate, 10**18)  # true: the rate of a level holds at every lower gap
    last = 2**63 - 1
    run.arrays["final.safetensors"]["iteration"] = np.array(last)
    run.seal()
    run.write(tmp_path / "run")
    report, seconds = timed(tmp_path / "run")
    assert report.outcome is not Outcome.ACCEPT  # the bound after so long is below every gap
    assert {line.claim for line in report.lines if line.outcome is not Outcome.ACCEPT} == {"L2"}
    assert seconds < 5.0


def test_huge_files_and_declarations_end_quickly(good_run: GoodRun, tmp_path: Path) -> None:
    run = tamper.StoredRun.read(good_run("drift"))
    for name, content in {
        "certificate.json": b"[" + b"0," * (16 << 20) + b"0]",
        "problem.safetensors": declaration([1 << 40, 1 << 20]),
        "initial.safetensors": declaration([1 << 31, 2]),
    }.items():
        directory = tmp_path / name
        run.write(directory)
        (directory / name).write_bytes(content)
        report, seconds = timed(directory)
        assert report.outcome is Outcome.REJECT
        assert seconds < 2.0


def declaration(shape: list[int]) -> bytes:
    """A safetensors file that declares an array it does not hold."""
    size = 8 * int(np.prod(shape, dtype=object))
    header = json.dumps({"X": {"dtype": "F64", "shape": shape, "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header


# -- the constants of the problems, against 60 digits ------------------------------------------------------------------


def exact(A: np.ndarray) -> Any:
    """The same matrix in multiple precision."""
    return mpmath.matrix(A.tolist())


def norm(A: Any) -> Any:
    """Frobenius norm."""
    return mpmath.sqrt(sum((x * x for x in A), mpmath.mpf(0)))


def inside(interval: tuple[float, float], value: Any) -> bool:
    """Whether an enclosure holds the value."""
    return interval[0] <= value <= interval[1]


@pytest.fixture
def sixty_digits() -> Any:
    """Multiple precision for the references."""
    with mpmath.workdps(60), flint.ctx.workprec(PRECISION):
        yield


@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
@pytest.mark.parametrize("far", [1.0, 1e-9, 0.0])
def test_least_squares_enclosures(scale: float, far: float, sixty_digits: None) -> None:
    rng = np.random.default_rng(5)
    X, Y = scale * rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    witness = np.linalg.lstsq(X, Y, rcond=None)[0]
    problem = Squared(X, Y, witness)
    A, B = exact(X), exact(Y)
    minimiser = mpmath.lu_solve(A.T * A, A.T * B[:, 0]), mpmath.lu_solve(A.T * A, A.T * B[:, 1])
    best = mpmath.matrix(3, 2)
    best[:, 0], best[:, 1] = minimiser
    W1 = np.concatenate([witness + far * rng.standard_normal((3, 2)) / scale, np.zeros((3, 1))], axis=1)
    W2 = np.eye(2, 3)
    step = exact(W1) * exact(W2).T - best
    gap = norm(A * step) ** 2 / 2
    W = product_of_factors(W1, W2)
    assert gap <= problem.gap_upper(W)
    low, high = problem.gap_exact(product_of_factors(W1, W2), partial(exact_product, W1, W2))
    assert low is None or float(low) <= gap * (1 + mpmath.mpf(10) ** -15)
    assert gap <= mpmath.mpf(float(high)) * (1 + mpmath.mpf(10) ** -15)
    assert far < 1.0 or (low is not None and float(high) <= float(low) * (1 + 1e-6))
    assert inside(problem.distance(W), norm(step))
    values = mpmath.eigsy(A.T * A, eigvals_only=True)
    assert inside(problem.smoothness(), max(values))
    assert inside(problem.strong_convexity(), min(values))
    sigma = sorted(mpmath.svd(best, compute_uv=False))
    smallest, largest = problem.optimum_singular_values()
    assert inside(smallest, sigma[0]) and inside(largest, sigma[-1])


def test_a_poor_witness_widens_every_enclosure(sixty_digits: None) -> None:
    rng = np.random.default_rng(6)
    X, Y = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    good = np.linalg.lstsq(X, Y, rcond=None)[0]
    sharp, poor = Squared(X, Y, good), Squared(X, Y, good + 0.1)
    W = product_of_factors(np.eye(3, 4), np.ones((2, 4)))
    assert poor.gap_upper(W) > sharp.gap_upper(W)
    assert poor.distance(W)[0] < sharp.distance(W)[0] and poor.distance(W)[1] > sharp.distance(W)[1]
    assert all(inside(a, b[0]) and inside(a, b[1]) for a, b in zip(
        poor.optimum_singular_values(), sharp.optimum_singular_values(), strict=True
    ))  # fmt: skip


def test_fewer_measurements_than_entries_have_no_unique_minimiser() -> None:
    rng = np.random.default_rng(7)
    A, y = rng.standard_normal((4, 3, 2)), rng.standard_normal(4)
    problem = Sensing(A, y, np.zeros((3, 2)))
    assert not problem.unique_optimum
    # the optimal value is 0, so that the gap is the loss, whatever the witness
    W1, W2 = rng.standard_normal((3, 5)), rng.standard_normal((2, 5))
    residual = np.einsum("knm,nm->k", A, W1 @ W2.T) - y
    loss = 0.5 * float(residual @ residual)
    assert loss <= problem.gap_upper(product_of_factors(W1, W2)) <= loss * (1 + 1e-12)


def softmax_reference(X: np.ndarray, labels: np.ndarray, l2: float, W: Any) -> tuple[Any, Any, Any]:
    """Loss, gradient and Hessian of softmax regression in multiple precision; W is n by m."""
    A = exact(X)
    rows, n, m = A.rows, A.cols, W.cols
    penalty = mpmath.mpf(l2)
    loss, gradient, hessian = penalty * norm(W) ** 2 / 2, penalty * W, penalty * mpmath.eye(n * m)
    logits = A * W
    for i in range(rows):
        z = [logits[i, k] for k in range(m)]
        total = sum(mpmath.exp(x) for x in z)
        p = [mpmath.exp(x) / total for x in z]
        loss += (mpmath.log(total) - z[labels[i]]) / rows
        for a in range(n):
            for k in range(m):
                gradient[a, k] += A[i, a] * (p[k] - (1 if k == labels[i] else 0)) / rows
                for b in range(n):
                    for j in range(m):
                        curvature = p[k] * ((1 if k == j else 0) - p[j])
                        hessian[a * m + k, b * m + j] += A[i, a] * A[i, b] * curvature / rows
    return loss, gradient, hessian


def softmax_minimiser(X: np.ndarray, labels: np.ndarray, l2: float, start: np.ndarray) -> Any:
    """W* by Newton's method."""
    W = exact(start)
    for _ in range(8):
        _, gradient, hessian = softmax_reference(X, labels, l2, W)
        step = mpmath.lu_solve(hessian, mpmath.matrix(list(gradient)))
        for index in range(W.rows * W.cols):
            W[index // W.cols, index % W.cols] -= step[index]
    assert norm(softmax_reference(X, labels, l2, W)[1]) < mpmath.mpf(10) ** -40
    return W


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_softmax_enclosures(scale: float, sixty_digits: None) -> None:
    """``scale`` 30 gives logits of several hundred, where probabilities underflow."""
    rng = np.random.default_rng(8)
    X, labels, l2 = scale * rng.standard_normal((8, 2)), np.arange(8) % 2, 0.05
    start = np.zeros((2, 2))
    for _ in range(2000):  # to a neighbourhood in which Newton's method converges
        start -= gradient_step(X, labels, l2, start)
    best = softmax_minimiser(X, labels, l2, start)
    witness = np.array(best.tolist(), dtype=np.float64)
    problem = Softmax(X, labels, l2, witness)
    lowest = softmax_reference(X, labels, l2, best)[0]
    for far in (20.0, 1.0, 1e-3, 1e-9, 0.0):
        value = witness + far * rng.standard_normal((2, 2))
        W1, W2 = np.concatenate([value, np.zeros((2, 1))], axis=1), np.eye(2, 3)
        W = product_of_factors(W1, W2)
        loss, gradient, _ = softmax_reference(X, labels, l2, exact(value))
        assert inside(problem._loss(W), loss)
        assert norm(gradient) <= problem._gradient_norm(W)
        assert loss - lowest <= problem.gap_upper(W)
        low, _ = problem.gap_exact(product_of_factors(W1, W2), partial(exact_product, W1, W2))
        assert low is None or float(low) <= loss - lowest
        assert inside(problem.distance(W), norm(exact(value) - best))
    p = problem._probabilities(product_of_factors(np.eye(2), 20.0 * np.eye(2)))
    logits = exact(X) * exact(20.0 * np.eye(2))
    truth = mpmath.matrix(8, 2)
    for i in range(8):
        total = mpmath.exp(logits[i, 0]) + mpmath.exp(logits[i, 1])
        truth[i, 0], truth[i, 1] = mpmath.exp(logits[i, 0]) / total, mpmath.exp(logits[i, 1]) / total
    assert norm(exact(p.value) - truth) <= p.error


def gradient_step(X: np.ndarray, labels: np.ndarray, l2: float, W: np.ndarray) -> np.ndarray:
    """A step of gradient descent in floats."""
    logits = X @ W
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(X)), labels] -= 1.0
    smoothness = np.linalg.norm(X, 2) ** 2 / (2 * len(X)) + l2
    return (X.T @ p / len(X) + l2 * W) / smoothness


def test_the_report_names_both_sides(good_run: GoodRun) -> None:
    report = check(good_run("drift"))
    text = "\n".join(lines(report, verbose=True))
    assert "enclosure" in text and " <= " in text and "margin 10^" in text
    assert len(text.splitlines()) == len(report.lines) + len(report.notes) + 2
    short = list(lines(report))
    assert len(short) < len(text.splitlines()) and any(
        "stored weights lie under the guaranteed bound" in x for x in short
    )


def test_output_that_fails_is_no_verdict(good_run: GoodRun, tmp_path: Path) -> None:
    """An exit code of 1 would say that the run is rejected."""
    program = [sys.executable, "-m", "surefoot_check"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONIOENCODING": "ascii"}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        result = subprocess.run(
            [*program, str(good_run("drift"))],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert (result.returncode, result.stderr) == (141, "")
    shutil.copytree(good_run("drift"), tmp_path / "ü")
    result = subprocess.run([*program, str(tmp_path / "ü")], capture_output=True, env=environment, check=False)
    assert result.returncode == 0 and rb"\xfc" in result.stdout
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as full:
            result = subprocess.run(
                [*program, str(tmp_path / "ü")],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                check=False,
            )
        assert result.returncode == 2 and "No space left" in result.stderr


def test_a_rate_so_slow_that_counts_exceed_64_bits(tmp_path: Path) -> None:
    X = torch.diag(torch.tensor([1.0, 1e-6], dtype=torch.float64))
    run = descend(tmp_path / "run", sf.SquaredLoss(X, torch.full((2, 2), 1e3, dtype=torch.float64)), "drift")
    assert run.certificate.holds and run.certificate.iterations_to(1e-10) > 2**63
    report = check(tmp_path / "run")
    assert report.outcome is Outcome.ACCEPT, failures(report)
