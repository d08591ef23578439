"""A hunt for networks that violate what their certificates state, in extended precision: ``feed-forward/local`` and ``minimum``.

Looked at are the norms at the weights, the change of the Jacobian (of the Hessian) between points of the ball in directions in
which it changes most, pieces of kinked activations on its boundary, the state test and the guaranteed gap along descent with the
floor step and with longer ones, and the distance to the fit (the minimum) that Gauss-Newton (Newton) steps lead to.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from long_networks import STEP, Long, LongNetwork, LongObjective, long
from torch import nn

import surefoot as sf

LOCAL = ("Tanh", "Sigmoid", "Softplus", "SiLU", "GELU", "ELU", "ReLU", "LeakyReLU", "Hardtanh")
SMOOTH = LOCAL[:5]
RELATIVE = 1e-9
"""By how much a number may exceed its bound: rounding, and error of differences."""
ROUNDING = 1e-17
"""Of the residual and the gradient of such small networks, in extended precision."""
STEPS = 25
"""Of gradient descent."""


@dataclass
class Count:
    """What a hunt found: how many networks, certificates, and inequalities by what they are about; and violations."""

    networks: int = 0
    certified: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    closest: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def __iadd__(self, other: Count) -> Count:
        self.networks += other.networks
        self.certified += other.certified
        self.checks += other.checks
        for name, ratio in other.closest.items():
            self.closest[name] = max(ratio, self.closest.get(name, 0.0))
        self.violations += other.violations
        return self

    def at_most(self, about: str, value: object, bound: object, rounding: float = 0.0) -> None:
        """Count value <= bound, which may be missed by rounding alone."""
        small, large = float(value), float(bound)  # pyright: ignore[reportArgumentType]
        self.checks[about] += 1
        if large > 0.0 and small > rounding:
            self.closest[about] = max(self.closest.get(about, 0.0), (small - rounding) / large)
        if not small <= large * (1.0 + RELATIVE) + rounding:
            self.violations.append(f"{about}: {small!r} > {large!r}")

    def __str__(self) -> str:
        lines = [f"{self.networks} networks, certified: {dict(self.certified)}; {len(self.violations)} violations"]
        lines += [
            f"  {about}: {count} checks, largest ratio {self.closest.get(about, 0.0):.6g}"
            for about, count in sorted(self.checks.items())
        ]
        return "\n".join([*lines, *self.violations])


def hunted(seed: int) -> Count:
    """One network: two in three with a residual that may be small enough, one in three near a minimum."""
    draw, count = np.random.default_rng(seed), Count(networks=1)
    (_minimum if seed % 3 == 0 else _fit)(draw, seed, count)
    count.violations = [f"network {seed}: {violation}" for violation in count.violations]
    return count


def _network(
    draw: np.random.Generator, names: tuple[str, ...], hidden: int, k: int, N: int
) -> tuple[nn.Sequential, LongNetwork]:
    widths = [int(draw.integers(1, 4)), *(int(draw.integers(2, 7)) for _ in range(hidden)), k]
    modules: list[nn.Module] = []
    chosen: list[str] = []
    for before, width in itertools.pairwise(widths):
        linear = nn.Linear(before, width, bias=bool(draw.integers(4)), dtype=torch.float64)
        chosen.append(str(draw.choice(names)))
        modules += [linear, getattr(nn, chosen[-1])()]
    net = nn.Sequential(*modules[:-1])
    gain = draw.uniform(0.5, 2.0)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.from_numpy(gain * draw.standard_normal(tuple(p.shape)) / np.sqrt(p.shape[-1])))
    X = draw.standard_normal((N, widths[0]))
    return net, LongNetwork(long(X), [tuple(p.shape) for p in net.parameters()], chosen[:-1])


def _weights(net: nn.Sequential) -> Long:
    return long(np.concatenate([p.detach().numpy().reshape(-1) for p in net.parameters()]))


def _norm(v: Long) -> Long:
    return np.sqrt((v * v).sum())


def _unit(v: Long) -> Long:
    return v / _norm(v)


def _short(A: Long) -> np.ndarray:
    """In double precision."""
    return np.asarray(A, dtype=np.float64)


def _singular(A: Long) -> np.ndarray:
    return np.linalg.svd(_short(A), compute_uv=False)


def _turned(change: Callable[[Long], Long], u: Long) -> Long:
    """The direction in which a bilinear map changes most, from u: ``change`` gives its matrix."""
    for _ in range(5):
        B = change(u)
        gradient = B.T @ (B @ u)
        if not _norm(gradient) > 0:
            break
        u = _unit(gradient)
    return u


def _changes(
    count: Count,
    about: str,
    matrix: Callable[[Long], Long],
    start: Long,
    ball: float,
    bound: float,
    draw: np.random.Generator,
) -> None:
    """Between points of the ball, in the directions of largest change at its centre and on its boundary."""
    u = _turned(
        lambda u: (matrix(start + STEP * ball * u) - matrix(start - STEP * ball * u)) / (2 * STEP * ball),
        _unit(long(draw.standard_normal(len(start)))),
    )
    v = _unit(long(draw.standard_normal(len(start))))
    points = [start, start + ball * u, start - ball * u, start + ball * v, start + ball * (u + v) / 2]
    for a, b in itertools.combinations(points, 2):
        count.at_most(about, _singular(matrix(a) - matrix(b))[0], bound * _norm(a - b), 1e-17)


def _fit(draw: np.random.Generator, seed: int, count: Count) -> None:
    k, N = int(draw.integers(1, 3)), int(draw.integers(1, 4))
    net, exact = _network(draw, LOCAL, int(draw.integers(1, 5)), k, N)
    start = _weights(net)
    Y = _short(exact.outputs(start) + 10.0 ** -draw.uniform(0.5, 8.0) * draw.standard_normal((N, k)))
    certificate = sf.certify(net, sf.SquaredLoss(torch.from_numpy(_short(exact.X)), torch.from_numpy(Y)))
    if not certificate.holds:
        return
    count.certified["local"] += 1
    q, y = certificate.quantities, long(Y).reshape(-1)

    def residual(theta: Long) -> Long:
        return exact.outputs(theta).reshape(-1) - y

    def reach(x: object) -> float:
        return float(q["sigma_min_J"] * x - q["lipschitz_J"] * x * x / 2)  # pyright: ignore[reportOperatorIssue]

    values = _singular(exact.jacobian(start))
    count.at_most("sigma_min_J", q["sigma_min_J"], values[-1], 1e-15 * values[0])
    count.at_most("norm_J", values[0], q["norm_J"])
    count.at_most("r0", _norm(residual(start)), q["r0"])
    _changes(count, "lipschitz_J", exact.jacobian, start, q["ball"], q["lipschitz_J"], draw)
    _pieces(count, exact, start, q["ball"], draw)
    for longest in (False, True):
        theta, before = start, np.inf
        for t in range(STEPS):
            r, J, D = residual(theta), exact.jacobian(theta), _norm(theta - start)
            V = float(_norm(r)) + reach(D)
            count.at_most("radius", D, q["radius"])
            count.at_most("V does not grow", V, min(before, q["r0"]), ROUNDING)
            count.at_most("gap of iteration t", np.square(r).sum() / 2, certificate.bound(t), ROUNDING * q["r0"])
            before = V
            steepest = 1.0 / _singular(J)[0] ** 2
            count.at_most("the floor step is short", q["eta"], steepest)
            theta = theta - (draw.uniform(q["eta"], steepest) if longest else q["eta"]) * (J.T @ r)
    theta = start
    for _ in range(60):
        r = residual(theta)
        if _norm(r) < 1e-17:
            break
        theta = theta - _norm(r) * long(np.linalg.lstsq(_short(exact.jacobian(theta)), _short(_unit(r)))[0])
    count.at_most("a fit is there", _norm(residual(theta)), 1e-15)
    count.at_most("distance of the fit", _norm(theta - start), q["radius"])


def _pieces(count: Count, exact: LongNetwork, start: Long, ball: float, draw: np.random.Generator) -> None:
    """At points of the boundary, at random and where the pre-activation nearest to a kink goes, no piece is another one."""
    if not any(activation.kinks for activation in exact.activations):
        return
    own = exact.pieces(start)
    directions = [_unit(long(draw.standard_normal(len(start)))) for _ in range(3)]
    for number, activation in enumerate(exact.activations):
        z = exact.forward(start)[1][number]
        for kink in activation.kinks:
            row, unit = np.unravel_index(int(np.abs(z - kink).argmin()), z.shape)
            slope = exact.slope_of(start, number, int(row), int(unit))
            if _norm(slope) > 0:
                directions += [_unit(slope), -_unit(slope)]
    for u in directions:
        same = all(bool((a == b).all()) for a, b in zip(own, exact.pieces(start + ball * u), strict=True))
        count.at_most("pieces that change", 0.0 if same else 1.0, 0.0)


def _minimum(draw: np.random.Generator, seed: int, count: Count) -> None:
    k, N = int(draw.integers(2, 4)), int(draw.integers(2, 8))
    net, exact = _network(draw, SMOOTH, int(draw.integers(1, 3)), k, N)
    entropy, mean = bool(draw.integers(2)), bool(draw.integers(2))
    targets = draw.integers(0, k, N) if entropy else draw.standard_normal((N, k))
    decay, how = float(10.0 ** -draw.uniform(0.0, 2.0)), "mean" if mean else "sum"
    criterion = nn.CrossEntropyLoss(reduction=how) if entropy else nn.MSELoss(reduction=how)
    loss = sf.TorchLoss(criterion, torch.from_numpy(_short(exact.X)), torch.from_numpy(targets), decay)
    sf.newton(net, loss)
    error = 10.0 ** -draw.uniform(2.0, 8.0)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.from_numpy(error * draw.standard_normal(tuple(p.shape))))
    certificate = sf.certify(net, loss)
    if not certificate.holds:
        return
    count.certified["minimum"] += 1
    q, start, objective = certificate.quantities, _weights(net), LongObjective(exact, targets, decay, mean)
    values = np.linalg.eigvalsh(_short(objective.hessian(start)))
    count.at_most("lambda_min_H", q["lambda_min_H"], values[0], 1e-8 * values[-1])
    count.at_most("norm_H", max(values[-1], -values[0]), q["norm_H"], 1e-8 * values[-1])
    count.at_most("g0", _norm(objective.gradient(start)), q["g0"], ROUNDING)
    if q["ball"] > 1e-5:  # the Hessian is one of differences
        _changes(count, "lipschitz_H", objective.hessian, start, q["ball"], q["lipschitz_H"], draw)
    theta, before = start, np.inf
    for t in range(STEPS):
        g, D = objective.gradient(theta), _norm(theta - start)
        V = float(_norm(g)) + float(q["lambda_min_H"] * D - q["lipschitz_H"] * D * D / 2)
        count.at_most("radius", D, q["radius"])
        count.at_most("V does not grow", V, min(before, q["g0"]), ROUNDING)
        count.at_most("gap of iteration t", np.square(g).sum() / 2, certificate.bound(t), ROUNDING * q["g0"])
        before, theta = V, theta - q["eta"] * g
    theta = start
    for _ in range(20):
        g = objective.gradient(theta)
        if _norm(g) < 1e-17:
            break
        theta = theta - _norm(g) * long(np.linalg.solve(_short(objective.hessian(theta)), _short(_unit(g))))
    count.at_most("a minimum is there", _norm(objective.gradient(theta)), 1e-15)
    count.at_most("distance of the minimum", _norm(theta - start), q["radius"], 1e-17 / values[0])
    count.at_most(
        "loss above the minimum",
        objective.value(start) - objective.value(theta),
        q["loss_gap"],
        1e-18 * (1.0 + float(abs(objective.value(start)))),
    )
