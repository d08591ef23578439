"""README and guides: their Python blocks run in order, their command lines run, and the numbers they quote are what comes out."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from surefoot import cli
from surefoot_check.__main__ import main as surefoot_check
from surefoot_experiments import EXPERIMENTS

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS: dict[str, Callable[[list[str]], Any]] = {"surefoot": cli.main, "surefoot-check": surefoot_check}


def blocks(document: str, *languages: str) -> list[str]:
    """The fenced blocks of a document in these languages, in order."""
    return [text for language, text in FENCE.findall((ROOT / document).read_text()) if language in languages]


def commands(document: str) -> list[str]:
    """The command lines of a document, without comments."""
    lines = [line.split(" #")[0].strip() for block in blocks(document, "bash", "") for line in block.splitlines()]
    return [line for line in lines if line]


# -- Python ----------------------------------------------------------------------------------------------------------------------


def arrays(names: str, *shapes: tuple[int, ...]) -> dict[str, Any]:
    """Gaussian arrays by name."""
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    return {name: torch.randn(*shape, **draw) for name, shape in zip(names.split(), shapes, strict=True)}


def given(document: str) -> dict[str, Any]:
    """What a document's blocks take as given: arrays of the reader's, and what its text calls by name."""
    import dataclasses

    import surefoot as sf

    known: dict[str, Any] = {"sf": sf, "np": np, "torch": torch, "Path": Path, "dataclasses": dataclasses}
    if document == "docs/scale.md":
        own = arrays("X_own Y_own X_share Y_share", (40, 5), (40, 2), (40, 5), (40, 2))
        for name in "XY":
            np.save(f"{name}.npy", own[f"{name}_own"].numpy())
        return known | own | {"i": 0, "blocks": lambda: [(own["X_own"], own["Y_own"])]}
    if document == "docs/checker.md":
        small, large = (sf.SquaredLoss(*arrays("X Y", (40, n), (40, 2)).values()) for n in (5, 30))
        sf.descend(sf.nn.TwoLayerLinear.gaussian(5, 2, 50, seed=0), small, directory="runs/digits", progress=False)
        return {"sf": sf, "loss": large, "net": sf.nn.TwoLayerLinear.gaussian(30, 2, 300, seed=0)}
    return known if document == "docs/microscopy.md" else {}


@dataclass(frozen=True)
class Quoted:
    """A number that a block quotes in a comment: where it stands, how the block's names give it, and how exactly."""

    document: str
    pattern: str
    value: str
    relative: float = 0.01
    as_printed: bool = False
    """Whether the fast form has another one."""
    at_most: bool = False
    """Whether what comes out may be anything up to it."""


