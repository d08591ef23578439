"""Logistic regression: milliseconds and products with M to a relative gap of 1e-4 and 1e-8, ``LogisticSolver`` beside L-BFGS,
FISTA, scikit-learn, skglm and celer, and a trained ``StepSizeNet``; one problem, batches of 32, and scikit-learn's breast cancer
data.

Times are minima of interleaved repeats, of the processor in one thread. Ours checks the arrays and stops at its certificate, the
duality gap; "told when to stop" is ours at its first accurate iterate. L-BFGS, FISTA and the network are stopped there too, which
they cannot know; of the others each takes the loosest of its tolerances that is accurate.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from report import Report, Shown, parser

from surefoot.learned import Logistic, LogisticSolver, train
from surefoot.nn import StepSizeNet

ACCURACIES = (1e-4, 1e-8)
FULL, SMOKE = ((250, 500), (500, 2000), (2000, 100)), ((20, 30),)
"""Rows and columns."""
PEERS = ("skglm", "celer")
TOLERANCES = tuple(10.0**-k for k in range(1, 15))
LIMIT = 20_000
"""Iterations of FISTA and L-BFGS."""
SLOW = 1.0
"""Seconds of a problem after which a method is given up."""
BESIDE_ONE = ("scikit-learn saga", "celer")
"""Peers that are beside ours on one problem alone: a batch takes them minutes."""
SEED = 3

Array = np.ndarray[Any, np.dtype[np.float64]]


class TooSlowError(Exception):
    """A method is given up."""


@dataclass(frozen=True)
class Problem:
    """One problem in numpy, with its minimum and the Lipschitz constant of its gradient, which FISTA gets for nothing."""

    M: Array
    labels: Array
    lam: float
    l2: float
    best: float
    beta: float

    @classmethod
    def all_of(cls, p: Logistic) -> list[Problem]:
        rest = (p.lam, p.l2, p.optimal_value, p.smoothness)
        parameters = zip(*(values.tolist() for values in rest), strict=True)
        return [cls(M, s, *rest) for M, s, rest in zip(p.M.numpy(), p.Y.numpy(), parameters, strict=True)]

    def smooth(self, z: Array) -> tuple[float, Array]:
        """The loss and its derivative in z = Mx."""
        margin = -self.labels * z
        small = np.exp(-np.abs(margin))
        theta = np.where(margin >= 0.0, 1.0, small) / (1.0 + small)
        return float((np.maximum(margin, 0.0) + np.log1p(small)).sum()), -self.labels * theta

    def value(self, x: Array, z: Array) -> float:
        return self.smooth(z)[0] + self.lam * float(np.abs(x).sum()) + 0.5 * self.l2 * float(x @ x)

    def accurate(self, value: float, accuracy: float) -> bool:
        return value <= (1.0 + accuracy) * self.best


def fista(p: Problem, accuracy: float) -> float:
    """FISTA in numpy with steps 1/β, restarted where its momentum points uphill; products."""
    step = 1.0 / p.beta
    x = y = np.zeros(p.M.shape[1])
    z = z_y = np.zeros(p.M.shape[0])
    tau, begin = 1.0, time.process_time()
    for t in range(1, LIMIT + 1):
        v = y - step * (p.smooth(z_y)[1] @ p.M)
        new = np.sign(v) * np.maximum(np.abs(v) - step * p.lam, 0.0) / (1.0 + step * p.l2)
        z_new = p.M @ new
        if p.accurate(p.value(new, z_new), accuracy):
            return 2.0 * t
        if time.process_time() - begin > SLOW:
            break
        tau = 1.0 if (y - new) @ (new - x) > 0.0 else tau
        following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * tau * tau))
        weight = (tau - 1.0) / following
        y, z_y = new + weight * (new - x), z_new + weight * (z_new - z)
        x, z, tau = new, z_new, following
    raise TooSlowError


def lbfgs(p: Problem, accuracy: float) -> float:
    """scipy's L-BFGS-B; products."""
    from scipy.optimize import minimize

    evaluations = 0

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal evaluations
        evaluations += 1
        loss, slopes = p.smooth(p.M @ x)
        value = loss + 0.5 * p.l2 * float(x @ x)
        if p.accurate(value, accuracy):
            raise StopIteration
        return value, slopes @ p.M + p.l2 * x

    try:
        options = {"maxiter": LIMIT, "maxfun": LIMIT, "ftol": 0.0, "gtol": 0.0, "maxcor": 10}
        minimize(evaluate, np.zeros(p.M.shape[1]), jac=True, method="L-BFGS-B", options=options)
    except StopIteration:
        return 2.0 * evaluations
    raise TooSlowError


