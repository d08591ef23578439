"""Adversarial hunts for a violation of the two-layer statements (docs/theorems/two-layer*.md).

Hypothesis chooses shapes, degenerate regimes and scales; `target` drives it towards the largest violation.
The inequalities are written here a second time, in numpy, from the statements; the package is not used.
"""

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, assume, given, settings, target
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]

HUNT = settings(
    max_examples=250,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
REGIMES = ("gaussian", "low rank", "near balanced", "zero block", "sparse", "orthonormal", "uneven")


def norm(a: Array) -> float:
    return float(np.linalg.norm(a, 2))


def frobenius(a: Array) -> float:
    return float(np.linalg.norm(a))


def lambda_min(a: Array) -> float:
    """λ_min(A Aᵀ), 0 when A has more rows than columns."""
    return 0.0 if a.shape[0] > a.shape[1] else float(np.linalg.svd(a, compute_uv=False)[-1] ** 2)


def sigma_last(a: Array) -> float:
    return float(np.linalg.svd(a, compute_uv=False)[-1])


def f_root(a: float, lam: float, beta: float) -> float:
    """The root p ≥ a of (p − a)(p + λ) = β², in the form without cancellation."""
    total = a + lam
    return a if beta == 0 else a + 2 * beta**2 / (total + math.hypot(total, 2 * beta))


def h_root(lam: float, beta: float) -> float:
    return (lam + math.hypot(lam, 2 * beta)) / 2


def positive_root(c1: float, c2: float, c3: float) -> float:
    """The positive root of c1 x + c2 x² + c3 x³ = 1 (c1 > 0), by bisection from below."""
    low, high = 0.0, 1 / c1
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * (c1 + middle * (c2 + middle * c3)) <= 1 else (low, middle)
    return low


@dataclass(frozen=True)
class Pair:
    """Weights W1 (n, h), W2 (m, h) and what the theorems read from them."""

    w1: Array
    w2: Array

    @property
    def product(self) -> Array:
        return self.w1 @ self.w2.T

    @property
    def imbalance(self) -> Array:
        return self.w1.T @ self.w1 - self.w2.T @ self.w2

    @property
    def s_min(self) -> float:
        return lambda_min(self.w1) + lambda_min(self.w2)

    @property
    def s_max(self) -> float:
        return norm(self.w1) ** 2 + norm(self.w2) ** 2

    def spectrum(self) -> tuple[float, float, float, float]:
        """(λ+, λ−, a, b)."""
        eigenvalues = [float(v) for v in np.linalg.eigvalsh(self.imbalance)[::-1]]
        n, m, h = self.w1.shape[0], self.w2.shape[0], self.w1.shape[1]
        a = max(eigenvalues[n - 1], 0.0) if n <= h else 0.0
        b = max(-eigenvalues[h - m], 0.0) if m <= h else 0.0
        return max(eigenvalues[0], 0.0), max(-eigenvalues[-1], 0.0), a, b

    def margins(self, beta1: float) -> tuple[float, float]:
        n, m = self.w1.shape[0], self.w2.shape[0]
        return (beta1 if n <= m else 0.0), (beta1 if m <= n else 0.0)

    def alpha1(self, beta1: float) -> float:
        lam_plus, lam_minus, a, b = self.spectrum()
        beta_n, beta_m = self.margins(beta1)
        return f_root(a, lam_minus, beta_n) + f_root(b, lam_plus, beta_m)

    def blocks(self, g: Array) -> tuple[Array, Array, Array, Array]:
        """(G1, G2, B, C) for the gradient g of the end-to-end loss."""
        g1, g2 = g @ self.w2, g.T @ self.w1
        return g1, g2, g @ self.w2 @ self.w2.T + self.w1 @ self.w1.T @ g, g @ self.product.T @ g

    def moved(self, g: Array, eta: float) -> "Pair":
        return Pair(self.w1 - eta * g @ self.w2, self.w2 - eta * g.T @ self.w1)


def weights(rng: np.random.Generator, n: int, m: int, h: int, regime: str) -> Pair:
    w1, w2 = rng.normal(size=(n, h)), rng.normal(size=(m, h))
    if regime == "low rank":
        rank = int(rng.integers(1, min(n, h) + 1))
        w1 = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, h))
    elif regime == "near balanced":
        k = min(n, m, h)
        left, right = np.linalg.qr(rng.normal(size=(n, n)))[0], np.linalg.qr(rng.normal(size=(m, m)))[0]
        inner = np.linalg.qr(rng.normal(size=(h, h)))[0]
        root = np.diag(np.exp(rng.normal(size=k)))
        noise = 10.0 ** rng.integers(-12, -1)
        w1 = left[:, :k] @ root @ inner[:, :k].T + noise * w1
        w2 = right[:, :k] @ root @ inner[:, :k].T + noise * w2
    elif regime == "zero block":
        (w1 if rng.random() < 0.5 else w2)[...] = 0
    elif regime == "sparse":
        w1 = np.rint(w1) * (rng.random((n, h)) < 0.6)
        w2 = np.rint(w2) * (rng.random((m, h)) < 0.6)
    elif regime == "orthonormal":
        basis = np.linalg.qr(rng.normal(size=(h, h)))[0]
        w1, w2 = np.resize(basis, (n, h)).copy(), np.resize(basis[::-1], (m, h)).copy()
    elif regime == "uneven":
        w1, w2 = w1 * 10.0 ** rng.uniform(-3, 3), w2 * 10.0 ** rng.uniform(-3, 3)
    return Pair(w1, w2)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Pair, np.random.Generator]:
    n, m, h = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return weights(rng, n, m, h, draw(st.sampled_from(REGIMES))), rng


