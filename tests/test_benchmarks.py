"""Every benchmark runs from start to end at its smoke size, says which peers are missing, and writes its tables as JSON."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

FOLDER = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(
    {file.stem for file in FOLDER.glob("*.py")} - {"run", "report", "page", "memory_cases", "deblur_problems"}
)
FORKS = {"memory"}
"""Those whose measurements are forks of a process that has done nothing else: they run in one of their own."""


def listed_peers() -> set[str]:
    """The packages of `make bench-peers`."""
    lines = (line.split("#")[0].strip() for line in (FOLDER / "peers.txt").read_text().splitlines())
    return {line for line in lines if line}


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[None]:
    """The benchmarks import each other by name; modules of the tests that have such a name too are set aside meanwhile."""
    names = {file.stem for file in FOLDER.glob("*.py")}
    before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


DEAR = ("memory", "feed_forward", "deconvolution", "estimators")
"""Benchmarks that take seconds even at their smoke size: left to the slow tests."""


def strictly(text: str) -> Any:
    """JSON as its standard has it: without NaN and infinities."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in DEAR else ()) for n in NAMES])
def test_smoke_size_runs(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"{name}.json"
    if name in FORKS:
        assert importlib.import_module("run").main([name, "--smoke", "--json", str(tmp_path)]) == 0
    else:
        importlib.import_module(name).main(["--smoke", "--json", str(file)])
    printed, found = " ".join(capfd.readouterr().out.split()), strictly(file.read_text())
    assert found["smoke"] and found["tables"]
    for table in found["tables"]:
        assert table["rows"] and all(len(row) == len(table["columns"]) for row in table["rows"])
    for peer, version in found["peers"].items():
        assert peer in listed_peers()
        assert re.search(rf"peers: [^;]*{peer}" if version else rf"not installed: [^(]*{peer}", printed), printed


def test_the_page_is_what_the_results_say(tmp_path: Path) -> None:
    module = importlib.import_module("page")
    assert module.page() == module.PAGE.read_text(), "run `make bench-page`"
    assert all(not strictly(file.read_text())["smoke"] for file in module.RESULTS.glob("*.json"))
    (tmp_path / "rows.json").write_text('{"smoke": true}')
    with pytest.raises(ValueError, match="smoke run"):
        module.adopted(tmp_path, tmp_path / "kept")
    record = {"smoke": False, "peers": {"scipy": None}, "machine": "one", "tables": []}
    record["tables"] = [{"title": "a|b", "columns": ["<n>"], "rows": [[1.0]], "shown": [["1.0*"]], "note": "$x$"}]
    (tmp_path / "rows.json").write_text(json.dumps(record))
    assert module.adopted(tmp_path, tmp_path / "kept") == ["rows"]
    text = module.page(tmp_path / "kept")
    assert "**a\\|b**" in text and "| &lt;n> |" in text and "| 1.0\\* |" in text and "scipy not installed" in text


def rows_of_the_page(heading: str, name: str = "experiments", level: str = "###") -> Iterator[list[str]]:
    """The cells of the tables below a heading of a page."""
    page = (FOLDER.parent / "docs" / f"{name}.md").read_text()
    for line in page.split(f"{level} {heading}\n")[1].split(f"\n{level}")[0].splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "arguments", "heading", "named"),
    [
        ("deconvolution", [], "Priors and peers", 1),
        ("deblur_photographs", ["--every", "4"], "Photographs of a shaken camera", 2),
    ],
)
def test_deblurring_gives_the_psnr_of_the_page(
    name: str, arguments: list[str], heading: str, named: int, shared_data: Path, tmp_path: Path
) -> None:
    """To a twentieth of a decibel; rows of peers only where they are installed."""
    file = tmp_path / "found.json"
    importlib.import_module(name).main(["--data", str(shared_data), *arguments, "--json", str(file)])
    rows = [row for table in strictly(file.read_text())["tables"] for row in table["rows"]]
    found = [(row[:named], row[named]) for row in rows if row[0] != "-"]
    told = [row for row in rows_of_the_page(heading) if row[: named - 1] != ["–"]]
    for names in {tuple(names) for names, _ in found}:
        measured = [quality for other, quality in found if tuple(other) == names]
        quoted = [float(row[named]) for row in told if tuple(row[:named]) == names]
        assert measured == pytest.approx(quoted, abs=0.05), names


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_estimators_have_the_scores_and_the_guarantees_of_the_guide(tmp_path: Path) -> None:
    """Those of networks whose training depends on rounding to a fiftieth."""
    file = tmp_path / "found.json"
    importlib.import_module("estimators").main(["--json", str(file)])
    found: dict[tuple[str, str, int], list[Any]] = {}
    for table in strictly(file.read_text())["tables"]:
        name = table["title"].partition(",")[0]
        found |= {(name, row[1], row[2]): row for row in table["rows"]}
    data, compared = "", 0
    for name, estimator, rows, score, _, _, steps in rows_of_the_page("Measured", "estimators", "##"):
        if not rows.isdecimal():
            continue
        data = name or data
        row = found[data, estimator.strip("`"), int(rows)]
        assert row[3] == pytest.approx(float(score), abs=0.02), row
        if "," in steps:
            assert row[7] == pytest.approx(int(steps.partition(",")[0]), rel=0.05), row
        compared += 1
    assert compared == len(found)