def fitted(make: Callable[[Problem, float], Any], p: Problem, accuracy: float, tolerances: dict[Any, float]) -> float:
    """An estimator at its loosest accurate tolerance, which is looked for the first time; no products are known."""
    key = id(p), accuracy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a loose tolerance does not converge; options that will be renamed
        if key in tolerances:
            make(p, tolerances[key]).fit(p.M, p.labels)
            return math.nan
        if not tolerances:
            make(p, 1e-3).fit(p.M, p.labels)  # compiles
        for tolerance in TOLERANCES:
            begin = time.process_time()
            x = make(p, tolerance).fit(p.M, p.labels).coef_.ravel()
            if p.accurate(p.value(x, p.M @ x), accuracy):
                tolerances[key] = tolerance
                return math.nan
            if time.process_time() - begin > SLOW:
                break
    raise TooSlowError


def estimators(report: Report, sparse: bool) -> dict[str, Callable[[Problem, float], Any]]:
    """Of the packages that are installed; columns are copied to their order in memory by the estimator itself."""
    from sklearn.linear_model import LogisticRegression

    def scikit_learn(solver: str, p: Problem, tolerance: float) -> Any:
        penalty, weight = ("l1", p.lam) if sparse else ("l2", p.l2)
        return LogisticRegression(
            penalty=penalty, C=1.0 / weight, solver=solver, tol=tolerance, fit_intercept=False, max_iter=LIMIT
        )

    names = (
        ("liblinear",)
        if report.smoke and sparse
        else ("liblinear", "saga")
        if sparse
        else ("lbfgs", "newton-cholesky", "liblinear")
    )
    made: dict[str, Callable[[Problem, float], Any]] = {
        f"scikit-learn {name}": partial(scikit_learn, name) for name in names
    }
    if sparse and report.has("skglm"):
        from skglm import SparseLogisticRegression  # pyright: ignore[reportMissingImports]

        made["skglm"] = lambda p, tolerance: SparseLogisticRegression(
            alpha=p.lam / len(p.labels), tol=tolerance, fit_intercept=False
        )
    if sparse and report.has("celer"):
        from celer import LogisticRegression as Celer  # pyright: ignore[reportMissingImports]

        made["celer"] = lambda p, tolerance: Celer(C=1.0 / p.lam, tol=tolerance, fit_intercept=False, max_iter=1000)
    return made


def ours(batch: Logistic, accuracy: float) -> float:
    """Products, mean over the batch, which is made anew: nothing is kept from an earlier call."""
    found = LogisticSolver().solve(Logistic(batch.M, batch.Y, batch.lam, batch.l2), tolerance=accuracy)
    assert all(status == "solved" for status in found.statuses)
    return float(found.products[-1].mean())


def ours_told(batch: Logistic, accuracy: float, lengths: dict[float, int]) -> float:
    """Products until the first iterate at which every problem is accurate, whose number is looked for the first time."""
    if accuracy not in lengths:
        reached = LogisticSolver().solve(batch).objectives <= (1.0 + accuracy) * batch.optimal_value
        lengths[accuracy] = int(reached.all(1).nonzero()[0])
    found = LogisticSolver().solve(Logistic(batch.M, batch.Y, batch.lam, batch.l2), lengths[accuracy])
    return float(found.products[-1].mean())


def network(net: StepSizeNet, batch: Logistic, accuracy: float) -> float:
    """Products of a trained network until every problem is accurate."""
    x, done, best = batch.start(), 0, batch.optimal_value
    begin = time.process_time()
    while time.process_time() - begin < SLOW:
        solution = net.solve(batch, 50, x)
        reached = (solution.objectives <= (1.0 + accuracy) * best).all(1).nonzero()
        if len(reached):
            return 2.0 * (done + int(reached[0]))
        x, done = solution.solution, done + 50
    raise TooSlowError


def times(methods: dict[str, Callable[[], float]], repeats: int) -> dict[str, tuple[float, float]]:
    """Least seconds, and products, of each; infinite where one was given up."""
    kept: dict[str, tuple[float, float]] = {}
    for turn in range(repeats + 1):  # the first compiles, and finds tolerances
        for name, method in methods.items():
            if turn and math.isinf(kept[name][0]):
                continue
            begin = time.process_time()
            try:
                products = method()
            except TooSlowError:
                kept[name] = math.inf, math.nan
                continue
            taken = time.process_time() - begin
            kept[name] = (min(kept[name][0], taken) if turn > 1 else taken), products
    return kept


