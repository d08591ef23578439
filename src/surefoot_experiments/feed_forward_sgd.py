"""Mini-batch SGD from a trained network: how many steps are guaranteed to lead to an exact fit, and how many do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from surefoot._core.certificate import Certificate
from surefoot._core.draws import batch_of
from surefoot._core.sgd import certify

from .feed_forward_cases import PARITY, Kind
from .result import Cell, Experiment, Finding, Progress, Table
from .sgd_runs import Networks, Outcome, run
from .summaries import median

NETWORK = Kind("100,100", "Tanh", PARITY, 50)
TARGET = 1e-7
"""Relative gap that is counted to."""
EVERY = 25
"""Steps between two looks at the iterates."""
RATE = 1e-3
"""Of Adam."""
COUNTS = "guaranteed and taken"


class Asked(NamedTuple):
    """After how many steps of Adam, of which batches, and how many iterations should be guaranteed at most; 0 for no limit."""

    step: int
    batch: int
    most: int = 0


QUESTIONS = (
    Asked(300, 8),
    Asked(300, 16),
    Asked(350, 8, 40_000),
    Asked(350, 16, 30_000),
    Asked(350, 32),
    Asked(400, 8),
    Asked(400, 16),
    Asked(600, 8),
    Asked(600, 16),
)


class Answer(NamedTuple):
    """A certificate, how near the fit is (2Λd/σ₀), and what the runs did where it holds."""

    asked: Asked
    certificate: Certificate
    nearness: float
    outcome: Outcome | None

    @property
    def guaranteed(self) -> float | None:
        """Iterations."""
        count = self.certificate.iterations_to(TARGET) if self.certificate.holds else math.inf
        return count if count < math.inf else None

    @property
    def taken(self) -> float | None:
        """In the median of the runs."""
        return None if self.outcome is None else median(self.outcome.taken)


def sgd(
    questions: Sequence[Asked] = QUESTIONS,
    runs: int = 20,
    *,
    seed: int = 0,
    progress: Progress = lambda text: None,
    kind: Kind = NETWORK,
    delta: float = 0.01,
) -> Experiment:
    """Certificates of ``feed-forward/sgd`` along a training by Adam, and runs of SGD from there."""
    answers = list(_answers(questions, runs, seed, kind, delta, progress))
    columns = (
        "Adam steps",
        "2Λd/σ",
        "batch",
        "guaranteed",
        "taken",
        "above the bound",
        "left the ball",
        "sure distance",
    )
    return Experiment(
        name="feed-forward/sgd",
        title="Mini-batch SGD to an exact fit of a trained network",
        reference="surefoot, docs/theorems/sgd.md, Theorem S (no paper)",
        tables=(Table(COUNTS, columns, tuple(map(_row, answers))),),
        figures=(),
        findings=_findings(answers, runs, delta),
        settings={
            "data": f"digits, the first {kind.rows} rows, columns standardised over those rows (constant ones dropped)",
            "targets": "1 for odd digits and -1 for even ones",
            "network": f"{kind.network} {kind.activation}, torch's initial weights in float64, seed {seed}",
            "training": f"Adam with {RATE:g} on ½‖f - Y‖² of all rows",
            "delta": delta,
            "target": f"relative gap {TARGET:g}",
            "runs": f"{runs} of each question, seeds 0 to {runs - 1}; their median, looked at every {EVERY} steps",
            "sure distance": "the largest distance from the start in the first epoch, as a part of what holds surely",
        },
    )


def _answers(
    questions: Sequence[Asked], runs: int, seed: int, kind: Kind, delta: float, progress: Progress
) -> Iterator[Answer]:
    X, Y = kind.data(None)
    net, done = kind.net(X.shape[1], Y.shape[1], seed), 0
    adam = torch.optim.Adam(net.parameters(), RATE)
    for asked in sorted(questions):
        progress(f"{asked.step} steps of Adam, batches of {asked.batch}")
        for _ in range(asked.step - done):
            adam.zero_grad()
            (0.5 * (net(X) - Y).square().sum()).backward()
            adam.step()
        done = asked.step
        yield _answer(asked, net, X, Y, runs, delta)


def _answer(asked: Asked, net: nn.Sequential, X: Tensor, Y: Tensor, runs: int, delta: float) -> Answer:
    certificate = certify(net, X, Y, asked.batch, delta=delta, target=TARGET)
    q = certificate.quantities
    nearness = 2.0 * q["lipschitz_fit"] * q["newton_step"] / q["sigma_min_J"]
    if not certificate.holds:
        return Answer(asked, certificate, nearness, None)

    def batches(t: int) -> Tensor:
        return torch.from_numpy(np.array([batch_of(each, t, len(X), asked.batch) for each in range(runs)]))

    limit = math.ceil(certificate.iterations_to(TARGET))
    goal = TARGET * certificate.initial_gap
    return Answer(
        asked,
        certificate,
        nearness,
        run(Networks(net, X, Y, runs), batches, certificate, goal, limit=limit, every=EVERY),
    )


def _row(answer: Answer) -> tuple[Cell, ...]:
    found, q = answer.outcome, answer.certificate.quantities
    sure = found.sure_distance / q["sure_distance"] if found is not None and "sure_distance" in q else None
    seen = (None, None) if found is None else (found.above, found.left)
    near = answer.nearness if math.isfinite(answer.nearness) else None
    return answer.asked.step, near, answer.asked.batch, answer.guaranteed, answer.taken, *seen, sure


def _findings(answers: Sequence[Answer], runs: int, delta: float) -> tuple[Finding, ...]:
    limited = [answer for answer in answers if answer.asked.most]
    ran = [answer for answer in answers if answer.outcome is not None]
    within = [a for a in limited if a.guaranteed is not None and a.guaranteed <= a.asked.most]
    kept = [a for a in ran if a.taken is not None and a.guaranteed is not None and a.taken <= a.guaranteed]
    broken = sum(a.outcome.above + a.outcome.left for a in ran if a.outcome is not None)
    surely = [
        a.outcome.sure_distance / a.certificate.quantities["sure_distance"]
        for a in ran
        if a.outcome is not None and "sure_distance" in a.certificate.quantities
    ]
    return (
        Finding(
            "After a short training so few steps of mini-batch SGD are guaranteed to lead to an exact fit.",
            "; ".join(f"batches of {a.asked.batch} after {a.asked.step} steps: {_count(a.guaranteed)}" for a in limited)
            or "no limit was asked for",
            len(within) == len(limited) if limited else None,
            "; ".join(f"at most {a.asked.most:,} for batches of {a.asked.batch}" for a in limited),
        ),
        Finding(
            "Runs need no more than is guaranteed.",
            f"{len(kept)} of {len(ran)} questions, in the median of {runs} runs",
            len(kept) == len(ran) if ran else None,
            f"To a relative gap of {TARGET:g}.",
        ),
        Finding(
            "No more than one run in a hundred exceeds its bound, or leaves its ball."
            if delta == 0.01
            else f"A part of at most {delta:g} of the runs exceeds its bound, or leaves its ball.",
            f"{broken} of {runs * len(ran)} runs",
            broken <= delta * runs * len(ran) if ran else None,
            "Every look at every run.",
        ),
        Finding(
            "In the first epoch all stay where they surely do, whatever the batches.",
            f"up to {max(surely):.2g} of that distance" if surely else "no run of Theorem S",
            max(surely) <= 1.0 if surely else None,
            "Every look at every run.",
        ),
    )


def _count(count: float | None) -> str:
    return "not" if count is None else f"{count:,.0f}"
