"""The other commands, help texts, usage errors, and how errors and closed pipes end the program."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
import surefoot_experiments
from surefoot import cli
from surefoot._cli import listing, screen
from surefoot._cli.commands import options_of
from surefoot._core.audit import Audit, AuditLine
from surefoot._core.plans import PLANS
from surefoot._core.registry import SYSTEMS
from surefoot._core.system import Certifiable, Descendable
from surefoot.commands import COMMANDS
from surefoot_experiments import Experiment, Finding, Plot, Table


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that no test may change."""
    directory = tmp_path_factory.mktemp("finished")
    random = np.random.default_rng(0)
    X = random.standard_normal((40, 4))
    np.savetxt(directory / "table.csv", np.column_stack([X, X.sum(1) + random.standard_normal(40)]), delimiter=",")
    data, out = str(directory / "table.csv"), str(directory / "run")
    assert cli.main(["train", "two-layer", "--data", data, "--width", "20", "--out", out, "--quiet"]) == 0
    return directory / "run"


@pytest.fixture
def trained(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to work on."""
    return shutil.copytree(finished, tmp_path / "run")


# -- help and usage ------------------------------------------------------------------------------------------------


def test_help_names_every_command_and_exit_code(run) -> None:
    outcome = run("--help")
    assert outcome.code == 0
    for command in (name for name in COMMANDS if " " not in name):
        assert re.search(rf"^  {command} +[A-Z]", outcome.out, re.MULTILINE)
    assert "Exit codes: 0 yes" in outcome.out
    assert outcome.out.splitlines()[-1] == "Start: surefoot demo"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["certify", "two-layer"], ["--data", "--inputs", "--targets", "--loss", "--theorem", "--json"]),
        (["train", "two-layer"], ["--out", "--steps", "--resume", "--require-certificate", "--engine", "--quiet"]),
        (["certify", "linear-resnet"], ["--data", "--depth", "--width", "--transform", "--alpha", "--scaling"]),
        (["train", "linear-resnet"], ["--out", "--steps", "--resume", "--certify-every", "--quiet"]),
        (
            ["certify", "step-sizes"],
            ["--problem", "--size", "--problems", "--range", "--weights", "--theorem", "--json"],
        ),
        (
            ["certify", "holdout"],
            ["--solver", "--problem", "--gap", "--coverage", "--confidence", "--shift", "--out", "--json"],
        ),
        (["train", "step-sizes"], ["--out", "--epochs", "--optimizer", "--gradient", "--expansion", "--resume"]),
        (["check"], ["DIR", "--level", "--json"]),
        (["report"], ["DIR ...", "--out", "--data"]),
        (["reproduce"], ["PAPER/FIGURE", "--full", "--out", "--seed", "--json"]),
        (["list"], ["--json"]),
        (["demo"], ["STOP ...", "--out", "--json"]),
    ],
)
def test_help_of_every_command(run, arguments: list[str], options: list[str]) -> None:
    outcome = run(*arguments, "--help")
    assert outcome.code == 0
    assert all(option in outcome.out for option in options)
    assert "(default: None)" not in outcome.out
    assert "Suppress" not in outcome.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json"], "surefoot needs a command before '--json'"),
        (["certfy"], "unknown command 'certfy'; did you mean 'certify'? known: demo, certify, train"),
        (["certify", "two-layre"], "unknown name 'two-layre' after surefoot certify; did you mean 'two-layer'? known"),
        (["certify", "svd"], "no theorem speaks of the learned SVD"),
        (["certify", "layers"], "there is no surefoot certify layers; there is surefoot train layers"),
        (
            ["certify", "two-layer", "--widht", "3"],
            "unknown option '--widht'; did you mean '--width'? `surefoot certify",
        ),
        (
            ["certify", "two-layer", "-w", "3"],
            "unknown option '-w'; `surefoot certify two-layer --help` lists all options",
        ),
        (["certify", "two-layer", "--width", "many"], "--width is 'many'; expected a whole number"),
        (["certify", "two-layer", "--l2=some"], "--l2 is 'some'; expected a number"),
        (
            ["certify", "two-layer", "--inputs", "whitened"],
            "did you mean 'whiten'? expected standardise, whiten or raw",
        ),
        (["certify", "two-layer", "--width"], "--width lacks its value: --width N;"),
        (["certify", "two-layer", "--json=yes"], "--json is a switch and takes no value"),
        (["train", "two-layer"], "--out DIR is missing"),
        (["deblur", "photo.png"], "--kernel K and --out OUT are missing"),
        (["check"], "DIR is missing"),
        (["check", "a", "b"], "'b' is one argument too many"),
        (["check", ".", "--level", "exat"], "did you mean 'exact'? expected fast or exact"),
        (["reproduce", "two-layer/fig1", "--quick", "--full"], "--quick and --full contradict each other"),
    ],
)
def test_usage_errors_are_code_2(run, arguments: list[str], message: str) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err and outcome.err.startswith("surefoot: error: ") and outcome.err.count("\n") == 1


@pytest.mark.parametrize("value", ["-3", "1e-3", "-.5", "nan"])
def test_numbers_are_no_options(run, table: Path, value: str) -> None:
    assert "--l2 is 'x'" in run("certify", "two-layer", "--rcond", value, "--l2", "x").err


def test_version(run) -> None:
    assert run("--version").out == f"surefoot {sf.__version__}\n"


def test_every_command_is_that_of_its_line() -> None:
    for name, command in COMMANDS.items():
        assert len(command.summary) <= 64, name
        if command.options:
            options = options_of(command)
            system = name.partition(" ")[2]
            assert getattr(options, "system", system) == system or not system
            assert options.__module__ == command.options.partition(":")[0]
    for system in SYSTEMS:
        assert system.command is not None
        kinds = [kind for kind in ("Certify", "Train") if hasattr(import_module(system.command), kind)]
        listed = {name for name in COMMANDS if name.partition(" ")[2] == system.name}
        assert listed == {f"{kind.lower()} {system.name}" for kind in kinds}


def test_text_wraps_at_the_terminal(run, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (44, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        for command in ([], ["certify"], ["train"]):
            text = run(*command, "--help").out
            assert max(len(line) for line in text.splitlines()) <= columns, text


# -- check and report ----------------------------------------------------------------------------------------------


def test_check_accepts_and_rejects(run, trained: Path) -> None:
    accepted = run("check", trained, "--json")
    assert (accepted.code, accepted.json["outcome"]) == (0, "accept")
    file = trained / "certificate.json"
    record = json.loads(file.read_text())
    record["conclusion"]["rate"] = (0.5).hex()
    file.write_text(json.dumps(record))
    rejected = run("check", trained)
    assert rejected.code == 1
    assert "REJECT" in rejected.out
    assert "outcome: reject" in rejected.out
    (trained / "problem.safetensors").write_bytes(b"cut")
    assert run("check", trained).code == 1


def test_report(run, trained: Path) -> None:
    (trained / "report.html").unlink()
    outcome = run("report", trained)
    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == str(trained / "report.html")
    begun, end = outcome.err.splitlines()
    assert begun.startswith(f"writing the report of {trained}: ") and end == f"open {trained}/report.html"
    assert "Root mean square error" in (trained / "report.html").read_text()


def test_report_of_several(run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(trained, tmp_path / "runs" / "a")
    trained.rename(tmp_path / "runs" / "b")
    inside, page = tmp_path / "runs" / "index.html", tmp_path / "pages" / "mine.html"
    outcome = run("report", tmp_path / "runs")
    assert (outcome.code, outcome.out) == (0, f"{inside}\n")
    assert 'href="a/report.html"' in inside.read_text()
    assert run("report", tmp_path / "runs" / "a", tmp_path / "runs" / "b", "--out", page).code == 0
    assert 'href="../runs/b/report.html"' in page.read_text()
    monkeypatch.chdir(tmp_path)
    assert run("report", "runs/a", "runs/b").out == "comparison.html\n"
    for arguments, message in (
        (["runs", "--data", "x"], "--data has the arrays of one run"),
        (["runs/a", "--out", "x"], "--out is of the page that compares several runs"),
        ([], "there is no directory; name that of a run"),
        (["runs/a", "absent"], "absent is not a directory"),
    ):
        outcome = run("report", *arguments)
        assert outcome.code == 2
        assert message in outcome.err


@pytest.mark.parametrize("command", ["check", "report"])
def test_no_such_directory(run, tmp_path: Path, command: str) -> None:
    outcome = run(command, tmp_path / "absent")
    assert (outcome.code, outcome.out) == (2, "")
    assert "is not a directory; pass the directory of a run" in outcome.err


@pytest.mark.parametrize("name", ["problem.safetensors", "certificate.json", "config.json", "trace.jsonl"])
def test_report_of_a_truncated_run(run, trained: Path, name: str) -> None:
    file = trained / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 3])
    if name == "trace.jsonl":  # its last line alone may be cut: damage the one before
        file.write_bytes(b"{}\n" + file.read_bytes())
    outcome = run("report", trained)
    assert outcome.code == 2
    assert name in outcome.err
    begun = name != "config.json"  # which is read before the first word is said
    assert outcome.err.count("\n") == begun + 1


def test_another_version(run, trained: Path) -> None:
    config = json.loads((trained / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps({**config, "format": "surefoot-run/9"}))
    for arguments in (["report", trained], ["train", "two-layer", "--resume", "--out", trained]):
        outcome = run(*arguments)
        assert outcome.code == 2
        assert "surefoot-run/9" in outcome.err
    (trained / "config.json").write_text(json.dumps({**config, "options": {"data": "digits"}}))
    outcome = run("train", "two-layer", "--resume", "--out", trained)
    assert outcome.code == 2
    assert "options of another version" in outcome.err


# -- list, reproduce -----------------------------------------------------------------------------------------------


def test_list_is_complete(run) -> None:
    found = run("list", "--json").json
    assert [s["name"] for s in found["systems"]] == [s.name for s in SYSTEMS if isinstance(s, Certifiable)]
    assert {s["name"]: s["commands"] for s in found["systems"]}["deconvolution"] == ["train"]
    for command in ("certify", "train"):
        names = [s["name"] for s in found["systems"] if command in s["commands"]]
        assert not set(names) - set(re.findall(r"[a-z-]+", run(command, "--help").out))
    assert [t["name"] for t in found["theorems"]] == list(PLANS)
    assert {r["name"] for r in found["step_rules"]} == set(sf.steps.names())
    for system in SYSTEMS:
        own = system.rules if isinstance(system, Descendable) else {}
        rules = [r for r in found["step_rules"] if system.name in r["systems"]]
        assert {r["name"] for r in rules} == set(own)
        assert all(r["certified_by"] == sorted(own[r["name"]].certified_by) for r in rules)
    assert [c["name"] for c in found["commands"]] == ["surefoot certify holdout", "surefoot train layers"]
    assert all(c["summary"] for c in found["commands"])
    assert [d["name"] for d in found["data_sets"]] == list(sf.data.names())
    assert found["experiments"] == surefoot_experiments.names()
    assert all(r["step"] and "\n" not in r["step"] for r in found["step_rules"])
    outcome = run("list")
    assert outcome.code == 0
    for group in found.values():
        for item in group:
            assert (item if isinstance(item, str) else item["name"]) in outcome.out


def test_list_describes_the_bundled_data() -> None:
    digits = sf.data.load("digits")
    assert f"{len(digits.X):,} images" in listing.DATA_SETS["digits"]
    diabetes = sf.data.load("diabetes")
    assert f"{len(diabetes.X)} patients, {diabetes.X.shape[1]} measurements" in listing.DATA_SETS["diabetes"]


def tiny_experiment(name: str, **given: object) -> Experiment:
    """Stands in for a real one, and records the arguments."""

    def draw() -> object:
        from matplotlib.figure import Figure

        return Figure()

    experiment = Experiment(
        name=name,
        title="A title",
        reference="A paper, Figure 1",
        tables=(Table("numbers", ("width", "ratio", "rule"), ((500, 1.25, "sharp"), (1000, None, "local"))),),
        figures=(Plot("one.png", draw),),  # type: ignore[arg-type]
        findings=(Finding("It falls.", "it falls", True, "every row"), Finding("It is 1.", "2", False, "2 is not 1")),
        settings={k: given[k] for k in ("full", "seed")},
    )
    if isinstance(given["directory"], Path):
        given["directory"].mkdir()
        experiment.figures[0].save(given["directory"])
    return experiment


def test_reproduce(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surefoot_experiments, "reproduce", tiny_experiment)
    outcome = run("reproduce", "two-layer/fig1", "--full", "--seed", "3", "--out", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    for text in ("1,000", "1.25", "sharp", "agrees", "differs", "It is 1.", "full = True, seed = 3"):
        assert text in outcome.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["numbers.json", "one.png"]
    record = run("reproduce", "two-layer/fig1", "--json").json
    assert record == {
        **json.loads((tmp_path / "out" / "numbers.json").read_text()),
        "settings": {"full": False, "seed": 0},
    }
    again = run("reproduce", "two-layer/fig1", "--out", tmp_path / "out")
    assert again.code == 2
    assert "not an empty directory" in again.err


def test_reproduce_goes_on_in_a_directory_with_finished_runs_of_its_own(run, tmp_path: Path, monkeypatch) -> None:
    given = []

    def cut_short(name: str, **options: Any) -> surefoot_experiments.Experiment:
        given.append(options["data"])
        (options["directory"] / "runs").mkdir(exist_ok=True, parents=True)
        if len(given) == 1:
            raise KeyboardInterrupt
        return tiny_experiment(name, **{**options, "directory": None})

    monkeypatch.setattr(surefoot_experiments, "reproduce", cut_short)
    out = ["--out", tmp_path / "out"]
    images = ["--data", tmp_path]
    assert run("reproduce", "implicit/fig1", *out, *images).code == 130
    assert run("reproduce", "implicit/fig1", *out, *images).code == 0
    assert run("reproduce", "implicit/fig1", *out, *images).code == 0  # finished: replaced
    assert given == [str(tmp_path)] * 3
    (tmp_path / "out" / "numbers.json").write_text('{"name": "implicit/fig2"}')
    other = run("reproduce", "implicit/fig1", *out)
    assert other.code == 2
    assert "not an empty directory" in other.err


def test_reproduce_data_of_experiments_that_draw_their_own(run, tmp_path: Path) -> None:
    outcome = run("reproduce", "two-layer/fig1", "--data", tmp_path)
    assert outcome.code == 2
    assert "two-layer/fig1 draws its own" in outcome.err


def test_quick_is_the_default(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surefoot_experiments, "reproduce", tiny_experiment)
    assert run("reproduce", "two-layer/fig1", "--quick", "--json").json["settings"]["full"] is False


def test_nearly_collinear_columns_are_said_to_be_so(run, tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    X[:, 2] = X[:, 1] + 1e-6 * X[:, 2]
    np.savetxt(tmp_path / "t.csv", np.column_stack([X, X[:, 0]]), delimiter=",")
    data = ["certify", "two-layer", "--data", tmp_path / "t.csv"]
    said = " ".join(run(*data).out.split())
    assert "columns are nearly collinear or badly scaled (κ = " in said
    assert "): use --inputs whiten" in said
    assert "nearly collinear" not in run(*data, "--inputs", "whiten").out


def test_lists_of_numbers_are_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    record = {
        "counts": [1, -2, 3],
        "rates": [0.5, math.inf, 1e-300],
        "none": [],
        "texts": ["[\n 1,\n 2\n]"],
        "rows": [[1, 2], [3]],
    }
    screen.print_json(record)
    said = capsys.readouterr().out
    assert json.loads(said) == {**record, "rates": [0.5, None, 1e-300]}
    assert '"counts": [1, -2, 3],\n' in said and '"rates": [0.5, null, 1e-300],\n' in said and "  [1, 2],\n" in said


def test_counts_that_nobody_runs() -> None:
    assert [screen.count(value) for value in (12345, 1e9, 4.5e24, math.inf)] == [
        "12,345", "1,000,000,000", "more than 1e9", "∞",
    ]  # fmt: skip


def test_audit_that_checked_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def said(*lines: AuditLine) -> str:
        screen.Screen().audit(Audit("two-layer/drift", lines, 0.0), certified=True)
        return capsys.readouterr().out

    assert "drift: nothing could be checked" in said(AuditLine("a", True, None, None, None, 0))
    assert "drift: no violation" in said(AuditLine("a", True, 0.5, 0, None, 1))
    assert "drift: VIOLATED" in said(AuditLine("a", False, 2.0, 0, 0, 1))


def test_reproduce_unknown(run) -> None:
    outcome = run("reproduce", "two-layer/fgi1")
    assert outcome.code == 2
    assert "did you mean 'two-layer/fig" in outcome.err


# -- how the program ends ------------------------------------------------------------------------------------------


def test_unexpected_error_is_one_line(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: object, arguments: object) -> int:
        raise LookupError("a defect\nover two lines")

    monkeypatch.setattr(cli, "_run", fail)
    outcome = run("list")
    assert outcome.code == 2
    assert outcome.err == "surefoot: unexpected LookupError: a defect over two lines; SUREFOOT_DEBUG=1 shows where\n"
    monkeypatch.setenv("SUREFOOT_DEBUG", "1")
    with pytest.raises(LookupError):
        run("list")


def test_ctrl_c_before_training(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(command: object, arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupt)
    outcome = run("list")
    assert (outcome.code, outcome.err) == (130, "surefoot: interrupted\n")


def test_terminal_without_greek(run, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    code = cli.main(["certify", "two-layer", "--data", str(table)])
    sys.stdout.flush()
    text = raw.getvalue().decode("ascii")
    assert code == 0
    assert "condition number ? = K/?" in text


def test_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with os.fdopen(writer, "w") as closed:
        result = subprocess.run(
            [sys.executable, "-m", "surefoot.cli", "list"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )
    assert (result.returncode, result.stderr) == (141, "")


def test_output_closed_from_the_start() -> None:
    """As by ``surefoot list >&-``: Python then has no sys.stdout at all."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = f"exec {shlex.quote(sys.executable)} -m surefoot.cli list >&-"
    result = subprocess.run(
        ["sh", "-c", command], stderr=subprocess.PIPE, text=True, env=environment, timeout=120, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(run, shell: str) -> None:
    script = run("completion", shell).out
    assert all(word in script for word in ("reproduce", "two-layer", "--require-certificate", "--keep-solutions"))