def push(excess: float, label: str) -> None:
    """Tell Hypothesis how close the inequality came to failing."""
    if math.isfinite(excess):
        target(excess, label=label)


@HUNT
@given(pairs(), st.floats(-4, 1))
def test_lemma_1(case: tuple[Pair, np.random.Generator], log_eta: float) -> None:
    pair, rng = case
    g = rng.normal(size=pair.product.shape)
    eta = 10.0**log_eta / max(1.0, pair.s_max)
    g1, g2, b, c = pair.blocks(g)
    squared = frobenius(g1) ** 2 + frobenius(g2) ** 2
    unit = pair.s_max * frobenius(g) ** 2
    slack = 1e-12 * unit
    after = pair.moved(g, eta)
    scale = 1e-13 * (1 + pair.s_max) * (1 + frobenius(g)) ** 2
    np.testing.assert_allclose(after.product, pair.product - eta * b + eta**2 * c, rtol=0, atol=scale)
    assert abs(float(np.sum(g * b)) - squared) <= slack
    assert frobenius(b) ** 2 <= pair.s_max * squared + slack * pair.s_max
    assert frobenius(b) <= pair.s_max * frobenius(g) * (1 + 1e-12)
    assert frobenius(c) <= squared / 2 + slack
    assert frobenius(c) <= norm(pair.product) * norm(g) * frobenius(g) * (1 + 1e-10) + slack
    assert float(np.sum(g * c)) <= norm(g) * squared / 2 + slack * norm(g)
    assert pair.s_min * frobenius(g) ** 2 - slack <= squared <= unit + slack
    change = np.linalg.eigvalsh(after.imbalance - pair.imbalance)
    assert change[0] >= -((eta * norm(g2)) ** 2) - scale
    assert change[-1] <= (eta * norm(g1)) ** 2 + scale


@HUNT
@given(pairs())
def test_lemma_1_extremes_are_eigenvalues(case: tuple[Pair, np.random.Generator]) -> None:
    pair, _ = case
    n, m = pair.product.shape
    operator = np.kron(pair.w2 @ pair.w2.T, np.eye(n)) + np.kron(np.eye(m), pair.w1 @ pair.w1.T)
    eigenvalues = np.linalg.eigvalsh(operator)
    slack = 1e-12 * pair.s_max
    assert abs(eigenvalues[0] - pair.s_min) <= slack
    assert abs(eigenvalues[-1] - pair.s_max) <= slack


@dataclass(frozen=True)
class Smooth:
    """ℓ(W) = Σ_k φ(⟨A_k, W⟩ − y_k) with |φ''| ≤ 1, so K = ‖A‖²; differences form without cancellation."""

    kind: str
    a: Array
    shift: Array

    @property
    def smoothness(self) -> float:
        return norm(self.a) ** 2

    def gradient(self, w: Array) -> Array:
        u = self.a @ w.ravel() - self.shift
        slope = {"quadratic": u, "log-cosh": np.tanh(u), "cosine": -np.sin(u)}[self.kind]
        return (self.a.T @ slope).reshape(w.shape)

    def change(self, w: Array, delta: Array) -> float:
        u, d = self.a @ w.ravel() - self.shift, self.a @ delta.ravel()
        if self.kind == "quadratic":
            return float(np.sum(d * (u + d / 2)))
        if self.kind == "log-cosh":
            return float(np.sum(np.log1p(2 * np.sinh(d / 2) ** 2 + np.tanh(u) * np.sinh(d))))
        return float(np.sum(-2 * np.sin(u + d / 2) * np.sin(d / 2)))