RESOLVED = 1e-25
"""Relative gaps below this are rounding."""
CHAOTIC = {"learned": 0.5, "subgame-perfect": 0.5}
"""Relative tolerance of what depends on rounding more than its last digit does."""


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(1, id="T = 63, least squares"),
        pytest.param(0, marks=[pytest.mark.slow, pytest.mark.timeout(1800)], id="all"),
    ],
)
def test_gaps_of_schedules_are_those_of_the_guide(column: int) -> None:
    module = importlib.import_module("schedules")
    lasso = False
    for method, *told in rows_of_the_page("Schedules without training", "learned", "##"):
        if told[0] == "T = 63":
            lasso = method.startswith("LASSO")
            continue
        if told[0].startswith("-") or (column and (lasso or method in CHAOTIC)):
            continue
        for steps, text in list(zip(module.FULL.steps, told, strict=True))[: column or None]:
            found, _ = module.relative_gaps(method, steps, module.FULL, lasso)
            if float(text) < RESOLVED:
                assert found < RESOLVED
            else:
                assert found == pytest.approx(float(text), rel=CHAOTIC.get(method, 0.05)), (method, steps)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("method", ["GD 1/β", "silver", "OGM", "ISTA 1/β", "silver with a penalty", "OptISTA"])
def test_worst_cases_of_schedules_are_their_formulas(method: str) -> None:
    """As semidefinite programmes, to what their solver reaches."""
    pytest.importorskip("PEPit")
    for steps in range(1, 8):
        found, formula = importlib.import_module("schedules").worst_case(method, steps)
        assert found == pytest.approx(formula, rel=1e-5), steps


def test_commands_of_the_page_run_at_the_smoke_size(tmp_path: Path) -> None:
    """Those of one benchmark; that of all is what the other tests run, one by one."""
    found = re.findall(r"python benchmarks/(\w+)\.py(.*?)(?:#|$)", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert found
    for name, arguments in found:
        if name != "run":
            file = tmp_path / f"{name}.json"
            importlib.import_module(name).main([*arguments.split(), "--smoke", "--json", str(file)])
            assert strictly(file.read_text())["tables"]


def test_the_benchmark_of_ranks_runs_on_two(tmp_path: Path) -> None:
    file = tmp_path / "ranks.json"
    done = run_ranks([str(FOLDER / "ranks.py"), "--smoke", "--json", str(file)], 2, 250.0)
    assert [rank.returncode for rank in done] == [0, 0], done
    assert strictly(file.read_text())["tables"] and done[0].stdout and not done[1].stdout


def test_every_peer_is_compared_in_some_benchmark() -> None:
    compared = {peer for name in NAMES for peer in getattr(importlib.import_module(name), "PEERS", ())}
    assert listed_peers() == compared | {"autograd"}  # which pymanopt takes derivatives with


def test_a_benchmark_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    files = [tmp_path / "first.py", tmp_path / "second.py"]
    files[0].write_text("raise RuntimeError('abstract')\n")
    files[1].write_text("import sys\nopen(sys.argv[-1], 'w').write('{}')\n")
    assert importlib.import_module("run").failed(files, True, tmp_path / "results") == ["first"]
    assert (tmp_path / "results" / "second.json").read_text() == "{}"


def test_an_unknown_benchmark_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module("run").main(["nothing"])
    assert "no benchmark nothing; there are checker" in capsys.readouterr().err