# iterations taken and learned networks depend on rounding, so that two digits of them are quoted
QUOTED = (
    Quoted("docs/index.md", r"before training: ([\d,]+)", "cert.iterations_to(1e-10)", 0.03),
    Quoted("docs/index.md", r"# taken: ([\d,]+)", "run.iterations", 0.05),
    Quoted("README.md", r"training: ([\d,]+) iterations to a ten", "cert.iterations_to(1e-10)", 0.03),
    Quoted("README.md", r"# taken: ([\d,]+)", "run.iterations", 0.05),
    Quoted("README.md", r"# ([\d,]+) steps\n", "watch.certified"),
    Quoted("README.md", r"moved by ([\d.]+) and", "watch.history[-1].moved[0]", 0.05),
    Quoted("README.md", r"and ([\d.]+) of their norm", "watch.history[-1].moved[1]", 0.05),
    Quoted("README.md", r"below (1e-12) and", "cert.radius", at_most=True),
    Quoted("README.md", r"below 1e-12 and (1e-28)", 'cert.quantities["loss_gap"]', at_most=True),
    Quoted("README.md", r"iterations where ([\d,]+) are guaranteed", "cert.iterations_to(1e-10)"),
    Quoted("README.md", r"# some ([\d,]+) iterations where", "run.iterations", 0.3),
    Quoted("README.md", r"# \.\.\. guaranteed ([\d,]+)", "run.certificate.iterations_to(1e-10)", 0.03),
    Quoted("README.md", r"# ran ([\d,]+); weights moved", "run.iterations", 0.05),
    Quoted("README.md", r"; weights moved by ([\d.]+) of", "run.moved"),
    Quoted("README.md", r"# guaranteed ([\d,]+)\n", "cert.iterations_to(1e-10)"),
    Quoted("README.md", r"# about ([\d,]+) \(rounding", "gaussian.iterations", 0.2),
    Quoted("README.md", r"# ([\d,]+) iterations to a loss of 1e-3", "cert.iterations_to(1e-3)"),
    Quoted("README.md", r"# ([\d,]+); surefoot-check runs/implicit", "run.iterations", 0.05),
    Quoted("README.md", r"# ([\d.e-]+), gradient descent with step", "run.gaps[-1]", 0.1),
    Quoted("README.md", r"step 1/β: ([\d.e-]+);", '32 * sf.learned.compare(fresh, 100)["GD 1/β"].training.gap', 0.03),
    Quoted("README.md", r"# (\d+): of 99 %", "certificate.iterations", 0.3),
    Quoted("README.md", r"worst case: (\d+)", 'sf.certify(net, held_out, "step-sizes/rate").iterations_to(1e-4)'),
    Quoted("docs/quickstart.md", r"# ([\d,]+) in place of", "cert.iterations_to(1e-10)", 0.03),
    Quoted("docs/quickstart.md", r"# ([\d,]+) iterations, and", "run.iterations", 0.05),
    Quoted("docs/quickstart.md", r"and ([\d.]+): the weights moved", "run.moved"),
    Quoted(
        "docs/quickstart.md", r"on hidden pixels: ([\d.]+)", "(filled - pixels)[hidden].square().mean().sqrt()", 0.03
    ),
    Quoted("docs/quickstart.md", r"# ([\d.]+) by the means", "(mean - pixels)[hidden].square().mean().sqrt()", 0.03),
    Quoted("docs/quickstart.md", r"# ([\d,]+) guaranteed with prob", "cert.iterations_to(1e-7)", 0.03),
    Quoted("docs/quickstart.md", r"# some ([\d,]+); the audit", "run.iterations", 0.2),
    Quoted("docs/trained.md", r"# some ([\d,]+) guaranteed", "cert.iterations_to(1e-3)", 0.1),
    Quoted("docs/trained.md", r"# some ([\d,]+) taken", "run.iterations", 0.2),
    Quoted("docs/data.md", r"X=\((\d+), 4\)", "len(data.X)"),
    Quoted("docs/data.md", r"test rows=(\d+)\)\nprint\(data.feature", "int(data.split.sum())"),
    Quoted("docs/data.md", r"# (\d+) missing value", "data.notes[-1].split()[0]"),
    Quoted("docs/data.md", r"# \(\d+, (\d+)\): area", "len(given.feature_names)"),
    Quoted("docs/estimators.md", r"# ([\d.]+), as LinearRegression", "model.score(X, y)", 0.001),
    Quoted("docs/estimators.md", r"# (\d+) guaranteed before", "model.certificate_.iterations_to(1e-10)", 0.05),
    Quoted("docs/estimators.md", r"some (\d+) taken", "model.n_iter_", 0.1),
    Quoted("docs/estimators.md", r"within (1e-12), and", "cert.radius", at_most=True),
    Quoted("docs/estimators.md", r"and (1e-26) below", 'cert.quantities["loss_gap"]', at_most=True),
    Quoted("docs/equilibrium.md", r"# (\d+) evaluation in the last epoch", "layer.info.iterations"),
    Quoted("docs/equilibrium.md", r"# True ([\d.]+)", "proved.info.guaranteed * proved.info.contraction"),
    Quoted("docs/equilibrium.md", r"# (\d+), however many", "regularised.net[1].num_batches_tracked"),
    Quoted("docs/equilibrium.md", r"# ([\d,]+): 64 states", "warm.bytes"),
    Quoted("docs/learned.md", r"# (\d+), and the p-value", "cert.iterations", 0.3, as_printed=True),
    Quoted("docs/learned.md", r"# (\d+) and 213", "fista.iterations", 0.03, as_printed=True),
    Quoted("docs/learned.md", r"# 43 and (\d+)", "descent.iterations", as_printed=True),
    Quoted("docs/learned.md", r"# (\d+) in the worst case", "worst", as_printed=True),
    Quoted("docs/learned.md", r"# (\d+) of 600 need more", "shift.exceeding", 0.5, as_printed=True),
    Quoted("docs/learned.md", r"# ([\d.]+) after ten layers", "layers.objectives[-1]"),
    Quoted("docs/learned.md", r"# ([\d.]+), below which ten steps", "layers.constant"),
    Quoted("docs/systems/two-layer.md", r"# (\d+) guaranteed", "cert.iterations_to(1e-10)", 0.03),
    Quoted("docs/systems/two-layer.md", r"guaranteed, (\d+) taken", "run.iterations", 0.05),
    Quoted("docs/howto/learning-rate.md", r"True, and (\d+) iterations", "cert.iterations_to(1e-6)"),
    Quoted(
        "docs/howto/learning-rate.md",
        r"# step=([\d.]+), and every",
        'float(sf.certify(model, loss, step=1e-3).suggestion.split(",")[0][5:])',
    ),
    Quoted("docs/howto/learning-rate.md", r"# ([\d.]+): the step with", "best"),
    Quoted("docs/howto/trained.md", r"below (1e-12)", "cert.radius", at_most=True),
    Quoted("docs/linalg.md", r"# (\d+) polynomials", "len(plan.coefficients)"),
    Quoted("docs/linalg.md", r"σ − 1\| ≤ ([\d.]+) for", "plan.error", 0.03),
    Quoted("docs/linalg.md", r"σ² − 1\| ≤ ([\d.]+), as", "sf.certify(net, interval=(1e-6, 1.0)).bound(6)", 0.03),
    Quoted("docs/linalg.md", r"in the interval: ([\d.e-]+)", "certificate.bound(4)"),
)