def sharp_coefficients(pair: Pair, g: Array, smoothness: float) -> tuple[float, float, float]:
    s = smoothness * pair.s_max
    return s + norm(g), s * frobenius(g), smoothness * norm(pair.product) * norm(g) * frobenius(g) / 2


@HUNT
@given(pairs(), st.sampled_from(["quadratic", "log-cosh", "cosine"]), st.floats(-3, 0.8), st.floats(-2, 2))
def test_theorem_i_descent(
    case: tuple[Pair, np.random.Generator], kind: str, log_step: float, log_shift: float
) -> None:
    pair, rng = case
    w = pair.product
    a = rng.normal(size=(int(rng.integers(1, 8)), w.size))
    loss = Smooth(kind, a, a @ w.ravel() + 10.0**log_shift * rng.normal(size=len(a)))
    g, smoothness = loss.gradient(w), loss.smoothness
    g1, g2, b, c = pair.blocks(g)
    squared = frobenius(g1) ** 2 + frobenius(g2) ** 2
    assume(squared > 1e-20 * pair.s_max)
    k0, k1, k2 = sharp_coefficients(pair, g, smoothness)
    star = positive_root(k0, 1.5 * k1, 2 * k2)
    eta = 10.0**log_step * star
    delta = -eta * b + eta**2 * c
    assume(np.max(np.abs(a @ delta.ravel())) < 300)
    change = loss.change(w, delta)
    q = -eta * squared + eta**2 * (smoothness * frobenius(b) ** 2 / 2 + float(np.sum(g * c)))
    q += -(eta**3) * smoothness * float(np.sum(b * c)) + eta**4 * smoothness * frobenius(c) ** 2 / 2
    k_prime = k0 + k1 * eta + k2 * eta**2
    upper = -eta * squared + eta**2 * k_prime * squared / 2
    slack = 1e-10 * (eta * squared + eta**2 * k_prime * squared)
    push((change - q) / (eta * squared), "change against q")
    assert change <= q + slack
    assert q <= upper + slack
    if eta <= star:
        assert change <= -eta * squared / 2 + slack
    # the paper's K_t at the smallest gap that the gradient allows
    r, s = frobenius(g), smoothness * pair.s_max
    k_paper = s + r + 3 * s * r * eta + 3 * smoothness * norm(w) * r**2 * eta**2
    assert k_prime <= k_paper * (1 + 1e-12)


def check_first_critical_point(pair: Pair, x: Array, residual: Array, *, majoriser: bool) -> float:
    """φ(η) ≤ −η‖G‖²/6 up to the first critical point x1 ≥ η_*; returns −φ(x1)/(x1‖G‖²)."""
    g, smoothness = x.T @ residual, norm(x) ** 2
    g1, g2, b, c = pair.blocks(g)
    squared = frobenius(g1) ** 2 + frobenius(g2) ** 2
    assume(squared > 1e-20 * pair.s_max * frobenius(g) ** 2)
    k0, k1, k2 = sharp_coefficients(pair, g, smoothness)
    star = positive_root(k0, 1.5 * k1, 2 * k2)
    if majoriser:
        bb, bc, cc = (smoothness * float(np.sum(u * v)) for u, v in ((b, b), (b, c), (c, c)))
    else:
        xb, xc = x @ b, x @ c
        bb, bc, cc = (float(np.sum(u * v)) for u, v in ((xb, xb), (xb, xc), (xc, xc)))
    # −φ'(star·s)/‖G‖² as a polynomial in s
    quadratic = (bb + 2 * float(np.sum(g * c))) * star
    slope = np.array([-2 * cc * star**3, 3 * bc * star**2, -quadratic, squared]) / squared
    roots = np.roots(np.trim_zeros(slope, "f"))
    real = roots[np.abs(roots.imag) <= 1e-9 * np.abs(roots)].real
    first = float(real[real > 0].min())
    assert first >= 1 - 1e-9
    decrease = np.polyint(slope)
    for part in np.linspace(1 / 40, 1, 40):
        assert float(np.polyval(decrease, part * first)) / (part * first) >= 1 / 6 - 1e-9
    return float(np.polyval(decrease, first)) / first