def measured(
    report: Report, batch: Logistic, sparse: bool, accuracy: float, net: StepSizeNet | None, repeats: int
) -> list[list[object]]:
    """Rows: method, ms a problem, times ours, products."""
    problems = Problem.all_of(batch)
    tolerances: dict[str, dict[Any, float]] = {}

    def looped(method: Callable[[Problem, float], float]) -> Callable[[], float]:
        return lambda: float(np.mean([method(p, accuracy) for p in problems]))

    lengths: dict[float, int] = {}
    methods: dict[str, Callable[[], float]] = {"LogisticSolver": lambda: ours(batch, accuracy)}
    if len(problems) == 1:
        methods["LogisticSolver, told when to stop"] = lambda: ours_told(batch, accuracy, lengths)
    if not sparse:
        methods["scipy L-BFGS"] = looped(lbfgs)
    for name, make in estimators(report, sparse).items():
        if len(problems) > 1 and name in BESIDE_ONE:
            continue
        known = tolerances.setdefault(name, {})
        methods[name] = looped(lambda p, a, make=make, known=known: fitted(make, p, a, known))
    if len(problems) == 1:
        methods["FISTA, restarted (numpy)"] = looped(fista)
    if net is not None:
        methods["StepSizeNet"] = lambda: network(net, batch, accuracy)
    found = times(methods, repeats)
    least = found["LogisticSolver"][0]
    return [
        [
            name,
            Shown(1e3 * seconds / len(problems), "{:.2f}") if math.isfinite(seconds) else "-",
            Shown(seconds / least, "{:.1f}") if math.isfinite(seconds) else "-",
            Shown(products, "{:.0f}") if math.isfinite(products) else "-",
        ]
        for name, (seconds, products) in found.items()
    ]


def penalised(p: Logistic, share: float | None) -> Logistic:
    """λ a share of the least one for which 0 is optimal; without a share μ = 1."""
    if share is None:
        return Logistic(p.M, p.Y, 0.0, 1.0)
    return Logistic(p.M, p.Y, share * 0.5 * torch.bmm(p.Y[:, None], p.M).squeeze(1).abs().amax(1))


def breast_cancer() -> Logistic:
    """569 rows of 30 columns, of mean 0 and deviation 1."""
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    M = (data.data - data.data.mean(0)) / data.data.std(0)
    return Logistic(M[None], 2.0 * data.target[None] - 1.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    asked = parser(__doc__)
    asked.add_argument("--repeats", type=int, default=3)
    asked.add_argument("--batch", type=int, default=32, help="problems of a batch")
    report = Report(asked, arguments, PEERS)
    repeats = 1 if report.smoke else report.options.repeats
    shapes = SMOKE if report.smoke else FULL
    penalties = {"λ = .1 max": 0.1, "λ = .01 max": 0.01, "μ = 1": None}
    cases = [(f"{b}x{d}", 1, Logistic.random(1, b, d, seed=SEED)) for b, d in shapes]
    b, d = shapes[0]
    count = 2 if report.smoke else report.options.batch
    cases.append((f"{count} of {b}x{d}", count, Logistic.random(count, b, d, seed=SEED + 1)))
    if not report.smoke:
        cases.append(("breast cancer", 1, breast_cancer()))
    for title, count, drawn in cases:
        rows: list[list[object]] = []
        for penalty, share in penalties.items():
            batch, net = penalised(drawn, share), None
            if title == cases[0][0]:
                training = penalised(Logistic.random(2, b, d, seed=SEED + 2), share)
                net = StepSizeNet.orthogonal(seed=0)
                train(net, training, epochs=2 if report.smoke else 10, iterations=20)
            for accuracy in ACCURACIES:
                found = measured(report, batch, share is not None, accuracy, net, 1 if count > 1 else repeats)
                rows += [[penalty, f"{accuracy:g}", *row] for row in found]
        note = "-: not accurate within a second, or no products to count. ms a problem."
        header = ["penalty", "gap", "method", "ms", "times ours", "products"]
        report.table(f"Logistic regression, {title}", header, rows, note)


if __name__ == "__main__":
    main()