def run_python(document: str, settings: dict[str, str]) -> None:
    """Run the blocks in the current folder, with other settings, and compare what they quote."""
    main = ModuleType("__main__")  # where the compiler looks up what a function of the document uses
    names = vars(main)
    names |= given(document)
    quoted = [number for number in QUOTED if number.document == document and not (number.as_printed and settings)]
    for index, block in enumerate(replaced(block, settings) for block in blocks(document, "python")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "__main__", main)
            exec(compile(block, f"{document}, block {index}", "exec"), names)
        for number in [number for number in quoted if re.search(number.pattern, block)]:
            said = float(re.findall(number.pattern, block)[0].replace(",", ""))
            found = float(eval(number.value, names))
            assert found <= said if number.at_most else found == pytest.approx(said, rel=number.relative), number
            quoted.remove(number)
    assert not quoted, "not in the document"


# -- command lines ---------------------------------------------------------------------------------------------------------------

FILLED = {
    "docs/checker.md": {
        "DIR --data FILE": "runs/large --data large.safetensors",
        "--obligations FILE": "--obligations runs/digits/certificate.json",
        "DIR": "runs/digits",
        "MODULE": "of_a_reader",
    }
}
"""What a reader puts for the names in capitals."""
MODULE = """
from dataclasses import replace
from surefoot_check.two_layer import SYSTEM as KNOWN

SYSTEM = replace(KNOWN, name="of-a-reader", theorems=())
"""
SHORTER = {
    "README.md": {
        "--hidden 50,50 --samples 30": "--hidden 30 --samples 6",
        "--hidden 8 --out": "--hidden 3 --samples 20 --out",
    },
    "docs/equilibrium.md": {"fullgraph=True": 'fullgraph=True, backend="eager"'},
    "docs/trained.md": {
        "--samples 60 --hidden 4": "--samples 20 --hidden 3",
    },
    "docs/learned.md": {
        '(32, 20, 32, seed=0), "lbfgs", epochs=50': '(4, 4, 8, seed=0), "lbfgs", epochs=2',
        "(600, 20, 32, seed=100)": "(460, 4, 8, seed=100)",
        "(600, 20, 24, seed=3)": "(30, 4, 6, seed=3)",
        "--size 20x32 --layers 10": "--size 4x8 --problems 3 --layers 3",
        "--size 20x32 --shift 20x24": "--size 4x8 --shift 4x6 --problems 60 --coverage .9",
        "--size 20x32 --gap 3e-2": "--size 4x8 --problems 60 --coverage .9 --gap .5",
        "--size 40x80 --solver": "--size 4x8 --problems 60 --coverage .9 --solver",
    },
    "docs/quickstart.md": {
        "range(200)": "range(20)",
        "--width 1000": "--width 100",
        "--range 1,1.95 --out": "--range 1,1.95 --epochs 2 --iterations 20 --out",
    },
    "docs/howto/compare.md": {"(20, 80)": "(20,)"},  # drawing the report of each run takes more than a second
    "docs/scale.md": {"--samples 200": "--samples 10 --width 20", "--inputs raw": "--width 100 --inputs raw"},
}
"""Settings of the fast form."""


