"""``certify holdout``, and the commands that read its directory."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from surefoot.cli import main
from surefoot.nn import LayeredSteps, StepSizeNet

SMALL = ["--size", "4x8", "--problems", "60", "--coverage", "0.9", "--confidence", "0.95"]


def claimed(counts: list[int], coverage: float, confidence: float) -> int:
    """The order statistic, by scipy's binomial distribution."""
    n = len(counts)
    rank = next(r for r in range(1, n + 1) if binom.cdf(r - 1, n, coverage) >= confidence)
    return sorted(counts)[rank - 1]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with a rate, of a training that was not one."""
    directory = tmp_path_factory.mktemp("trained")
    StepSizeNet.orthogonal((2, 2, 8), (1.0, 1.95)).save(directory / "net.safetensors")
    options = {"problem": "least-squares", "size": "4x8", "seed": 7}
    (directory / "settings.json").write_text(json.dumps({"system": "step-sizes", "options": options}))
    return directory / "net.safetensors"


@pytest.fixture(scope="module")
def certified(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that no test may change, with problems of another size beside the held-out ones."""
    directory = tmp_path_factory.mktemp("holdout") / "run"
    arguments = ["certify", "holdout", "--solver", str(network), *SMALL, "--shift", "6x8", "--keep-solutions"]
    assert main([*arguments, "--out", str(directory), "--json"]) == 0
    return directory


# -- certify ---------------------------------------------------------------------------------------------------------


