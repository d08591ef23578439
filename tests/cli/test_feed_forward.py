"""Feed-forward networks on the command line: certify, train, check, report, resume, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import surefoot as sf
from surefoot._feed_forward.command import FeedForward
from surefoot._feed_forward.drawn import NAMES
from surefoot_check import Outcome, check

SYSTEM = "feed-forward"


def small(table: Path, *more: str | Path) -> list[str | Path]:
    """Eight rows of four columns and one number, one hidden layer."""
    return [SYSTEM, "--data", table, "--samples", "8", "--hidden", "24", *more]


def test_training_ends_where_a_fit_is_guaranteed_and_descends_to_it(run, table: Path, tmp_path: Path) -> None:
    outcome = run("train", *small(table), "--out", tmp_path / "run", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert record["certificate"]["theorem"] == "feed-forward/local" and record["certificate"]["status"] == "holds"
    assert " steps of adam, margin " in record["problem"]["trained"]
    assert record["result"]["status"] == "converged" and record["result"]["certified"]
    assert record["audit"]["verdict"] == "no violation"
    scores = json.loads((tmp_path / "run" / "config.json").read_text())["evaluation"]
    assert "test_rmse" in scores and not [name for name in scores if name.startswith("optimum")]  # no linear map's
    assert f", 8 drawn of {record['problem']['train_rows']} rows" in (tmp_path / "run" / "report.html").read_text()
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Squared loss less its least value (gap)" in page and "½‖∇L‖²" not in page
    assert "Before descent, theorem feed-forward/local guarantees" in page
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    assert run("check", tmp_path / "run").code == 0
    looks = json.loads((tmp_path / "run" / "watch.json").read_text())["looks"]
    assert [seen["holds"] for seen in looks] == [False] * (len(looks) - 1) + [True]
    assert f"iteration {looks[-1]['iteration']:,}" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize("optimizer", ["lbfgs", "sgd"])
def test_other_optimisers(run, table: Path, tmp_path: Path, optimizer: str) -> None:
    more = ("--learning-rate", "2e-3") if optimizer == "sgd" else ()
    arguments = ["--optimizer", optimizer, *more, "--activation", "gelu", "--require-certificate", "--quiet"]
    outcome = run("train", *small(table, *arguments), "--out", tmp_path / "run")
    assert outcome.code == 0 and "certified" in outcome.out


@pytest.mark.usefixtures("without_report")
def test_weights_of_a_file_are_certified(run, table: Path, tmp_path: Path) -> None:
    """A state_dict, and the files of a run."""
    run("train", *small(table), "--out", tmp_path / "run", "--quiet")
    final = tmp_path / "run" / "final.safetensors"
    of_run = run("certify", *small(table, "--weights", final), "--json")
    assert of_run.code == 0
    weights = load_file(final)
    net = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 1)).double()
    net.load_state_dict(dict(zip(net.state_dict(), (weights[n] for n in ("W1", "b1", "W2", "b2")), strict=True)))
    save_file(net.state_dict(), tmp_path / "own.safetensors")
    own = run("certify", *small(table, "--weights", tmp_path / "own.safetensors"), "--json")
    assert own.json["certificate"]["quantities"] == of_run.json["certificate"]["quantities"]
    for hidden, message in (
        ("25", "0.weight has shape (24, 4), and the network needs (25, 4)"),
        ("24,3", "2.weight has shape (1, 24), and the network needs (3, 24)"),
    ):
        refused = run("certify", *small(table, "--weights", final, "--hidden", hidden))
        assert refused.code == 2 and message in refused.err, refused.err
    save_file({**net.state_dict(), "4.weight": torch.ones(1, 1).double()}, tmp_path / "deeper.safetensors")
    refused = run("certify", *small(table, "--weights", tmp_path / "deeper.safetensors"))
    assert refused.code == 2 and "has 4.weight beyond the network; give the --hidden" in refused.err
    save_file({f"layers.{name}": W for name, W in net.state_dict().items()}, tmp_path / "named.safetensors")
    refused = run("certify", *small(table, "--weights", tmp_path / "named.safetensors"))
    assert refused.code == 2 and "0.weight is not among layers.0.bias, layers.0.weight" in refused.err


def test_initial_weights_are_those_of_torch_and_fail(run, table: Path) -> None:
    outcome = run("certify", *small(table, "--seed", "5"), "--json")
    assert outcome.code == 1
    data = sf.data.load(table).standardise().centre_targets().train()
    assert isinstance(data.X, torch.Tensor) and data.Y is not None
    rows = torch.randperm(len(data.X), generator=torch.Generator().manual_seed(5))[:8].sort().values
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 24, dtype=torch.float64), nn.Tanh(), nn.Linear(24, 1, dtype=torch.float64))
    expected = sf.certify(net, sf.SquaredLoss(data.X[rows], data.Y[rows]))
    assert outcome.json["certificate"]["quantities"] == dict(expected.quantities)
    assert "train on" in outcome.json["certificate"]["suggestion"]


@pytest.mark.usefixtures("without_report")
def test_a_run_is_resumed_from_the_weights_that_it_began_with(run, table: Path, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for out, limit in ((whole, "12"), (cut, "5")):
        assert run("train", *small(table), "--max-iterations", limit, "--tolerance", "0", "--out", out).code == 0
    resumed = run("train", SYSTEM, "--out", cut, "--resume", "--max-iterations", "12")
    assert resumed.code == 0, resumed.err
    for name in ("certificate.json", "initial.safetensors", "final.safetensors", "trace.jsonl"):
        assert (whole / name).read_bytes() == (cut / name).read_bytes(), name
    assert json.loads((cut / "config.json").read_text())["result"]["status"]


@pytest.mark.usefixtures("without_report")
def test_an_uncertified_training_says_so(run, table: Path, tmp_path: Path) -> None:
    arguments = small(table, "--optimizer-steps", "3", "--max-iterations", "3")
    outcome = run("train", *arguments, "--out", tmp_path / "run")
    assert outcome.code == 0 and "gives no guarantee" in outcome.out
    refused = run("train", *arguments, "--require-certificate", "--out", tmp_path / "other")
    assert refused.code == 1 and "not trained" in refused.err


def test_activations_are_those_of_the_library() -> None:
    assert set(get_args(get_type_hints(FeedForward)["activation"])) == set(NAMES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hidden", "10,x"), "--hidden is '10,x'; give the widths"),
        (("--hidden", "10,0"), "--hidden is '10,0'; give the widths"),
        (("--samples", "0"), "--samples is 0; it must be at least 1"),
        (("--weights", "model.pt"), "model.pt may hold a pickle, which is never read; convert it once: import torch"),
        (("--weights", "none.safetensors"), "--weights none.safetensors: no such file"),
        (("--steps", "newton"), "--steps newton does not go with --loss squared; take --steps gauss-newton"),
        (("--theorem", "feed-forward/minimum"), "it speaks of --loss mse or cross-entropy"),
        (("--loss", "mse", "--theorem", "feed-forward/local"), "it speaks of --loss squared"),
        (("--learning-rate", "-1"), "--learning-rate is -1.0; it must be a positive number"),
        (("--optimizer-steps", "0"), "--optimizer-steps is 0; it must be at least 1"),
        (("--optimizer", "sgd", "--learning-rate", "100"), "take a lower learning rate"),
        (("--certify-every", "5"), "certify_every does not apply to feed-forward networks"),
        (("--weight-decay", "1e-3"), "--weight-decay goes with --loss mse or cross-entropy"),
        (("--loss", "mse", "--weight-decay", "-1"), "--weight-decay is -1.0; it must be 0 or a positive number"),
        (("--loss", "mse", "--hidden", "1000"), "--hidden 1000 makes 6,001 trained numbers"),
        (("--loss", "cross-entropy"), "no class labels, which --loss cross-entropy needs; use --loss squared"),
        (("--loss", "mse", "--activation", "relu"), "second derivative jumps"),
        (("--finish", "newton"), "--finish newton does not go with --loss squared; take --finish gauss-newton"),
    ],
)
def test_bad_options(run, table: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    outcome = run("train", *small(table, *options), "--out", tmp_path / "run")
    assert outcome.code == 2 and message in outcome.err, outcome.err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("without_report")
def test_gauss_newton_is_a_finish_where_the_optimiser_has_not_come_near(run, table: Path, tmp_path: Path) -> None:
    start = small(table, "--optimizer-steps", "100", "--require-certificate")
    refused = run("train", *start, "--out", tmp_path / "refused")
    assert (
        refused.code == 1
        and "train longer with more --optimizer-steps, or go on by --finish gauss-newton" in refused.err
    )
    outcome = run("train", *start, "--finish", "gauss-newton", "--out", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    assert " of gauss-newton, norm of the residual" in outcome.json["problem"]["finished"]
    assert outcome.json["certificate"]["status"] == "holds"
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_a_classifier_is_trained_to_a_minimum(run, classes: Path, tmp_path: Path) -> None:
    """Cross-entropy with weight decay: the optimiser, Newton's method, a certificate, a run that is checked, and its report."""
    arguments = [
        SYSTEM,
        "--data",
        classes,
        "--loss",
        "cross-entropy",
        "--weight-decay",
        "0.01",
        "--hidden",
        "3",
        "--samples",
        "20",
    ]
    train = [*arguments, "--optimizer", "adam", "--optimizer-steps", "40", "--require-certificate"]
    outcome = run("train", *train, "--out", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    record = outcome.json
    assert record["certificate"]["theorem"] == "feed-forward/minimum" and record["result"]["certified"]
    assert (
        record["problem"]["trained"].startswith("40 steps of adam") and " of newton, " in record["problem"]["finished"]
    )
    assert record["evaluation"]["test_accuracy"] > 0.5
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    looks = json.loads((tmp_path / "run" / "watch.json").read_text())["looks"]
    assert [seen["iteration"] for seen in looks[:-1]] == list(range(4, 41, 4)) and looks[-1]["holds"]
    again = run("certify", *arguments, "--weights", tmp_path / "run" / "final.safetensors")
    assert again.code == 0 and "a local minimum lies within" in again.out
    resumed = run("train", SYSTEM, "--out", tmp_path / "run", "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.json["problem"]["finished"] == record["problem"]["finished"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Finish:" in page and "Movement of the features" in page
    assert "½‖∇L‖² of the training objective (gap)" in page and "Squared loss" not in page


@pytest.mark.usefixtures("without_report")
def test_a_mean_without_decay_is_fitted_exactly(run, table: Path, tmp_path: Path) -> None:
    outcome = run("train", *small(table, "--loss", "mse", "--weight-decay", "0"), "--out", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["certificate"]["theorem"] == "feed-forward/local" and outcome.json["result"]["certified"]
    assert " steps of adam, " in outcome.json["problem"]["trained"] and "finished" not in outcome.json["problem"]
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


@pytest.mark.usefixtures("without_report")
def test_a_regression_is_trained_to_a_minimum_without_a_finish(run, table: Path, tmp_path: Path) -> None:
    """Theorem C after L-BFGS alone, of the weights that it left."""
    arguments = small(table, "--loss", "mse", "--weight-decay", "0.1", "--hidden", "2", "--activation", "softplus")
    # L-BFGS leaves a gradient of 1e-8; 1e-10 of its gap would be the rounding of gradients, where the run ends before
    outcome = run("train", *arguments, "--finish", "none", "--out", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["certificate"]["status"] == "holds" and "finished" not in outcome.json["problem"]
    assert outcome.json["problem"]["weight_decay"] == 0.1 and " steps of lbfgs, " in outcome.json["problem"]["trained"]


@pytest.mark.usefixtures("without_report")
def test_mini_batches(run, table: Path, tmp_path: Path) -> None:
    arguments = small(table, "--samples", "3", "--batch", "2", "--delta", "0.1", "--tolerance", "1e-1")
    outcome = run("train", *arguments, "--out", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    certificate, result = outcome.json["certificate"], outcome.json["result"]
    assert certificate["theorem"] == "feed-forward/sgd" and certificate["status"] == "holds"
    assert certificate["probability"] == 0.9 and certificate["quantities"]["batch"] == 2.0
    assert result["certified"] and result["rule"] == "constant" and outcome.json["audit"]["verdict"] == "no violation"
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT
    more = run("train", SYSTEM, "--out", tmp_path / "run", "--resume", "--tolerance", "1e-2", "--json")
    assert more.code == 0 and more.json["result"]["iterations"] > result["iterations"]
    text = run("certify", *arguments[:-2], "--weights", tmp_path / "run" / "final.safetensors").out
    assert "0.9 over the batches" in text and "batches of 2" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--delta", "0.1"), "--delta goes with --batch"),
        (("--batch", "9"), "use at most 8"),
        (("--batch", "2", "--loss", "mse"), "exact fit"),
    ],
)
def test_mini_batches_that_are_refused(run, table: Path, arguments: tuple[str, ...], message: str) -> None:
    outcome = run("certify", *small(table, *arguments))
    assert outcome.code == 2 and message in outcome.err


def test_rules_of_the_full_gradient_do_not_go_with_batches(run, table: Path, tmp_path: Path) -> None:
    outcome = run("train", *small(table, "--batch", "2", "--steps", "certified-bb"), "--out", tmp_path / "run")
    assert outcome.code == 2 and "--steps certified-bb does not go with --batch" in outcome.err