def write_files(document: str) -> None:
    """The reader's files that a document names."""
    if document in ("README.md", "docs/quickstart.md", "docs/howto/deblur.md"):
        rng = np.random.default_rng(0)
        Path("scans").mkdir()
        for name in ("PHOTO.png", "photo.jpg", "scans/a.png"):
            Image.fromarray(rng.integers(0, 256, (40, 40), dtype=np.uint8)).save(name)
        for name in ("KERNEL.png", "k.png"):
            Image.fromarray(np.full((3, 3), 255, dtype=np.uint8)).save(name)
    if document == "docs/checker.md":
        Path("of_a_reader.py").write_text(MODULE)
    if document == "docs/scale.md":
        from sklearn.datasets import load_digits

        images, labels = load_digits(n_class=2, return_X_y=True)
        images = (15 * images).astype(np.uint8).reshape(-1, 8, 8)
        np.savez("mnist01.npz", images=images, labels=labels.astype(np.uint8))


def replaced(line: str, words: dict[str, str]) -> str:
    """The line with each of the words replaced."""
    for old, new in words.items():
        line = line.replace(old, new)
    return line


def words(line: str) -> tuple[str, list[str]]:
    """The program of a command and its arguments; of torchrun, what each rank runs."""
    program, *arguments = shlex.split(line)
    if program == "torchrun":
        assert arguments[1] == "-m"
        program, *arguments = arguments[2:]
    return program, arguments


def run_here(line: str) -> None:
    """One command in this process; of make and reproduce, that what is named exists."""
    program, arguments = words(line)
    if program == "make":
        assert all(re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for name in arguments)
        return
    if arguments[0] == "reproduce":
        assert arguments[1] in EXPERIMENTS
        return
    assert PROGRAMS[program](arguments) == 0, line


DOCUMENTS = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "index",
            "quickstart",
            "data",
            "daily",
            "microscopy",
            "trained",
            "estimators",
            "linalg",
            "equilibrium",
            "learned",
            "scale",
            "checker",
            "systems/two-layer",
            "systems/linear-resnet",
            "systems/implicit",
            "systems/inverse",
            "systems/deconvolution",
        )
    ),
    *(f"docs/howto/{page.name}" for page in sorted((ROOT / "docs" / "howto").glob("*.md"))),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's folder, whose modules Python finds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture(autouse=True)
