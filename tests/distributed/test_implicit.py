"""Implicit networks trained with their rows on several ranks: the numbers of one process, checkpoints, and lost ranks.

Most tests have the ranks in one process, with messages as bytes; the last ones start processes, with this file as their program.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from ranks import run_ranks

import surefoot as sf
from surefoot._core import team as teams
from surefoot._core.samples import SampleLoss
from surefoot._core.team import Job, Memory, Message, Team
from surefoot._implicit.engine import Iterate, WeightEngine
from surefoot._implicit.norms import spectral_norm_upper, stacked_upper
from surefoot._implicit.ranks import KEY, SharedEngine, SharedIterate
from surefoot._implicit.share import Weights
from surefoot._implicit.solvers import SolverMemory
from surefoot._implicit.steps import CertifiedConstant
from surefoot._implicit.system import ImplicitSystem
from surefoot.steps import BarzilaiBorwein
from surefoot_check import Outcome, check

STEP_ACCURACY = 1e-10
"""Relative accuracy to which the adjoint is solved, the coarsest of a step: so far may one step with other shares of rows differ
from that with all rows together."""


class OneProcess(Team):
    """All ranks in this process, each with a memory of its own; messages travel as bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.memories: list[Memory] = [{} for _ in range(size)]
        self.numbers = 0

    def call(self, job: Job, messages: Message | Sequence[Message]) -> list[Message]:
        own = [messages] * self.size if isinstance(messages, Message) else list(messages)
        answers = [
            job(Message.decode(m.encode()), memory).encode() for m, memory in zip(own, self.memories, strict=True)
        ]
        found = [Message.decode(answer) for answer in answers]
        self.numbers += sum(t.numel() for message in (*own, *found) for t in message.tensors.values())
        return found


