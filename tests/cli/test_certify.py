"""``surefoot certify``: verdicts, numbers, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import surefoot as sf


def test_holds(run, table: Path) -> None:
    outcome = run("certify", "two-layer", "--data", table)
    assert outcome.code == 0
    assert outcome.err == ""
    assert "imbalance and margin: α₁ > 0" in outcome.out
    assert "every hypothesis holds" in outcome.out
    assert "32 to train on; 8 held out" in outcome.out


def test_json_is_the_library_certificate(run, table: Path) -> None:
    outcome = run("certify", "two-layer", "--data", table, "--width", "30", "--std", "0.5", "--seed", "3", "--json")
    assert outcome.code == 0
    data = sf.data.load(table).standardise().centre_targets().train()
    net = sf.nn.TwoLayerLinear.gaussian(4, 1, 30, std=0.5, seed=3)
    loss = sf.SquaredLoss(data.X, data.Y)
    certificate = sf.certify(net, loss)
    found = outcome.json["certificate"]
    assert found["quantities"] == dict(certificate.quantities)
    assert found["iterations_to"]["1e-10"] == certificate.iterations_to(1e-10)
    assert found["step_size"] == certificate.step_size
    assert [c["left"] for c in found["conditions"]] == [c.left for c in certificate.conditions]
    assert outcome.json["problem"]["condition_number"] == loss.smoothness / loss.strong_convexity


def test_fails_with_code_1_and_a_suggestion(run, classes: Path) -> None:
    outcome = run("certify", "two-layer", "--data", classes, "--width", "2")
    assert outcome.code == 1
    assert "FAILS" in outcome.out
    assert "suggestion: width 2 is below min(n, m) = 3" in outcome.out
    record = run("certify", "two-layer", "--data", classes, "--width", "2", "--json")
    assert record.code == 1
    assert record.json["certificate"]["status"] == "fails"
    assert record.json["certificate"]["iterations_to"]["0.01"] is None


def test_a_step_of_ones_own(run, table: Path, tmp_path: Path) -> None:
    theorem = ["--theorem", "two-layer/constant"]
    own = run("certify", "two-layer", "--data", table, *theorem, "--json").json["certificate"]["step_size"]
    half = ["--step", str(0.5 * own)]
    outcome = run("certify", "two-layer", "--data", table, *half, "--json")
    assert outcome.code == 0 and outcome.json["certificate"]["theorem"] == "two-layer/constant"
    assert (outcome.json["certificate"]["step_size"], outcome.json["certificate"]["rule"]) == (0.5 * own, "constant")
    large = ("certify", "two-layer", "--data", table, *theorem, "--step", str(3.0 * own))
    failed = [c["name"] for c in run(*large, "--json").json["certificate"]["conditions"] if not c["holds"]]
    assert failed == ["the step is at most the largest that the theorem admits"]
    outcome = run(*large)
    assert outcome.code == 1
    assert ", and every smaller one, is certified" in outcome.out
    trained = ["train", "two-layer", "--data", table, "--steps", str(0.5 * own), "--max-iterations", "3"]
    assert run(*trained, "--require-certificate", "--out", tmp_path / "run").code == 0
    assert run("check", tmp_path / "run").code == 0
    for wrong, said in (
        (["--step", "0"], "--step is 0.0; it must be a positive number"),
        (["--theorem", "two-layer/drift", *half], "two-layer/drift does not speak of a constant step"),
    ):
        outcome = run("certify", "two-layer", "--data", table, *wrong)
        assert outcome.code == 2 and said in outcome.err


def test_refuted_theorem_is_a_no(run, table: Path) -> None:
    outcome = run("certify", "two-layer", "--data", table, "--theorem", "two-layer/as-printed")
    assert outcome.code == 1
    assert "false for these shapes" in " ".join(outcome.out.split())


def test_theorem_without_a_rate(run, table: Path) -> None:
    outcome = run("certify", "two-layer", "--data", table, "--theorem", "two-layer/sharp")
    assert outcome.code == 0
    assert "only that the gap never grows" in outcome.out


def test_certifiable_start_that_is_none(run, table: Path) -> None:
    outcome = run(
        "certify", "two-layer", "--data", table, "--start", "certifiable", "--theorem", "two-layer/sharp", "--json"
    )
    assert outcome.code == 1
    assert "two-layer/sharp guarantees no rate" in outcome.err
    assert outcome.json["certificate"] is None
    assert outcome.json["problem"]["n"] == 4


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--inputs", "whiten"], {"inputs": "whiten", "rank": 4, "targets": "classes", "m": 3}),
        (["--loss", "softmax"], {"loss": "softmax", "n": 4, "m": 3, "targets": "classes"}),
        (["--targets", "one-hot", "--inputs", "raw"], {"inputs": "raw", "m": 3}),
    ],
)
def test_classes(run, classes: Path, arguments: list[str], facts: dict[str, object]) -> None:
    outcome = run("certify", "two-layer", "--data", classes, *arguments, "--json")
    problem = outcome.json["problem"]
    assert {name: problem[name] for name in facts} == facts
    if problem["inputs"] == "whiten":
        assert problem["condition_number"] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("system", ["two-layer", "linear-resnet"])
def test_ridge_tolerance_and_intercept(run, table: Path, system: str) -> None:
    command = ["certify", system, "--data", table, "--inputs", "raw", "--targets", "raw"]
    command += ["--l2", "0.5", "--rcond", "0.8", "--intercept"]
    train = sf.data.load(table).train()
    loss = sf.SquaredLoss(train.X, train.Y, l2=0.5, rcond=0.8, intercept=True)
    assert loss.cut is not None and loss.cut.below > 0
    record = run(*command, "--json").json
    facts = {name: record["problem"][name] for name in ("l2", "intercept", "rank", "condition_number")}
    condition = loss.smoothness / loss.strong_convexity
    assert facts == {"l2": 0.5, "intercept": True, "rank": loss.cut.kept, "condition_number": condition}
    assert record["certificate"]["reduced"] == loss.cut.to_dict()
    out = " ".join(run(*command).out.split())
    assert "squared + l2/2 ‖W‖² with l2 = 0.5, with an intercept" in out
    assert loss.cut.text in out


def test_rows_with_missing_values(run, table: Path) -> None:
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:3], "1,,2,3,4", *lines[3:]]))
    refused = run("certify", "two-layer", "--data", table)
    assert refused.code == 2 and "line 4, column 2: missing value" in refused.err
    outcome = run("certify", "two-layer", "--data", table, "--missing", "drop", "--json")
    assert (outcome.code, outcome.json["problem"]["prepared"]) == (
        0,
        "1 of 41 rows dropped, which have a missing value",
    )
    assert outcome.json["problem"]["train_rows"] == 32


def test_a_table_of_ones_own(run, tmp_path: Path) -> None:
    """Another target than the last column, semicolons, decimal commas, categories, a missing value."""
    random = np.random.default_rng(0)
    lines = [
        f"{row:.2f};{'' if index == 3 else f'{row:.3f}'};{('Ulm', 'Bonn')[index % 2]};{row * 7 % 3:.2f}".replace(
            ".", ","
        )
        for index, row in enumerate(random.random(40))
    ]
    path = tmp_path / "flats.csv"
    path.write_text("\n".join(["price;area;town;age", *lines]))
    command = ["certify", "two-layer", "--data", path, "--target", "price", "--decimal", ",", "--separator", ";"]
    refused = run(*command, "--missing", "mean")
    assert refused.code == 2 and "line 2, column 3 ('town'): 'Ulm' is not a number; --categories one-hot" in refused.err
    command += ["--missing", "mean", "--categories", "one-hot"]
    outcome = run(*command, "--json")
    assert outcome.code == 0 and outcome.json["problem"]["columns"] == 4
    prepared = (
        "the target is column 1 ('price'); categories became columns of 0 and 1 ('town': 'Bonn', 'Ulm'); 1 missing value filled "
        "in with means of the train rows, in 'area' (1)"
    )
    assert outcome.json["problem"]["prepared"] == prepared
    assert prepared in " ".join(run(*command).out.split())
    misspelt = run("certify", "two-layer", "--data", path, "--target", "prise", "--decimal", ",")
    assert misspelt.code == 2 and "has no column 'prise'; did you mean 'price'?" in misspelt.err


@pytest.mark.parametrize("system", ["feed-forward", "implicit", "linear-resnet"])
def test_every_system_takes_the_options_of_tables(run, tmp_path: Path, system: str) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "kinds.csv"
    rows = [f"{('a', 'b')[index % 2]},{row[0]:.4f},{row[1]:.4f}" for index, row in enumerate(random.random((12, 2)))]
    path.write_text("\n".join(["kind,x,y", *rows, "a,,1"]))
    options = ["--data", path, "--target", "kind", "--categories", "one-hot", "--missing", "drop", "--json"]
    facts = run("certify", system, *options).json["problem"]
    assert facts["prepared"].startswith(
        "the target is column 1 ('kind'); 1 of 13 rows dropped, which have a missing value; "
    )
    assert facts["targets"] == "classes" and "classes 0, 1 of the target are 'a', 'b'" in facts["prepared"]


def test_default_width_grows_with_the_problem(run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", random.standard_normal((600, 510)))
    np.save(tmp_path / "Y.npy", random.standard_normal((600, 1)))
    pair = f"{tmp_path / 'X.npy'},{tmp_path / 'Y.npy'}"
    outcome = run("certify", "two-layer", "--data", pair, "--theorem", "two-layer/sharp", "--json")
    assert outcome.json["problem"]["width"] == 2 * 511


def test_mapped_arrays(run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = random.standard_normal((30, 3))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", X @ random.standard_normal((3, 2)))
    pair = f"{tmp_path / 'X.npy'},{tmp_path / 'Y.npy'}"
    for inputs in ("raw", "standardise"):
        outcome = run("certify", "two-layer", "--data", pair, "--inputs", inputs, "--json")
        assert (outcome.code, outcome.json["problem"]["test_rows"], outcome.json["problem"]["m"]) == (0, 0, 2)
    alone = run("certify", "two-layer", "--data", tmp_path / "X.npy")
    assert (alone.code, alone.out) == (2, "")
    assert "has no targets" in alone.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digit"], "did you mean 'digits'"),
        (["--data", "photos"], "not rows of one table"),
        (["--theorem", "two-layer/drfit"], "did you mean 'two-layer/drift'"),
        (["--width", "0"], "--width is 0"),
        (["--std", "-1"], "std is -1.0"),
        (["--start", "certifiable", "--std", "1"], "--std belongs to --start gaussian"),
        (["--moved", "0.1"], "--moved belongs to --start certifiable"),
        (["--start", "certifiable", "--width", "2"], "width is 2; n + m = 5 orthonormal rows"),
        (["--loss", "softmax", "--rcond", "0.1"], "--rcond belongs to --loss squared"),
        (["--loss", "softmax", "--intercept"], "--intercept belongs to --loss squared"),
        (["--l2", "-1"], "l2 is -1.0"),
        (["--rcond", "2"], "rcond is 2.0"),
        (["--loss", "softmax"], "no class labels"),
        (["--targets", "one-hot"], "no class labels"),
        (["--loss", "softmax", "--targets", "raw"], "does not go with --loss softmax"),
    ],
)
def test_bad_input_is_one_line_and_code_2(run, table: Path, arguments: list[str], message: str) -> None:
    data = [] if "--data" in arguments else ["--data", table]
    outcome = run("certify", "two-layer", *data, *arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("surefoot: error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_labels_without_numbers(run, classes: Path) -> None:
    outcome = run("certify", "two-layer", "--data", classes, "--targets", "centred")
    assert outcome.code == 2
    assert "--targets one-hot" in outcome.err
