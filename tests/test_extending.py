"""Systems of others: the example of docs/extending.md as it is printed, and what is refused."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tamper import StoredRun
from torch import nn

import surefoot as sf
from surefoot._core.plans import PLANS
from surefoot._core.registry import SYSTEMS
from surefoot._two_layer.system import TwoLayerSystem
from surefoot.cli import main as surefoot
from surefoot.nn import TwoLayerLinear
from surefoot_check import Outcome, check
from surefoot_check.__main__ import main as surefoot_check

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r'^```python title="(.*?)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
"""The files of the example, as the page prints them."""
PROGRAMS = {"surefoot": surefoot, "surefoot-check": surefoot_check}
CHECKER = "linear_model_check"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, in which Python finds modules; what is imported from it and registered is forgotten."""
    systems, plans, modules = list(SYSTEMS), dict(PLANS), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    SYSTEMS[:] = systems
    PLANS.clear()
    PLANS.update(plans)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


class Net(nn.Module):
    """Of a system that is none yet."""


class Narrow(TwoLayerLinear):
    """Of the two-layer system already."""


def system(**declared: Any) -> sf.extending.Certifiable[Any, Any]:
    """A system of these declarations."""
    theorems = {"plans": (), "default_theorem": "mine/none"}
    return type("Mine", (TwoLayerSystem,), {"name": "mine", "network": Net, **theorems, **declared})()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"name": "two-layer"}, "'two-layer', which is taken"),
        ({"name": "Two/Layer"}, "lower-case letters, digits and single hyphens"),
        ({"network": TwoLayerLinear}, "system 'mine' has networks of the class TwoLayerLinear, and system 'two-layer'"),
        ({"network": Narrow}, "and system 'two-layer' those of TwoLayerLinear: a network would be of both"),
        ({"network": nn.Module}, "a network would be of both"),
        ({"plans": TwoLayerSystem.plans}, "each needs an id of its own that starts with 'mine/'"),
        ({}, "default theorem 'mine/none', which is none of its plans"),
    ],
)
def test_what_is_taken_or_wrong_is_refused_and_changes_nothing(declared: dict[str, Any], message: str) -> None:
    before = list(SYSTEMS), dict(PLANS)
    with pytest.raises(ValueError, match=message):
        sf.register(system(**declared))
    assert (list(SYSTEMS), dict(PLANS)) == before


@pytest.mark.parametrize("attribute", ["name", "network_name", "words", "network", "plans", "default_theorem"])
def test_what_is_not_declared_is_named(attribute: str) -> None:
    before = list(SYSTEMS), dict(PLANS)
    with pytest.raises(TypeError, match=f"system is a Mine, whose attribute {attribute} is None; set it to a "):
        sf.register(system(**{attribute: None}))
    assert (list(SYSTEMS), dict(PLANS)) == before


def test_what_is_no_system_is_refused() -> None:
    with pytest.raises(TypeError, match="pass an object of a class of surefoot"):
        sf.register(TwoLayerSystem)  # type: ignore[arg-type] - the class, not an object of it


NAMED = """
import surefoot as sf
from surefoot.extending import System, Words

class Silent(System):
    name = "silent"
    network_name = "Silent"
    words = Words(instead={"certify": "nothing is known of silent networks"})

sf.register(Silent())
"""


def test_a_module_is_named_before_the_command(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "silent.py").write_text(NAMED)
    for first in (["--system", "silent"], ["--system=silent"], []):  # once named, it is known to this process
        assert surefoot([*first, "certify", "silent"]) == 2
        assert "nothing is known of silent networks" in capsys.readouterr().err
    assert surefoot(["--help"]) == 0
    assert "--system MODULE before the command" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--system"], "--system lacks its module"),
        (["--system", "--help"], "--system lacks its module"),
        (["--system=", "list"], "--system lacks its module"),
        (["--system", "nowhere", "list"], "--system nowhere cannot be imported (ModuleNotFoundError"),
        (["--system", "broken", "list"], "--system broken cannot be imported (AssertionError: broken)"),
        (["--system", "empty", "list"], "--system empty registers no system"),
        (["--system", "leaves", "list"], "--system leaves cannot be imported (SystemExit"),
        (["--system", "silent", "--system", "again", "list"], "'silent', which is taken"),
    ],
)
def test_modules_that_cannot_be_used(
    arguments: list[str], message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "broken.py").write_text("raise AssertionError('broken')")
    (place / "empty.py").write_text("")
    (place / "leaves.py").write_text("raise SystemExit(0)")
    for name in ("silent", "again"):
        (place / f"{name}.py").write_text(NAMED)
    assert surefoot(arguments) == 2
    assert message in capsys.readouterr().err