def test_the_claim_is_the_order_statistic(run) -> None:
    outcome = run("certify", "holdout", "--solver", "FISTA", *SMALL, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert record["iterations"] == claimed(record["counts"], 0.9, 0.95) < max(record["counts"])
    assert (record["solver"], record["holds"], record["worst_case"], record["shift"]) == ("FISTA", True, None, None)
    assert f"at most {record['iterations']} iterations of FISTA" in record["statement"]
    text = " ".join(run("certify", "holdout", "--solver", "FISTA", *SMALL).out.split())
    assert all(said in text for said in (record["statement"], *record["hypotheses"], "no difference found"))


def test_a_network_has_a_worst_case_too(run, network: Path, certified: Path) -> None:
    outcome = run("certify", "holdout", "--solver", network, *SMALL, "--shift", "6x8")
    text = " ".join(outcome.out.split())
    assert outcome.code == 0 and "not like the held-out ones" in text
    record, beside = (json.loads((certified / name).read_text()) for name in ("certificate.json", "context.json"))
    assert record["iterations"] <= record["curve"][-1][0] <= beside["bound"]
    assert f"worst case {beside['bound']:,} iterations, for each of these problems, by step-sizes/rate" in text
    assert beside["others"]["p_value"] < 1e-6


@pytest.mark.parametrize(("problem", "solver"), [("lasso", "LassoSolver"), ("logistic", "LogisticSolver")])
def test_penalised_problems(run, problem: str, solver: str) -> None:
    outcome = run("certify", "holdout", "--problem", problem, "--solver", solver, *SMALL, "--gap", "1e-3", "--json")
    assert (outcome.code, outcome.json["relative_to"]) == (0, "optimum")
    assert outcome.json["problem"]["lam"] == 0.1


def test_trained_layers(run, tmp_path: Path) -> None:
    net = LayeredSteps([[[0.5, 0.5]]] * 3, [1.0, 1.9])
    net.save(tmp_path / "layers.safetensors")
    few = ["--size", "8x2", "--problems", "30", "--coverage", "0.5", "--confidence", "0.9", "--gap", "0.3", "--json"]
    outcome = run("certify", "holdout", "--solver", tmp_path / "layers.safetensors", *few)
    assert (outcome.code, outcome.json["solver"]) == (0, "LayeredSteps")
    assert max(outcome.json["counts"]) <= 3


def test_too_few_iterations_prove_less(run, tmp_path: Path) -> None:
    out = tmp_path / "run"
    outcome = run("certify", "holdout", "--solver", "FISTA", *SMALL, "--iterations", "8", "--out", out, "--json")
    record = outcome.json
    assert (outcome.code, record["holds"], record["iterations"]) == (1, False, None)
    assert 0.0 < record["coverage_at_limit"] < 0.9
    assert record["failures"] == sum(k < 0 for k in record["counts"])
    assert "LESS IS PROVED THAN WAS ASKED FOR" in (out / "report.html").read_text()
    assert run("check", out).code == 1
    text = " ".join(run("certify", "holdout", "--solver", "FISTA", *SMALL, "--iterations", "8").out.split())
    assert (
        f"60 problems must be solved, and {60 - record['failures']} are" in text and "in increasing order" not in text
    )
    assert "would help a larger gap, more iterations (these ended at 8 iterations), another solver" in text


def test_the_certificate_is_kept_before_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("surefoot._holdout.command_run._show", closed)
    with contextlib.suppress(BrokenPipeError):
        main(["certify", "holdout", "--solver", "FISTA", *SMALL, "--out", str(tmp_path / "run")])
    assert main(["check", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").exists()


# -- check, report, list ---------------------------------------------------------------------------------------------


def test_check_accepts_and_rejects(run, certified: Path, tmp_path: Path) -> None:
    outcome = run("check", certified, "--json")
    assert (outcome.code, outcome.json["outcome"]) == (0, "accept")
    assert {line["claim"] for line in outcome.json["checks"]} == {"L1", "L2"}
    for file in certified.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    record = json.loads((tmp_path / "certificate.json").read_text())
    record["iterations"] -= 1
    (tmp_path / "certificate.json").write_text(json.dumps(record))
    assert run("check", tmp_path).code == 1


def test_report_of_a_directory(run, certified: Path) -> None:
    page = certified / "report.html"
    first = page.read_bytes()
    page.unlink()
    outcome = run("report", certified)
    assert (outcome.code, outcome.out.split()) == (0, [str(page), str(certified / "plots" / "curve.png")])
    assert page.read_bytes() == first


def test_solvers_that_are_listed_can_be_certified(run) -> None:
    listed: list[dict[str, Any]] = run("list", "--json").json["solvers"]
    names = {solver["name"] for solver in listed if "least-squares" in solver["problems"]}
    assert {"FISTA", "CGLS", "GD 1/β_p"} <= names and not {"GD 1/β", "LassoSolver"} & names
    of = {solver["name"]: solver["problems"] for solver in listed}
    assert (of["LassoSolver"], of["LogisticSolver"]) == (["lasso"], ["logistic"])
    few = ["--size", "3x5", "--problems", "29", "--coverage", "0.9", "--confidence", "0.95"]
    for name in names:
        outcome = run("certify", "holdout", "--solver", name, *few, "--json")
        assert outcome.code == 0, name
        assert np.all(np.array(outcome.json["counts"]) >= 0)


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--solver", "FISTA", "--problems", "458"], "needs at least 459"),
        (["--solver", "FIST"], "did you mean 'FISTA'"),
        (["--solver", "LassoSolver"], "--solver LassoSolver is for --problem lasso"),
        (["--solver", "GD 1/β"], "pass 'GD 1/β_p'"),
        (["--solver", "absent.safetensors"], "absent.safetensors: no such file"),
        (["--solver", "Fista"], "did you mean 'FISTA'"),
        (["--solver", "FISTA", "--coverage", "1"], "coverage is 1"),
        (["--solver", "FISTA", "--gap", "-1"], "gap is -1"),
        (["--solver", "FISTA", "--seed", "-1"], "--seed is -1"),
        (["--solver", "FISTA", "--shift", "20"], "--shift is '20'; it must be ROWSxCOLUMNS"),
        (["--solver", "FISTA", "--keep-solutions"], "--keep-solutions needs --out"),
        (["--solver", "FISTA", "--lam", "0.1"], "--lam belongs to"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, arguments: list[str], message: str) -> None:
    outcome = run("certify", "holdout", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err and outcome.err.count("\n") == 1


def test_problems_of_the_training_are_refused(run, network: Path) -> None:
    for seed in ("7", "8"):
        outcome = run("certify", "holdout", "--solver", network, *SMALL, "--seed", seed)
        assert outcome.code == 2 and "drew its own problems; choose another" in outcome.err
    assert run("certify", "holdout", "--solver", network, *SMALL, "--seed", "9").code == 0


def test_the_directory_of_a_run_names_its_network(run, network: Path, tmp_path: Path) -> None:
    outcome = run("certify", "holdout", "--solver", network.parent, *SMALL)
    assert outcome.code == 2 and f"is a directory; pass {network}" in outcome.err
    outcome = run("certify", "holdout", "--solver", tmp_path, *SMALL)
    assert outcome.code == 2 and "is a directory; pass the file of a trained network" in outcome.err


def test_a_directory_in_use_is_refused(run, certified: Path) -> None:
    outcome = run("certify", "holdout", "--solver", "FISTA", *SMALL, "--out", certified)
    assert outcome.code == 2 and "choose another (--out)" in outcome.err
