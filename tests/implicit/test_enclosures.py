"""The checker's enclosures for implicit networks: equilibria, norms, masses, and run directories."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot._core.certificate import Certificate, CertificateStatus, Condition, publish
from surefoot._core.evaluation import evaluate
from surefoot._core.plans import PLANS
from surefoot._implicit import choices as chosen_by
from surefoot_check.arrays import FormatError, digest
from surefoot_check.checker import check
from surefoot_check.implicit import enclosures as rigorous
from surefoot_check.implicit.constants import DIRECTIONS, MASSES, NODES, node_places
from surefoot_check.implicit.quantities import base_quantities
from surefoot_check.problems import Samples
from surefoot_check.rigor.gram import cheap_norm, extreme_bounds, norm_bounds
from surefoot_check.verdict import Outcome

Array = np.ndarray
Weights = dict[str, Array]
DIGITS = 40


def drawn(
    seed: int, N: int, d: int, m: int, *, q: float = 0.5, identity: bool = False, p: int = 1, with_b: bool = True
) -> tuple[Samples, Weights]:
    """Random data and weights with γ‖A‖ = q."""
    g = np.random.default_rng(seed)
    A = 3.0 * np.eye(m) if identity else g.standard_normal((m, m)) / math.sqrt(m)
    weights = {
        "A": A,
        "W": g.standard_normal((d, m)),
        "b": g.standard_normal((m, p)) * with_b,
        "gamma": np.array(q / np.linalg.norm(A, 2)),
    }
    return Samples(g.standard_normal((N, d)), g.standard_normal((N, p))), weights


def exact_equilibrium(problem: Samples, weights: Weights) -> Any:
    """Z in high precision: the map until it stands still."""
    relu = lambda M: M.apply(lambda x: max(x, mpmath.mpf(0)))  # noqa: E731
    A, gamma = mpmath.matrix(weights["A"].tolist()), mpmath.mpf(float(weights["gamma"]))
    Phi = relu(mpmath.matrix(problem.X.tolist()) * mpmath.matrix(weights["W"].tolist()))
    Z = mpmath.matrix(rigorous.equilibrium(problem, weights).value.tolist())
    for _ in range(2000):
        following = relu(gamma * (Z * A) + Phi)
        change = mpmath.norm(following - Z)
        Z = following
        if change < mpmath.mpf(10) ** (5 - DIGITS):
            return Z
    raise AssertionError("no convergence")


def rotation() -> tuple[Samples, Weights]:
    """The diagonal split cycles with period 2 on it, while γ‖A‖ < 1."""
    A = np.array([[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, -1.0]])
    weights = {"A": A, "W": np.eye(3) + 0.3, "b": np.ones((3, 1)), "gamma": np.array(0.95)}
    return Samples(np.array([[1.0, 0.5, 2.0], [0.2, 3.0, -1.0]]), np.ones((2, 1))), weights


def negative() -> tuple[Samples, Weights]:
    """No entry of A is positive."""
    problem, weights = drawn(4, 4, 3, 6)
    A = -np.abs(weights["A"])
    return problem, {**weights, "A": A, "gamma": np.array(0.9 / np.linalg.norm(A, 2))}


def nearly_parallel() -> tuple[Samples, Weights]:
    """Two rows an angle of 1e-8 apart: the square of σ_min is below the rounding of the Gram matrix."""
    problem, weights = drawn(0, 4, 3, 8)
    problem.X[1] = problem.X[0] + 1e-8 * problem.X[2]
    return problem, weights


def orthogonal() -> tuple[Samples, Weights]:
    """One eigenvalue of multiplicity 4."""
    weights = {"A": np.eye(4), "W": np.eye(4), "b": np.zeros((4, 1)), "gamma": np.array(0.5)}
    return Samples(np.eye(4), np.array([[1.0], [-2.0], [0.5], [0.0]])), weights


INSTANCES: dict[str, Callable[[], tuple[Samples, Weights]]] = {
    "generic": lambda: drawn(0, 4, 3, 6),
    "identity": lambda: drawn(1, 4, 3, 6, identity=True),
    "near one": lambda: drawn(2, 3, 2, 5, q=0.97),
    "two outputs": lambda: drawn(3, 4, 3, 6, p=2),
    "rotation": rotation,
    "negative": negative,
    "nearly parallel": nearly_parallel,
    "orthogonal": orthogonal,
    "one sample": lambda: drawn(1, 1, 3, 5),
    "square": lambda: drawn(5, 5, 6, 5),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_equilibrium_residual_and_gap_contain_the_exact_ones(name: str) -> None:
    problem, weights = INSTANCES[name]()
    with mpmath.workdps(DIGITS):
        exact = exact_equilibrium(problem, weights)
        Z = rigorous.equilibrium(problem, weights)
        error = mpmath.norm(mpmath.matrix(Z.value.tolist()) - exact)
        assert error <= Z.error
        assert Z.error <= 1e-11 * np.linalg.norm(Z.value)
        r = exact * mpmath.matrix(weights["b"].tolist()) - mpmath.matrix(problem.Y.tolist())
        found = rigorous.residual(problem, weights, Z)
        assert mpmath.norm(mpmath.matrix(found.value.tolist()) - r) <= found.error
        loss = mpmath.norm(r) ** 2 / 2
        upper = rigorous.gap_upper(problem, weights)
        assert loss <= upper <= loss * (1 + mpmath.mpf(1e-10))
        low, high = rigorous.gap_exact(problem, weights)
        reference = mpmath.mpf(10) ** (6 - DIGITS)  # what the exact value itself is known to
        below, above = (mpmath.mpf(end.str(DIGITS, radius=False)) for end in (low.lower(), high.upper()))
        assert below <= loss + reference and loss - reference <= above
        assert float(high.upper()) <= float(loss) * (1.0 + 1e-12)


def test_near_interpolation_the_exact_gap_is_sharper() -> None:
    """Targets are the outputs: the gap is rounding only, and no lower bound exists."""
    problem, weights = drawn(5, 4, 3, 8)
    outputs = rigorous.equilibrium(problem, weights).value @ weights["b"]
    fitted = Samples(problem.X, outputs)
    low, high = rigorous.gap_exact(fitted, weights)
    assert low is None
    assert float(high) < 0.1 * rigorous.gap_upper(fitted, weights) < 1e-20


def test_no_enclosure_where_the_map_need_not_contract() -> None:
    problem, weights = drawn(0, 4, 3, 6, q=1.0)
    weights["gamma"] = weights["gamma"] * 1.01
    assert rigorous.equilibrium(problem, weights).error == math.inf
    assert rigorous.gap_upper(problem, weights) == math.inf
    assert "initial_gap" not in base_quantities(problem, weights, {})


# -- norms -------------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    columns=st.integers(1, 6),
    kind=st.sampled_from(["random", "graded", "singular", "diagonal", "large", "small", "tiny"]),
)
@settings(max_examples=80, deadline=None)
def test_extreme_singular_values_are_enclosed(seed: int, rows: int, columns: int, kind: str) -> None:
    g = np.random.default_rng(seed)
    M = g.standard_normal((rows, columns))
    if kind == "graded":
        M = M * 10.0 ** -np.arange(0.0, 2.0 * columns, 2.0)
    elif kind == "singular":
        M[:, -1] = M[:, 0]
    elif kind == "diagonal":
        M = np.diag(g.standard_normal(rows))
    elif kind in ("large", "small", "tiny"):
        M = M * {"large": 1e49, "small": 1e-49, "tiny": 1e-290}[kind]
    with mpmath.workdps(60):
        values = mpmath.svd_r(mpmath.matrix(M.tolist()), compute_uv=False)
        exact_norm, exact_min = values[0], values[len(values) - 1]
    (low, high), (norm_low, norm_high) = extreme_bounds(M)
    if M.shape[0] > M.shape[1]:
        assert (low, high) == (0.0, 0.0)
    else:
        assert low <= exact_min <= high
        assert low >= float(exact_min) * (1.0 - 1e-6) - 1e-7 * float(exact_norm)
    assert norm_low <= exact_norm <= norm_high
    assert norm_high <= float(exact_norm) * (1.0 + 1e-8)
    cheap_low, cheap_high = norm_bounds(M)
    assert cheap_low <= exact_norm <= cheap_high <= float(exact_norm) * (1.0 + 1e-8)
    assert cheap_norm(M) >= exact_norm


def test_zero_matrix() -> None:
    assert extreme_bounds(np.zeros((2, 3))) == ((0.0, 0.0), (0.0, 0.0))
    assert norm_bounds(np.zeros((2, 3))) == (0.0, 0.0)


@pytest.mark.parametrize("name", INSTANCES)
def test_base_quantities_contain_the_exact_ones(name: str) -> None:
    problem, weights = INSTANCES[name]()
    found = base_quantities(problem, weights, {})
    with mpmath.workdps(DIGITS):
        Z = mpmath.svd_r(exact_equilibrium(problem, weights), compute_uv=False)
        matrices = {"X": problem.X, "A": weights["A"], "W": weights["W"], "b": weights["b"]}
        exact = {f"norm_{k}": mpmath.svd_r(mpmath.matrix(v.tolist()), compute_uv=False)[0] for k, v in matrices.items()}
        exact |= {"sigma_min_Z": Z[len(Z) - 1], "norm_Z": Z[0], "frobenius_X": mpmath.norm(problem.X.ravel().tolist())}
        for quantity, value in exact.items():
            low, high = found[quantity]
            assert low <= value <= high, quantity
            published = low if DIRECTIONS[quantity] == "lower" else high
            assert published == pytest.approx(float(value), rel=1e-6)


# -- masses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INSTANCES)
def test_masses_and_kappa_are_those_of_one_matrix(name: str) -> None:
    """Ĝ is built in high precision from the very witness; κ and every mass bound what they claim of it."""
    problem, weights = INSTANCES[name]()
    at = rigorous.Measured(problem, weights)
    node_min, node_max = chosen_by.nodes(at)
    found = at.spectral(node_min, node_max)
    values, U = at.eigenvectors
    places = node_places(node_min, node_max)
    assert places is not None
    with mpmath.workdps(DIGITS):
        witness = mpmath.matrix(U.tolist())
        defect = witness.T * witness - mpmath.eye(len(U))
        polar = witness * (mpmath.eye(len(U)) - defect / 2 + 3 * defect * defect / 8)  # of a defect of 1e-16
        clipped = [min(max(mpmath.mpf(float(v)), mpmath.mpf(node_min)), mpmath.mpf(node_max)) for v in values]
        Z = exact_equilibrium(problem, weights)
        difference = polar * mpmath.diag(clipped) * polar.T - Z * Z.T
        assert mpmath.svd_r(difference, compute_uv=False)[0] <= found["kappa"][1] <= 1e-10 * node_max
        r = Z * mpmath.matrix(weights["b"].tolist()) - mpmath.matrix(problem.Y.tolist())
        components = polar.T * r
        squares = [sum(components[i, j] ** 2 for j in range(r.cols)) for i in range(len(U))]
        nodes = [mpmath.mpf(place) for place in places]
        masses = [mpmath.mpf(0)] * NODES
        for value, square in zip(clipped, squares, strict=True):
            j = min(sum(node <= value for node in nodes) - 1, NODES - 2)
            weight = (value - nodes[j]) / (nodes[j + 1] - nodes[j])
            masses[j] += (1 - weight) * square
            masses[j + 1] += weight * square
        for label, mass in zip(MASSES, masses, strict=True):
            assert mass <= found[label][1] <= mass * (1 + mpmath.mpf(1e-9)) + mpmath.mpf(1e-12) * mpmath.fsum(squares)


@pytest.mark.parametrize("seed", [1, 3, 6])
def test_another_eigendecomposition_confirms_the_published_masses(seed: int) -> None:
    """The samples in another order: other eigenvectors, some of clustered eigenvalues, of the same matrix."""
    problem, weights = drawn(seed, 30, 5, 60, with_b=False)
    g = np.random.default_rng(seed)
    problem.X[1:8] = problem.X[0] + 0.1 * g.standard_normal((7, 5))
    at = rigorous.Measured(problem, weights)
    node_min, node_max = chosen_by.nodes(at)
    choices = {"node_min": node_min, "node_max": node_max}
    published = publish(chosen_by.widened(at.base_quantities(choices), choices), DIRECTIONS)
    order = g.permutation(30)
    other = base_quantities(Samples(problem.X[order], problem.Y[order]), weights, choices)
    for name in ("kappa", "initial_gap", *MASSES):
        assert published[name] >= other[name][1], name
    assert node_max > 3e6 * node_min  # hard enough
    total = sum(published[name] for name in MASSES)
    assert total == pytest.approx(2.0 * published["initial_gap"], rel=1e-6)


@pytest.mark.parametrize(
    ("node_min", "node_max"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1e300, 1e308), (math.nan, 1.0)]
)
def test_there_are_no_masses_at_absurd_nodes(node_min: float, node_max: float) -> None:
    problem, weights = drawn(0, 4, 3, 6)
    found = base_quantities(problem, weights, {"node_min": node_min, "node_max": node_max})
    assert "initial_gap" in found
    assert "kappa" not in found and not found.keys() & set(MASSES)


def test_the_largest_admissible_entries_do_not_overflow() -> None:
    problem, weights = drawn(0, 4, 3, 6)
    problem = rigorous.load_problem("samples", {"X": 1e49 * problem.X, "Y": 1e49 * problem.Y})
    weights = {
        "A": 1e24 * weights["A"],
        "W": 1e24 * weights["W"],
        "b": 1e24 * weights["b"],
        "gamma": weights["gamma"] / 1e24,
    }
    rigorous.read_weights(weights, problem, "file")
    found = base_quantities(problem, weights, {})
    assert "initial_gap" in found and found["sigma_min_Z"][0] > 0.0
    node_min, node_max = chosen_by.nodes(rigorous.Measured(problem, weights))
    assert set(MASSES) <= base_quantities(problem, weights, {"node_min": node_min, "node_max": node_max}).keys()


# -- run directories ---------------------------------------------------------------------------------------------------


def safetensors(arrays: dict[str, Array]) -> bytes:
    header: dict[str, Any] = {}
    body = b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        kind = {"float64": "F64", "int64": "I64", "uint8": "U8"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def certified(problem: Samples, weights: Weights, theorem: str, **choices: float) -> Certificate:
    """What a library would publish."""
    statement = PLANS[theorem].theorem
    at = rigorous.Measured(problem, weights)
    given_choices = dict(choices)
    if theorem == "implicit/spectral":
        given_choices["node_min"], given_choices["node_max"] = chosen_by.nodes(at)
    enclosures = chosen_by.widened(at.base_quantities(given_choices), given_choices)
    published = publish(enclosures, DIRECTIONS)
    sizes = rigorous.sizes(problem, weights)
    base = {name: published[name] for name in statement.base}
    quantities, conditions, schedule = evaluate(statement, {**base, **given_choices})
    arrays = {f"problem/{k}": v for k, v in (("X", problem.X), ("Y", problem.Y))}
    arrays |= {f"initial/{k}": v for k, v in weights.items()}
    return Certificate(
        system="implicit",
        theorem=theorem,
        version=statement.version,
        status=CertificateStatus.HOLDS,
        conditions=tuple(Condition.of(c) for c in conditions),
        quantities={k: float(v) for k, v in quantities.items()},
        schedule=tuple(schedule),
        optimal_value=0.0,
        rule=statement.rule,
        claims=statement.claims,
        problem={"kind": "samples", **sizes},
        arrays={name: digest(array) for name, array in arrays.items()},
    )


def write(
    directory: Path, problem: Samples, weights: Weights, certificate: Certificate, final: Weights, k: int
) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "certificate.json").write_text(certificate.to_json())
    (directory / "problem.safetensors").write_bytes(safetensors({"X": problem.X, "Y": problem.Y}))
    (directory / "initial.safetensors").write_bytes(safetensors(weights))
    owner = np.frombuffer(bytes.fromhex(certificate.digest), dtype=np.uint8)
    sealed = {**final, "iteration": np.array(k), "certificate": owner}
    (directory / "final.safetensors").write_bytes(safetensors(sealed))


def instance(theorem: str) -> tuple[Samples, Weights, Certificate]:
    problem, weights = drawn(7, 6, 4, 24, with_b=False)
    beta = 1e6 if theorem in ("implicit/gd", "implicit/flow") else 300.0
    weights["A"], weights["W"] = beta * weights["A"], beta * weights["W"]
    weights["gamma"] = weights["gamma"] / beta
    choices = {} if beta == 1e6 else {"tau": 1e-3, "delta": 1.01}
    return problem, weights, certified(problem, weights, theorem, **choices)


def trained(problem: Samples, weights: Weights, eta: float, steps: int) -> Weights:
    """Gradient steps of the output weights with frozen features, which the theorems admit."""
    Z, b = rigorous.equilibrium(problem, weights).value, weights["b"]
    for _ in range(steps):
        b = b - eta * (Z.T @ (Z @ b - problem.Y))
    return {**weights, "b": b}


@pytest.mark.parametrize("theorem", ["implicit/spectral", "implicit/measured", "implicit/gd"])
def test_checker_accepts_a_run(tmp_path: Path, theorem: str) -> None:
    problem, weights, certificate = instance(theorem)
    assert certificate.holds
    eta = certificate.step_size
    assert eta is not None
    write(tmp_path, problem, weights, certificate, trained(problem, weights, eta, 40), 40)
    report = check(tmp_path)
    assert report.outcome is Outcome.ACCEPT, [str(line) for line in report.lines]
    assert sum("mass" in line.name for line in report.lines) == (theorem == "implicit/spectral")
    assert len(report.lines) < 40


def test_flow_is_not_a_guarantee_of_a_run(tmp_path: Path) -> None:
    problem, weights, certificate = instance("implicit/flow")
    assert all(c.holds for c in certificate.conditions)
    write(tmp_path, problem, weights, certificate, weights, 0)
    report = check(tmp_path)
    assert report.outcome is Outcome.REJECT
    assert "of which this checker proves nothing" in report.lines[0].name


@pytest.mark.parametrize(
    "tampering", ["mass", "kappa", "node_min", "gamma", "sigma", "targets", "gamma trained", "final", "negative radius"]
)
def test_checker_accepts_no_tampered_run(tmp_path: Path, tampering: str) -> None:
    problem, weights, _ = instance("implicit/spectral")
    theorem = PLANS["implicit/measured" if tampering == "sigma" else "implicit/spectral"].theorem
    certificate = instance(theorem.id)[2]
    q = dict(certificate.quantities)
    final, k = weights, 0
    if tampering == "mass":
        q[max(MASSES, key=lambda name: q[name])] *= 1.0 - 1e-5
    elif tampering == "kappa":
        q["kappa"] *= 0.1
    elif tampering == "node_min":  # claims a better conditioned matrix; κ would have to be larger
        q["node_min"] *= 1.5
    elif tampering == "gamma":
        q["gamma"] *= 1.0 - 1e-8
    elif tampering == "sigma":
        q["sigma_min_Z"] *= 1.0 + 1e-6
    elif tampering == "negative radius":
        q["f"] = -q["f"]
    base = {name: q[name] for name in (*theorem.base, *theorem.choices)}
    again = {**base, **theorem.derived(base)}
    conditions = tuple(Condition.of(c) for c in theorem.conditions(again))
    changed = Certificate(
        system="implicit",
        theorem=theorem.id,
        version=1,
        status=CertificateStatus.HOLDS,
        conditions=conditions,
        quantities={name: float(value) for name, value in again.items()},
        schedule=tuple(PLANS[theorem.id].schedule(base)) if tampering != "negative radius" else certificate.schedule,
        optimal_value=0.0,
        rule=theorem.rule,
        claims=theorem.claims,
        problem=certificate.problem,
        arrays=dict(certificate.arrays),
    )
    if tampering == "targets":
        problem = Samples(problem.X, 1.0001 * problem.Y)
        changed.arrays["problem/Y"] = digest(problem.Y)  # type: ignore[index]
    elif tampering == "gamma trained":
        final, k = {**weights, "gamma": weights["gamma"] * 0.5}, 3
    elif tampering == "final":
        final, k = weights, 50  # nothing was learned in 50 iterations
    write(tmp_path, problem, weights, changed, final, k)
    report = check(tmp_path)
    assert report.outcome is not Outcome.ACCEPT


@pytest.mark.parametrize("level", [1.0, 1e10])
def test_the_first_block_claims_no_more_than_the_model(tmp_path: Path, level: float) -> None:
    """The fall on it, and the level that targets are relative to, are claims like any other: here they promise a relative
    gap of 1e-3 after one iteration. The other levels make room for what has to stay consistent."""
    problem, weights, certificate = instance("implicit/spectral")
    first, *rest = certificate.schedule
    raised = [replace(s, level=s.level * (1.0 + 1e-6 * (1.0 + 1e-3 * i))) for i, s in enumerate(rest)]
    kept = raised[0].level / (level * first.level) * (1.0 - 1e-9) if level > 1.0 else 1e-9
    claims = (replace(first, level=level * first.level, decrease=1.0 - kept), *raised)
    changed = replace(certificate, schedule=claims)
    assert changed.iterations_to(1e-3) == 1
    write(tmp_path, problem, weights, changed, weights, 0)
    report = check(tmp_path)
    assert report.outcome is Outcome.REJECT
    refused = [line.name for line in report.lines if line.outcome is Outcome.REJECT]
    assert refused == ["segment 0: ends above the model" if level == 1.0 else "the first level is the initial gap"]
    honest = replace(certificate, schedule=(first, *raised))
    write(tmp_path, problem, weights, honest, weights, 0)
    assert check(tmp_path).outcome is Outcome.ACCEPT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", np.array(0.0)),
        ("gamma", np.array([0.1])),
        ("A", np.ones((6, 5))),
        ("W", np.ones((2, 6))),
        ("b", np.ones((6, 2))),
        ("b", np.ones(6)),
        ("A", np.full((6, 6), np.nan)),
        ("W", np.full((3, 6), 1e26)),
        ("A", np.ones((6, 6), dtype=np.float32)),
    ],
)
def test_weights_that_do_not_fit_are_refused(name: str, value: Array) -> None:
    problem, weights = drawn(0, 4, 3, 6)
    with pytest.raises(FormatError, match="file"):
        rigorous.read_weights({**weights, name: value}, problem, "file")
    del weights[name]
    with pytest.raises(FormatError, match=name):
        rigorous.read_weights(weights, problem, "file")


def test_each_system_refuses_the_other_kind_of_problem() -> None:
    from surefoot_check.linear_resnet import enclosures as linear_resnet
    from surefoot_check.two_layer.enclosures import ENCLOSURES as two_layer

    samples = {"X": np.ones((2, 1)), "Y": np.ones((2, 1))}
    for system in (two_layer, linear_resnet):
        with pytest.raises(FormatError, match="do not solve a problem of kind 'samples'"):
            system.load_problem("samples", samples)
    with pytest.raises(FormatError, match="do not solve a problem of kind 'squared'"):
        rigorous.load_problem("squared", {**samples, "optimum": np.ones((1, 1))})
    with pytest.raises(FormatError, match="fit together"):
        rigorous.load_problem("samples", {"X": np.ones((2, 1)), "Y": np.ones((3, 1))})