# -- the example -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def example(place: Path) -> Any:
    """The module of the room, once the files lie in the current folder."""
    for name, text in FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    return import_module("linear_model")


def problem(rows: int = 40, columns: int = 5) -> sf.SquaredLoss:
    """Least squares with two outputs; the last column is the sum of the others, so that the data has no full rank."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    X[:, -1] = X[:, :-1].sum(1)
    return sf.SquaredLoss(X, torch.randn(rows, 2, generator=generator, dtype=torch.float64))


def model(example: Any, loss: sf.SquaredLoss) -> Any:
    """A linear model with random weights."""
    generator = torch.Generator().manual_seed(2)
    return example.LinearModel(torch.randn(loss.shape, generator=generator, dtype=torch.float64))


@pytest.fixture
def run(example: Any, place: Path) -> sf.Run:
    """A run of the example, in the directory "run"."""
    loss = problem()
    return sf.descend(model(example, loss), loss, tolerance=1e-9, directory=place / "run", progress=False)


def lines(name: str) -> int:
    """How many a file of the example has."""
    return len(FILES[name].splitlines())


def test_the_example_is_one_room_one_module_and_two_registrations() -> None:
    assert set(FILES) == {"linear_model/__init__.py", "linear_model/command.py", f"{CHECKER}.py"}
    assert lines("linear_model/__init__.py") + lines("linear_model/command.py") <= 120
    assert lines(f"{CHECKER}.py") <= 60
    text = "".join(FILES.values())
    assert text.count("sf.register(") == 1 and text.count("SYSTEM = System(") == 1
    private = re.compile(r"(surefoot|surefoot_check)(\.\w+)*\._\w|from \.+_")
    assert not private.search(text), "the example uses what is not public"


def test_certify_gives_the_rate_of_the_theorem(example: Any) -> None:
    loss = problem()
    net = model(example, loss)
    certificate = sf.certify(net, loss)
    eigenvalues = torch.linalg.eigvalsh(loss.reduced.statistics.design.T @ loss.reduced.statistics.design)
    assert certificate.holds and certificate.claim.kind == "rate"
    assert certificate.step_size == pytest.approx(float(1.0 / eigenvalues[-1]), rel=1e-8)
    assert certificate.rate == pytest.approx(float(1.0 - eigenvalues[0] / eigenvalues[-1]), rel=1e-8)
    assert certificate.initial_gap == pytest.approx(loss.gap(net.W.detach()), rel=1e-8)
    with pytest.raises(ValueError, match="build the network with n=5, m=2"):
        sf.certify(example.LinearModel(torch.zeros(4, 2)), loss)


def test_descend_audit_save_and_load(example: Any, run: sf.Run, place: Path) -> None:
    assert run.certified and run.audit().holds and run.status == "converged"
    assert all(gap <= run.certificate.bound(t) for t, gap in enumerate(run.gaps))
    loaded = sf.Run.load(place / "run")
    assert loaded.audit().holds and loaded.gaps == run.gaps
    run.save(place / "copy")
    assert sf.Run.load(place / "copy").audit() == run.audit()


def test_the_network_keeps_what_no_sample_sees(example: Any) -> None:
    loss = problem()
    net = model(example, loss)
    before = net.W.detach().clone()
    run = sf.descend(net, loss, tolerance=1e-9, progress=False)
    after = net.W.detach()
    assert loss.gap(after) == pytest.approx(run.gaps[-1], rel=1e-3)
    assert loss.basis is not None
    outside = torch.eye(5, dtype=torch.float64) - loss.basis @ loss.basis.T
    assert torch.allclose(outside @ after, outside @ before)


@pytest.mark.parametrize("rule", ["polyak", "barzilai-borwein", "backtracking", "constant", 1e-3])
def test_shared_rules_take_the_iterates_of_the_shared_engine(rule: str | float, example: Any) -> None:
    loss = problem()
    run = sf.descend(model(example, loss), loss, rule, max_iterations=5000, tolerance=1e-6, progress=False)
    assert run.status == "converged" and run.certified == (rule == "constant")
    assert run.audit().holds == (rule == "constant")  # of others not every step is that of the certificate


def test_a_run_is_resumed_to_the_same_weights(example: Any, place: Path) -> None:
    loss = problem()
    whole = sf.descend(model(example, loss), loss, "barzilai-borwein", 9, 0.0, progress=False)
    for limit, resume in ((4, False), (9, True)):
        net = model(example, loss)
        run = sf.descend(
            net, loss, "barzilai-borwein", limit, 0.0, directory=place / "run", resume=resume, progress=False
        )
    assert run.gaps == whole.gaps and torch.equal(run.final["W"], whole.final["W"])


def test_what_the_example_cannot_do_is_refused(example: Any) -> None:
    loss = problem()
    net = model(example, loss)
    with pytest.raises(TypeError, match="system 'linear-model' records no loops"):
        sf.Trace(loss).record(net, 1e-3)
    with pytest.raises(ValueError, match="system 'linear-model' certifies no iterates along a run"):
        sf.descend(net, loss, certify_every=5)
    with pytest.raises(ValueError, match="unknown engine 'gram'; known: auto, weights"):
        sf.descend(net, loss, engine="gram")


def test_the_checker_accepts_with_the_module_and_not_without(run: sf.Run, place: Path) -> None:
    accepted = check(place / "run", systems=(CHECKER,))
    assert accepted.outcome is Outcome.ACCEPT and accepted.theorem == "linear-model/constant"
    assert {line.claim for line in accepted.lines} == {"L1", "L2"}
    assert check(place / "run", "exact", systems=(CHECKER,)).outcome is Outcome.ACCEPT
    unknown = check(place / "run")
    assert unknown.outcome is Outcome.REJECT and "unknown theorem" in unknown.lines[0].name


def test_the_checker_loads_neither_torch_nor_the_room(run: sf.Run, place: Path) -> None:
    program = (
        "import sys; from surefoot_check.__main__ import main\n"
        f"assert main(['run', '--system', '{CHECKER}']) == 0\n"
        "assert not {'torch', 'surefoot', 'linear_model'} & set(sys.modules)"
    )
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{place}", "PATH": ""}
    done = subprocess.run([sys.executable, "-c", program], cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("quantity", "factor", "outcome"),
    [
        ("smoothness", 0.9, Outcome.REJECT),
        ("strong_convexity", 1.1, Outcome.REJECT),
        ("initial_gap", 0.9, Outcome.UNDECIDED),  # it is bounded from above alone
        ("initial_step", 1.5, Outcome.REJECT),
        ("decrease", 1.1, Outcome.REJECT),
    ],
)
def test_a_quantity_that_is_too_good_is_not_accepted(
    quantity: str, factor: float, outcome: Outcome, run: sf.Run, place: Path
) -> None:
    stored = StoredRun.read(place / "run")
    quantities = stored.certificate["quantities"]
    quantities[quantity] = (factor * float.fromhex(quantities[quantity])).hex()
    stored.seal()
    stored.write(place / "tampered")
    assert check(place / "tampered", systems=(CHECKER,)).outcome is outcome


def test_a_schedule_that_falls_faster_is_rejected(run: sf.Run, place: Path) -> None:
    stored = StoredRun.read(place / "run")
    conclusion = stored.certificate["conclusion"]
    decrease = 1.01 * float.fromhex(conclusion["schedule"][0][3])
    conclusion["schedule"][0][3], conclusion["rate"] = decrease.hex(), (1.0 - decrease).hex()
    stored.seal()
    stored.write(place / "tampered")
    assert check(place / "tampered", systems=(CHECKER,)).outcome is Outcome.REJECT


@pytest.mark.parametrize(
    ("file", "sealed", "outcome"),
    [
        ("initial", False, Outcome.REJECT),
        (
            "initial",
            True,
            Outcome.UNDECIDED,
        ),  # their gap is larger than the published one, which is bounded from above alone
        ("final", False, Outcome.REJECT),
        ("final", True, Outcome.REJECT),
    ],
)
def test_other_weights_are_not_accepted(file: str, sealed: bool, outcome: Outcome, run: sf.Run, place: Path) -> None:
    stored = StoredRun.read(place / "run")
    weights = stored.arrays[f"{file}.safetensors"]
    weights["W"] = 10.0 * weights["W"]
    if sealed:
        stored.seal()
    stored.write(place / "tampered")
    assert check(place / "tampered", systems=(CHECKER,)).outcome is outcome


@pytest.mark.parametrize("W", [np.zeros((3, 2)), np.zeros((4, 2), np.float32), np.full((4, 2), np.nan), np.zeros(8)])
def test_weights_that_do_not_fit_are_rejected(W: np.ndarray, run: sf.Run, place: Path) -> None:
    assert run.initial["W"].shape == (4, 2)
    stored = StoredRun.read(place / "run")
    stored.arrays["initial.safetensors"]["W"] = W
    stored.seal()
    stored.write(place / "tampered")
    report = check(place / "tampered", systems=(CHECKER,))
    assert report.outcome is Outcome.REJECT and "initial.safetensors: W" in report.lines[0].name


def test_the_programs(example: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = ["--system", "linear_model"]
    assert surefoot([*first, "certify", "linear-model", "--data", "diabetes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificate"]["theorem"] == "linear-model/constant"
    train = [*first, "train", "linear-model", "--out", "runs/mine"]
    assert surefoot([*train, "--data", "diabetes", "--max-iterations", "5"]) == 0
    said = capsys.readouterr().out
    assert "surefoot check runs/mine --system linear_model_check" in said
    assert "surefoot --system linear_model train linear-model --out runs/mine --resume --max-iterations 50" in said
    assert surefoot([*train, "--resume", "--max-iterations", "8"]) == 0
    assert "8 with constant (weights engine)" in capsys.readouterr().out
    assert surefoot([*first, "train", "two-layer", "--out", "runs/mine", "--resume"]) == 2
    assert "surefoot --system linear_model train linear-model --out runs/mine --resume" in capsys.readouterr().err
    assert surefoot([*train[:-1], "runs/again", "--certify-every", "3"]) == 2
    assert "certifies no iterates along a run" in capsys.readouterr().err
    assert surefoot([*first, "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert "linear-model" in {system["name"] for system in listed["systems"]}
    assert surefoot(["check", "runs/mine", "--system", CHECKER]) == 0


def test_the_report_speaks_of_the_system(run: sf.Run, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert surefoot(["--system", "linear_model", "report", "run"]) == 0
    page = (place / "run" / "report.html").read_text()
    words = next(system.words for system in SYSTEMS if system.name == "linear-model")
    assert words.method in page and f"surefoot-check run --system {CHECKER}" in page
    assert set(run.certificate.quantities) == set(words.symbols)
    assert all(meaning in page for _, meaning in words.symbols.values())


def test_a_run_of_a_system_that_is_not_registered_says_what_to_do(
    run: sf.Run, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SYSTEMS.pop()
    assert surefoot(["report", "run"]) == 2
    assert "unknown system 'linear-model'" in (said := capsys.readouterr().err) and "--system MODULE" in said


def test_what_the_page_shows_runs(example: Any, place: Path) -> None:
    blocks = {
        language: re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S) for language in ("python", "bash")
    }
    assert [len(found) for found in blocks.values()] == [1, 1]
    exec(compile(blocks["python"][0], "docs/extending.md", "exec"), {})
    for line in blocks["bash"][0].splitlines():
        program, *arguments = shlex.split(line)
        assert PROGRAMS[program](arguments) == 0, line


def repository() -> dict[Path, str]:
    """A hash of every text file of the repository."""
    folders = ("src", "tests", "docs", "benchmarks", "examples")
    files = [*ROOT.glob("*.*"), *(file for folder in folders for file in (ROOT / folder).rglob("*.*"))]
    text = [file for file in files if file.suffix in (".py", ".md", ".toml", ".yml", ".json", ".lock")]
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in text}


def test_the_example_changes_no_file_of_the_repository(example: Any, place: Path) -> None:
    before = repository()
    assert surefoot(["--system", "linear_model", "train", "linear-model", "--inputs", "whiten", "--out", "run"]) == 0
    assert surefoot_check(["run", "--system", CHECKER]) == 0
    assert repository() == before and len(before) > 300