@HUNT
@given(pairs(), st.floats(-2, 2), st.booleans())
def test_first_critical_point(case: tuple[Pair, np.random.Generator], log_gap: float, majoriser: bool) -> None:
    pair, rng = case
    n, m = pair.product.shape
    x = rng.normal(size=(int(rng.integers(1, 6)), n)) * np.exp(rng.normal(size=n))
    residual = x @ (10.0**log_gap * rng.normal(size=(n, m)))
    push(-check_first_critical_point(pair, x, residual, majoriser=majoriser), "closeness to one sixth")


@HUNT
@given(st.integers(0, 10**6), st.floats(-9, -1))
def test_first_critical_point_around_the_extremal_network(seed: int, log_size: float) -> None:
    """Diagonal networks around the one that nearly attains 1/6: the hardest neighbourhood known."""
    values = np.array([0.0606473, -0.0405539, 0.2939611, 0.1838421, -0.0648772, 0.2530211, 0.4652926, 0.2159956])
    values *= 1 + 10.0**log_size * np.random.default_rng(seed).normal(size=8)
    pair, x = Pair(np.diag(values[:2]), np.diag(values[2:4])), np.diag(values[6:])
    residual = x @ (pair.product - np.diag(values[4:6]))
    push(-check_first_critical_point(pair, x, residual, majoriser=False), "closeness to one sixth")


@HUNT
@given(pairs())
def test_theorem_3_singular_values(case: tuple[Pair, np.random.Generator]) -> None:
    pair, _ = case
    w, (lam_plus, lam_minus, a, b) = pair.product, pair.spectrum()
    scale = 1e-11 * pair.s_max
    p, q = lambda_min(pair.w1), lambda_min(pair.w2)
    beta_n, beta_m = pair.margins(sigma_last(w))
    assert a <= p + scale and b <= q + scale
    assert (p - a) * (p + lam_minus) >= lambda_min(w) - scale * pair.s_max
    assert (q - b) * (q + lam_plus) >= lambda_min(w.T) - scale * pair.s_max
    excess = (pair.alpha1(sigma_last(w)) - p - q) / max(pair.s_max, 1e-300)
    push(excess, "α1 against s−")
    assert p >= f_root(a, lam_minus, beta_n) - scale
    assert q >= f_root(b, lam_plus, beta_m) - scale
    assert norm(pair.w1) ** 2 <= h_root(lam_plus, norm(w)) + scale
    assert norm(pair.w2) ** 2 <= h_root(lam_minus, norm(w)) + scale
    if w.shape == (1, 1):
        assert abs(excess) <= 1e-11


@HUNT
@given(pairs(), st.floats(-6, 1), st.sampled_from(REGIMES))
def test_theorem_4_perturbation(case: tuple[Pair, np.random.Generator], log_size: float, regime: str) -> None:
    start, rng = case
    n, m = start.product.shape
    other = weights(rng, n, m, start.w1.shape[1], regime)
    size = 10.0**log_size
    end = Pair(start.w1 + size * other.w1, start.w2 + size * other.w2)
    change = np.linalg.eigvalsh(end.imbalance - start.imbalance)
    up, down = max(float(change[-1]), 0.0), max(-float(change[0]), 0.0)
    scale = 1e-11 * (start.s_max + end.s_max)
    lam_plus, lam_minus, a, b = start.spectrum()
    beta1, beta2 = sigma_last(end.product), norm(end.product)
    beta_n, beta_m = start.margins(beta1)
    assert lambda_min(end.w1) >= f_root(a, lam_minus, beta_n) - down - scale
    assert lambda_min(end.w2) >= f_root(b, lam_plus, beta_m) - up - scale
    push((start.alpha1(beta1) - up - down - end.s_min) / (start.s_max + end.s_max + 1e-300), "drift")
    # the function α1 itself loses at most U + V: the credit recomputed from current weights
    assert end.alpha1(beta1) >= start.alpha1(beta1) - up - down - scale
    assert end.s_min >= start.alpha1(beta1) - 2 * max(up, down) - scale
    total = up + down
    upper = max(
        h_root(lam_plus + total, beta2) + h_root(lam_minus, beta2),
        h_root(lam_plus, beta2) + h_root(lam_minus + total, beta2),
    )
    assert end.s_max <= upper + scale
    assert upper <= h_root(lam_plus, beta2) + h_root(lam_minus, beta2) + total + scale