def problem_kept_apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide to the checker has a large problem: in this process that is one of some kilobytes."""
    if "docs/checker.md" in request.node.name:
        monkeypatch.setattr("surefoot._core.run.LARGE", 3000)


@pytest.fixture(autouse=True)
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A job of one rank, for the blocks that every rank is to run."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'ranks'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def prepared(document: str, settings: dict[str, str]) -> list[str]:
    """Write the files that the document names, run its Python blocks, and return the commands, filled in; with other settings."""
    filled = FILLED.get(document, {})
    assert all(old in "\n".join(blocks(document, "python", "bash", "")) for old in (*filled, *settings))
    write_files(document)
    run_python(document, settings)
    return [replaced(replaced(line, filled), settings) for line in commands(document)]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # by torch's own forward mode
@pytest.mark.parametrize("document", DOCUMENTS)
def test_blocks_run_and_give_the_quoted_numbers(document: str) -> None:
    for line in prepared(document, SHORTER.get(document, {})):
        run_here(line)


def test_commands_of_the_experiments_are_ones() -> None:
    """They take minutes to hours: each is read as the program reads it, and not run."""
    for line in commands("docs/experiments.md"):
        program, arguments = words(line)
        assert program == "surefoot" and cli._parse(arguments), line
        assert arguments[0] != "reproduce" or arguments[1] in EXPERIMENTS, line


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "benchmarks/README.md"])
def test_targets_of_make_that_are_named_exist(page: str) -> None:
    named = re.findall(r"`make ([a-z-]+)|^make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE)
    assert named
    for name in (first or second for first, second in named):
        run_here(f"make {name}")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", [document for document in DOCUMENTS if commands(document)])
def test_commands_run_as_printed(document: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), "."])
    for line in prepared(document, {}):
        if not line.startswith("make "):  # which would set the environment up again
            subprocess.run(line, shell=True, env=environment, check=True)


@pytest.mark.slow
def test_the_table_of_guarantees_is_what_the_benchmark_prints(tmp_path: Path) -> None:
    """Iterations guaranteed to a per cent; those taken depend on rounding, by one."""
    command = [
        sys.executable,
        ROOT / "benchmarks" / "two_layer_rules.py",
        "--widths",
        "500",
        "--json",
        tmp_path / "found",
    ]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True)
    guaranteed, taken = json.loads((tmp_path / "found").read_text())["tables"]
    lines = re.findall(
        r"^\| (\d+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    quoted = [[float(cell.strip("*").replace(",", "")) for cell in line] for line in lines]
    assert len(quoted) == len(guaranteed["rows"]) == 3
    for said, promised, used in zip(quoted, guaranteed["rows"], taken["rows"], strict=True):
        promises, uses = (dict(zip(t["columns"], r, strict=True)) for t, r in ((guaranteed, promised), (taken, used)))
        assert said[0] == promises["noise"]
        assert said[1:3] == pytest.approx([promises["paper, corrected"], promises["drift (II + III)"]], rel=0.01)
        assert said[3:] == pytest.approx([uses["paper-rho"], uses["certified-bb"]], rel=0.01, abs=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_tables_of_held_out_problems_are_what_the_benchmark_prints(tmp_path: Path) -> None:
    """Counts of a learned network depend on rounding, and so do those near them; whether a shift is detected does not."""
    command = [sys.executable, ROOT / "benchmarks" / "holdout.py", "--json", tmp_path / "found"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True)
    claims, recalibrations, shifts = (table["rows"] for table in json.loads((tmp_path / "found").read_text())["tables"])
    page = (ROOT / "docs" / "learned.md").read_text().split("## A certificate from")[1].split("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", page, re.MULTILINE)
    ]
    tables = [lines[start + 1 :] for start, line in enumerate(lines) if set(line[0]) == {"-"}]
    for table, found in zip(tables, (claims, recalibrations, shifts), strict=True):
        assert [line[0] for line in table[: len(found)]] == [row[0] for row in found]
    for said, row in zip(tables[0], claims, strict=False):
        assert [float(cell) for cell in said[1:3]] == pytest.approx(
            row[1:3], rel=0.3 if row[0] == "learned" else 0.03, abs=1
        )
        assert float(said[3].rstrip(" %")) == pytest.approx(row[3], abs=0.3)
    for said, row in zip(tables[1], recalibrations, strict=False):
        assert float(said[2].rstrip("%")) == 100.0 * row[2]
        assert float(row[6]) > 0.01
        assert int(said[3].split()[0]) == pytest.approx(int(row[4].split()[0]), abs=10)
    for said, row in zip(tables[2], shifts, strict=False):
        assert float(said[1].rstrip(" %")) == pytest.approx(row[1], abs=8.0)
        assert said[3] == row[3]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_tables_of_layers_are_what_the_benchmark_prints(tmp_path: Path) -> None:
    """What gradients trained depends on rounding."""
    command = [sys.executable, ROOT / "benchmarks" / "layers.py", "--json", tmp_path / "found"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True)
    compare_layers(json.loads((tmp_path / "found").read_text())["tables"])


def compare_layers(tables: list[dict[str, Any]]) -> None:
    """The gaps of the guide with those of the benchmark's tables."""
    page = (ROOT / "docs" / "learned.md").read_text().split("## Training with")[1].split("\n## ")[0]
    told: dict[tuple[str, int, str], list[float]] = {}
    batch, depths = "", list[int]()
    for line in re.findall(r"^\| .*\|$", page, re.MULTILINE):
        name, *cells = (cell.strip(" *`") for cell in re.sub(r"\*\*|`", "", line).strip("|").split("|"))
        if " T = " in line:
            batch, depths = name, [int(T) for T in re.findall(r"T = (\d+)", line)]
        elif not set(name) <= {"-"}:
            told |= {(batch, T, name): [float(x) for x in cells[3 * k : 3 * k + 2]] for k, T in enumerate(depths)}
    found = {(table["title"].partition(",")[0], row[0], row[1]): row[2:4] for table in tables for row in table["rows"]}
    assert told.keys() == found.keys()
    for key, gaps in found.items():
        chaotic = "L-BFGS" in key[2] or "Adam" in key[2]
        assert told[key] == pytest.approx(gaps, rel=0.5 if chaotic else 0.1), key