@pytest.fixture
def shared_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes so many ranks share what is trained from then on; ``None``: this process alone."""

    def set_size(size: int | None) -> OneProcess | None:
        ranks = None if size is None else OneProcess(size)
        monkeypatch.setattr(teams, "_current", ranks)
        return ranks

    return set_size


def certifiable(seed: int = 0, outputs: int = 2, N: int = 7) -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(N, 5, dtype=torch.float64, generator=generator)
    X /= X.norm(dim=1, keepdim=True)
    Y = torch.randn(N, outputs, dtype=torch.float64, generator=generator)
    return sf.nn.ImplicitReLU.certifiable(X, Y, 4 * N, seed=seed), sf.SquaredLoss(X, Y)


def dense(N: int = 8, m: int = 140) -> tuple[sf.nn.ImplicitReLU, sf.SquaredLoss]:
    """A is not diagonal and m > 128: the equilibria start from a low-rank model that goes along with the run."""
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(N, 5, dtype=torch.float64, generator=generator)
    y = torch.randn(N, dtype=torch.float64, generator=generator)
    net = sf.nn.ImplicitReLU.paper(5, m, 0.4, generator=generator)
    with torch.no_grad():
        net.A += 0.02 * torch.randn(m, m, dtype=torch.float64, generator=generator)
        net.b += 0.1 * torch.randn(m, dtype=torch.float64, generator=generator)
    return net, sf.SquaredLoss(X, y)


def descend(make: Any, steps: Any, iterations: int, directory: Path | None = None, resume: bool = False) -> sf.Run:
    net, loss = make()
    return sf.descend(
        net,
        loss,
        steps,
        max_iterations=iterations,
        tolerance=0.0,
        directory=directory,
        resume=resume,
        progress=False,
    )


def differ_by_rounding(found: sf.Run, expected: sf.Run) -> None:
    """Gaps and steps differ by what so many steps of ``STEP_ACCURACY`` may add up to, weights too."""
    allowed = expected.iterations * STEP_ACCURACY
    assert found.iterations == expected.iterations > 0 and found.status is expected.status
    assert found.gaps == pytest.approx(expected.gaps, rel=allowed, abs=expected.resolution)
    assert found.step_sizes == pytest.approx(expected.step_sizes, rel=allowed)
    for name, tensor in expected.final.items():
        assert float((found.final[name] - tensor).norm()) <= allowed * float(tensor.norm())


def same(found: sf.Run, expected: sf.Run) -> None:
    assert found.rows == expected.rows
    for name, tensor in expected.final.items():
        assert torch.equal(found.final[name], tensor)


# -- the numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "steps", "iterations"), [(2, None, 20), (3, "barzilai-borwein", 20), (9, "backtracking", 6), (9, None, 6)]
)
def test_runs_equal_those_of_one_process(shared_by: Any, size: int, steps: str | None, iterations: int) -> None:
    """With 9 ranks, 2 have no rows."""
    expected = descend(certifiable, steps, iterations)
    ranks = shared_by(size)
    run = descend(certifiable, steps, iterations)
    differ_by_rounding(run, expected)
    assert ranks.numbers > 0 and ranks.memories == [{}] * size
    audits = run.audit(), expected.audit()
    assert [(line.name, line.holds, line.checked) for line in audits[0].lines] == [
        (line.name, line.holds, line.checked) for line in audits[1].lines
    ]
    assert audits[0].holds or steps is not None


def test_runs_with_the_low_rank_solver_equal_those_of_one_process(shared_by: Any) -> None:
    expected = descend(dense, "barzilai-borwein", 8)
    shared_by(3)
    differ_by_rounding(descend(dense, "barzilai-borwein", 8), expected)


def test_bounds_of_a_step_enclose_the_exact_ones() -> None:
    """Of the residual and of the output step (Lemma 5), from the bounds of three shares, against 60 digits."""
    mpmath = pytest.importorskip("mpmath")
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(5, 3, dtype=torch.float64, generator=generator)
    Y = torch.randn(5, 2, dtype=torch.float64, generator=generator)
    W, A = (torch.randn(k, 6, dtype=torch.float64, generator=generator) for k in (3, 6))
    b = torch.randn(6, 2, dtype=torch.float64, generator=generator)
    gamma, eta = 0.2 / spectral_norm_upper(A), 0.1
    loss, norm_A = SampleLoss(X, Y), spectral_norm_upper(A)
    ranks = OneProcess(3)
    at = SharedIterate.first(ranks, loss, Weights(W, A, b), gamma, norm_A, -1)
    alone = Iterate(loss, Weights(W, A, b), gamma, norm_A, SolverMemory())
    after = b - eta * at.gradient.b
    with mpmath.workdps(60):
        exact = [mpmath.matrix(v.tolist()) for v in (X, Y, W, A, b)]
        x, y, w, a, c = exact
        Phi = (x * w).apply(lambda value: max(value, mpmath.mpf(0)))
        Z = Phi
        for _ in range(90):
            Z = (mpmath.mpf(gamma) * (Z * a) + Phi).apply(lambda value: max(value, mpmath.mpf(0)))
        r = Z * c - y
        residual = torch.cat([memory[KEY].share.residual for memory in ranks.memories])
        residual_error = mpmath.norm(mpmath.matrix(residual.tolist()) - r)
        h = (c - mpmath.matrix(after.tolist())) / mpmath.mpf(eta) - Z.T * r
        assert 0.0 < residual_error <= at.residual_error
        assert 0.0 < mpmath.norm(h) <= at.output_defect(eta, after)
        assert at.measurements["residual_lower"] <= mpmath.norm(r)
    parts = [memory[KEY].share.summary for memory in ranks.memories]
    for name in ("error", "residual_upper", "output_upper", "features_upper"):
        squares = sum(Fraction(getattr(part, name)) ** 2 for part in parts)
        assert squares <= Fraction(getattr(at.summary, name)) ** 2 <= squares * Fraction(1.0 + 1e-13)
    # no looser than with all rows together, but for the solvers' choice within the same tolerance
    assert at.summary.features_upper <= 1.1 * alone.summary.features_upper
    assert at.residual_error <= 10.0 * alone.residual_error
    assert at.summary.error <= 1e-13 * float(alone.Z.norm())


def test_norms_of_blocks_bound_that_of_all() -> None:
    generator = torch.Generator().manual_seed(0)
    for scale in (1.0, 1e-160, 1e160):
        M = scale * torch.randn(9, 4, dtype=torch.float64, generator=generator)
        blocks = M.split(2)
        for order in (2, "fro"):
            whole = float(torch.linalg.matrix_norm(M, order))
            found = stacked_upper([float(torch.linalg.matrix_norm(block, order)) * (1.0 + 1e-15) for block in blocks])
            assert whole <= found and (order == 2 or found <= whole * (1.0 + 1e-13))
    assert stacked_upper([1.0, float("inf")]) == stacked_upper([1.0, float("nan")]) == float("inf")


def test_what_travels_does_not_depend_on_the_number_of_rows() -> None:
    """O(dm + m² + mp) numbers for each rank and iterate."""
    counts = []
    for N in (4, 40):
        net, loss = dense(N, 20)
        ranks = OneProcess(2)
        with _engine(net, loss, ranks) as engine:
            before = ranks.numbers
            engine.move(1e-3)
            counts.append(ranks.numbers - before)
    d, m, p = 5, 20, 1
    assert counts == [2 * (2 * (d * m + m * m + m * p) + m * p)] * 2


def _engine(net: sf.nn.ImplicitReLU, loss: sf.SquaredLoss, ranks: Team) -> SharedEngine:
    system = ImplicitSystem()
    samples = system.problem(net, loss)
    return SharedEngine(samples, Weights.of(system.reduced(net, samples)), net.gamma, ranks)


# -- endings -----------------------------------------------------------------------------------------------------------


def test_only_rows_that_are_all_dead_are_a_collapse(shared_by: Any) -> None:
    net, loss = certifiable()
    X = torch.cat([-loss.samples[0].abs(), loss.samples[0].abs()])  # type: ignore[index]
    Y = torch.cat([loss.samples[1]] * 2)  # type: ignore[index]
    net = sf.nn.ImplicitReLU(net.W.abs(), net.A, net.b, net.gamma)
    ranks = shared_by(2)
    run = sf.descend(net, sf.SquaredLoss(X, Y), 1e-9, max_iterations=2, progress=False)
    assert run.status is sf.RunStatus.MAX_ITERATIONS
    assert run.gaps[0] > run.gaps[-1] > 0.5 * float(Y[:7].square().sum())  # the dead rows stay as they are
    dead = sf.nn.ImplicitReLU(-net.W.abs(), net.A, net.b, net.gamma)
    run = sf.descend(dead, sf.SquaredLoss(X.abs(), Y), 1e-3, max_iterations=2, progress=False)
    assert (run.status, run.iterations) == (sf.RunStatus.COLLAPSED, 0)
    assert ranks.memories == [{}, {}]


def test_a_lost_equilibrium_is_noticed(shared_by: Any) -> None:
    make = lambda: (sf.nn.ImplicitReLU(net.W, net.A, net.b, 0.98 / net.norm_A()), loss)  # noqa: E731
    net, loss = dense(8, 20)
    expected = descend(make, 0.5, 50)
    assert expected.status is sf.RunStatus.ILL_POSED
    shared_by(2)
    run = descend(make, 0.5, 50)
    assert (run.status, run.iterations) == (expected.status, expected.iterations)


def test_the_ranks_keep_the_rows_of_one_engine_and_not_after_its_end() -> None:
    ranks = OneProcess(2)
    net, loss = dense(8, 20)
    with pytest.raises(ZeroDivisionError), _engine(net, loss, ranks) as old:
        with _engine(net, loss, ranks) as new:
            assert [set(memory) for memory in ranks.memories] == [{KEY}] * 2
            iterate = new.iterate
            new.move(1e-3)
            with pytest.raises(RuntimeError, match="the ranks hold another iterate than this one"):
                iterate.trial(1e-3)
            with pytest.raises(RuntimeError, match="make a new engine"):
                old.move(1e-3)
        assert ranks.memories == [{}, {}]
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), _engine(net, loss, ranks):
        raise ZeroDivisionError
    assert ranks.memories == [{}, {}]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_rows_on_a_gpu_stay_in_one_process(shared_by: Any) -> None:
    shared_by(2)
    net, loss = dense(8, 20)
    away = SampleLoss(*(x.cuda() for x in loss.samples))  # type: ignore[union-attr]
    assert isinstance(ImplicitSystem().engine(net.cuda(), away, "auto"), WeightEngine)


# -- checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(2, 2, 2), (None, 3, None)])
def test_resume_with_any_number_of_ranks(shared_by: Any, sizes: tuple[int | None, ...], tmp_path: Path) -> None:
    """With the same number bit by bit, with others up to rounding."""
    shared_by(sizes[0])
    whole = descend(dense, "barzilai-borwein", 9)
    for size, limit in zip(sizes, (3, 6, 9), strict=True):
        shared_by(size)
        run = descend(dense, "barzilai-borwein", limit, tmp_path / "run", resume=limit > 3)
    differ_by_rounding(run, whole)
    if len(set(sizes)) == 1:
        same(run, whole)


# -- processes ---------------------------------------------------------------------------------------------------------

WHOLE, STOP = 20, 8


class Signal:
    """A rule that sends signals to all of these processes before the step with the number ``STOP``."""

    def signal_at_stop(self, number: int, processes: list[int]) -> Any:
        self._calls, self._number, self._processes = 0, number, processes
        return self

    def step(self, engine: Any) -> float:
        self._calls += 1
        if self._calls == STOP:
            for process in self._processes:
                os.kill(process, self._number)
        return super().step(engine)  # type: ignore[misc]


class SignalBarzilaiBorwein(Signal, BarzilaiBorwein): ...


class SignalConstant(Signal, CertifiedConstant): ...


def main(directory: Path) -> None:
    """On rank 0 of the processes."""
    other = int((directory / "1.pid").read_text())
    descend(dense, "barzilai-borwein", WHOLE, directory / "whole")
    for number in (signal.SIGTERM, signal.SIGINT):  # the other process is to ignore both
        os.kill(other, number)
    descend(certifiable, None, WHOLE, directory / "certified")
    stopping = SignalBarzilaiBorwein().signal_at_stop(signal.SIGTERM, [os.getpid(), other])
    run = descend(dense, stopping, WHOLE, directory / "stopped")
    print(run.status.value, run.iterations, flush=True)
    shutil.copytree(directory / "stopped", directory / "resumed-alone")
    descend(dense, "barzilai-borwein", WHOLE, directory / "stopped", resume=True)
    losing = SignalConstant().signal_at_stop(signal.SIGKILL, [other])
    descend(certifiable, losing, WHOLE, directory / "lost")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[CompletedProcess[str]]]:
    """Runs of two processes, one of which is lost at the end, and how they ended."""
    directory = tmp_path_factory.mktemp("job")
    return directory, run_ranks([__file__, str(directory)], 2, 120.0)


def test_two_processes_run_as_one(job: tuple[Path, list[CompletedProcess[str]]]) -> None:
    directory, _ = job
    differ_by_rounding(sf.Run.load(directory / "whole"), descend(dense, "barzilai-borwein", WHOLE))
    run = sf.Run.load(directory / "certified")
    differ_by_rounding(run, descend(certifiable, None, WHOLE))
    assert run.certified and run.audit().holds
    assert check(directory / "certified").outcome is Outcome.ACCEPT


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(job: tuple[Path, list[CompletedProcess[str]]]) -> None:
    directory, results = job
    assert results[0].stdout.split() == ["interrupted", str(STOP)]
    whole = sf.Run.load(directory / "whole")
    same(sf.Run.load(directory / "stopped"), whole)
    differ_by_rounding(descend(dense, "barzilai-borwein", WHOLE, directory / "resumed-alone", resume=True), whole)


def test_a_rank_that_was_killed_leaves_a_checkpoint(job: tuple[Path, list[CompletedProcess[str]]]) -> None:
    directory, results = job
    assert [done.returncode for done in results] == [1, -signal.SIGKILL], results
    assert "RankLostError: " in results[0].stderr and "--resume" in results[0].stderr
    run = descend(certifiable, None, WHOLE, directory / "lost", resume=True)
    differ_by_rounding(run, sf.Run.load(directory / "certified"))
    assert run.certified and run.audit().holds
    assert check(directory / "lost").outcome is Outcome.ACCEPT


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / f"{os.environ['RANK']}.pid").write_text(str(os.getpid()))
    sf.distributed.run(lambda: main(place))