@st.composite
def data(draw: st.DrawFn) -> tuple[Pair, Array, Array, np.random.Generator]:
    """Weights, X of any rank with known nonzero singular values σ, and σ."""
    pair, rng = draw(pairs())
    n = pair.w1.shape[0]
    rows, rank = n + int(rng.integers(0, 4)), draw(st.integers(1, n))
    sigma = np.sort(10.0 ** rng.uniform(-draw(st.floats(0, 1.5)), 0.5, size=rank))[::-1]
    left = np.linalg.qr(rng.normal(size=(rows, rows)))[0][:, :rank]
    right = np.linalg.qr(rng.normal(size=(n, n)))[0][:, :rank]
    return pair, (left * sigma) @ right.T, sigma, rng


@HUNT
@given(data(), st.floats(-2, 1), st.floats(-2, 2))
def test_theorem_iii_contraction(
    case: tuple[Pair, Array, Array, np.random.Generator], log_eta: float, log_gap: float
) -> None:
    pair, x, sigma, rng = case
    assume(pair.s_max > 0)
    distance = 10.0**log_gap * rng.normal(size=pair.product.shape)
    minimiser = pair.product - distance
    residual = x @ distance
    g = x.T @ residual
    low, high = float(sigma[-1]) ** 2 * pair.s_min, float(sigma[0]) ** 2 * pair.s_max
    eta = 10.0**log_eta / high
    xc = x @ pair.blocks(g)[3]
    bound = max(abs(1 - eta * low), abs(1 - eta * high))
    bound += eta**2 * frobenius(xc) / frobenius(residual)
    after = x @ (pair.moved(g, eta).product - minimiser)
    ratio = frobenius(after) / frobenius(residual)
    rounding = 1e-12 * norm(x) * (norm(pair.product) + norm(minimiser)) / frobenius(residual)
    push((ratio - bound) / (1 + bound), "contraction")
    assert ratio <= bound * (1 + 1e-10) + rounding


@HUNT
@given(data(), st.floats(-2, 2))
def test_theorem_7_reduction(case: tuple[Pair, Array, Array, np.random.Generator], log_target: float) -> None:
    pair, x, sigma, rng = case
    y = 10.0**log_target * rng.normal(size=(x.shape[0], pair.w2.shape[0]))
    left, _, right = np.linalg.svd(x, full_matrices=False)
    left, right = left[:, : len(sigma)], right[: len(sigma)].T
    small, small_y = Pair(right.T @ pair.w1, pair.w2), left.T @ y
    constant = frobenius(y - left @ small_y) ** 2 / 2
    slack = 1e-11 * pair.s_max
    assert small.s_min >= pair.s_min - slack and small.s_max <= pair.s_max + slack
    full, still = pair, pair.w1 - right @ (right.T @ pair.w1)
    for _ in range(4):
        g = x.T @ (x @ full.product - y)
        small_g = sigma[:, None] * (sigma[:, None] * small.product - small_y)
        eta = 0.5 / (1e-9 + norm(g) + float(sigma[0]) ** 2 * full.s_max)
        size = 1 + full.s_max + norm(g) * math.sqrt(full.s_max)
        for block, small_block in zip(full.blocks(g)[:2], small.blocks(small_g)[:2], strict=True):
            assert abs(norm(block) - norm(small_block)) <= 1e-10 * size
            assert abs(frobenius(block) - frobenius(small_block)) <= 1e-10 * size
        loss = frobenius(x @ full.product - y) ** 2 / 2
        small_loss = frobenius(sigma[:, None] * small.product - small_y) ** 2 / 2
        assert abs(loss - small_loss - constant) <= 1e-10 * (loss + frobenius(y) ** 2)
        full, small = full.moved(g, eta), small.moved(small_g, eta)
        np.testing.assert_allclose(right.T @ full.w1, small.w1, rtol=0, atol=1e-10 * size)
        np.testing.assert_allclose(full.w2, small.w2, rtol=0, atol=1e-10 * size)
        np.testing.assert_allclose(full.w1 - right @ (right.T @ full.w1), still, rtol=0, atol=1e-10 * size)
