"""No tampered run directory is accepted, and none makes the checker fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import tamper
from changes import GoodRun, check_changed, once, reevaluate
from claims import MEASURE, untrue
from every_system import KINDS, changed, copied, one_ulp, thin
from good_runs import SYSTEMS
from hand_made import CORPORA
from hand_made.two_layer import CASES
from named import named

from surefoot._core.plans import PLANS
from surefoot_check.checker import check
from surefoot_check.systems import THEOREMS
from surefoot_check.two_layer.constants import DIRECTIONS
from surefoot_check.verdict import Outcome, Report, lines

TWO_LAYER = ("drift", "phases", "contraction", "constant", "corrected", "softmax", "sensing", "sharp", "completion")
OTHERS = [(system, name) for system, corpus in CORPORA.items() for name in corpus.CASES]
OF_A_THEOREM_BEFORE = {
    "linear-resnet": ("start", "gd", "duplicated"),
    "feed-forward": ("windows", "kinked", "smooth", "equal rows", "mean", "classes", "batches"),
    "step-sizes": ("rate", "tall", "logistic"),
    "inverse": ("chebyshev", "trained", "ones", "one layer"),
    "deconvolution": ("periodic", "varying, valid", "masked, valid"),
}
"""Runs whose theorem another run of their system has, or the one of ``SYSTEMS``, whose claims are changed with everything
else; claims depend on the theorem more than on the run. And that of batches, which takes as long as several."""
ONE_OF_EACH_THEOREM = [
    pytest.param(system, name, marks=pytest.mark.slow if name in OF_A_THEOREM_BEFORE.get(system, ()) else ())
    for system, name in OTHERS
]
EVERY_RUN = pytest.mark.parametrize(("system", "name"), [*(("two-layer", name) for name in TWO_LAYER), *OTHERS])
GetRun = Callable[[str, str], Path]


AT_LEAST = {"fields": 300, "hashes": 12, "claims": 150, "arrays": 45, "files": 115}
THIRDS = ("fields", "claims", "arrays")
"""Kinds whose cases are much the same in every system: each tries a third of them, not the same one; the slow tests try all."""
ALL = pytest.mark.parametrize("part", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["third", "all"])


def chosen(cases: Iterable[tamper.Tampering], start: int, part: bool) -> list[tamper.Tampering]:
    """All, or every third from the one at ``start`` modulo 3."""
    return list(cases)[start % 3 :: 3] if part else list(cases)


@pytest.fixture(scope="session")
def run_of(good_run: GoodRun, tmp_path_factory: pytest.TempPathFactory) -> GetRun:
    """``run_of(system, name)``: the directory of a run that hand-made changes are made of."""
    runs = {"two-layer": good_run}
    for system, corpus in CORPORA.items():
        runs[system] = once(tmp_path_factory, lambda name, path, corpus=corpus: corpus.RUNS[name](path))
    return lambda system, name: runs[system](name)


def hand_made(system: str, name: str) -> list[tamper.Tampering]:
    """The hand-made changes of a run."""
    if system == "two-layer":
        return [case for case in CASES if case.run == name]
    return [tamper.Tampering(case, name, change) for case, change in CORPORA[system].CASES[name].items()]


def refuse(run: tamper.StoredRun, cases: Iterable[tamper.Tampering], folder: Path) -> list[Report]:
    """The reports of the changed copies of a run, of which none is accepted without a line that says why."""
    reports = []
    for case in cases:
        with named(case.name):
            case.write(copied(run), folder / "run")
            report = check(folder / "run")
            assert report.outcome is not Outcome.ACCEPT, "\n".join(lines(report))
            assert [line for line in report.lines if line.outcome is not Outcome.ACCEPT]
        shutil.rmtree(folder / "run")
        reports.append(report)
    copied(run).write(folder / "run")  # one that a change had touched would be refused for that ever after
    assert check(folder / "run").outcome is Outcome.ACCEPT
    return reports


@EVERY_RUN
def test_runs_are_accepted_as_they_are(system: str, name: str, run_of: GetRun, tmp_path: Path) -> None:
    """Also once the generator has sealed them again, or the theorem was evaluated again."""
    good = run_of(system, name)
    tamper.Tampering("as it was", name).apply(good, tmp_path / "as it was")
    for report in (check(good), check(tmp_path / "as it was"), check_changed(good, reevaluate(), tmp_path / "again")):
        assert report.outcome is Outcome.ACCEPT, "\n".join(lines(report))
        stored = [*good.glob("checkpoints/*"), *good.glob("final*")]
        claimed = "L2" in THEOREMS[report.theorem].claims
        assert sum(line.claim == "L2" for line in report.lines) == (len(stored) if claimed else 0)


@EVERY_RUN
def test_hand_made_changes_are_refused(system: str, name: str, run_of: GetRun, tmp_path: Path) -> None:
    cases = hand_made(system, name)
    reports = refuse(tamper.StoredRun.read(run_of(system, name)), cases, tmp_path)
    assert len(reports) == len(cases) > 0
    assert system != "deconvolution" or all(report.outcome is Outcome.REJECT for report in reports)


@EVERY_RUN
def test_every_array_is_hashed_and_needed(system: str, name: str, run_of: GetRun, tmp_path: Path) -> None:
    run = tamper.StoredRun.read(run_of(system, name))
    cases = []
    for path in ("problem.safetensors", "initial.safetensors"):
        for array in run.arrays[path]:
            where = f"{path}/{array}"
            cases += [
                tamper.Tampering(f"{where} moved by an ulp", name, changed(path, array, one_ulp), seal=False),
                tamper.Tampering(f"{where} missing", name, lambda run, p=path, n=array: run.arrays[p].pop(n)),
            ]
    assert all(report.outcome is Outcome.REJECT for report in refuse(run, cases, tmp_path))


@ALL
@pytest.mark.parametrize(("system", "name"), ONE_OF_EACH_THEOREM)
def test_better_claims_are_refused(system: str, name: str, part: bool, run_of: GetRun, tmp_path: Path) -> None:
    """Of each theorem that no run of ``SYSTEMS`` has, in one run; the slow tests take every run of the corpora."""
    run = thin(tamper.StoredRun.read(run_of(system, name)))
    cases = chosen(KINDS["claims"](system, run, run), OTHERS.index((system, name)), part)
    assert len(refuse(run, cases, tmp_path)) >= AT_LEAST["claims"] // (3 if part else 1)


@pytest.mark.parametrize("name", TWO_LAYER)
def test_a_weaker_certificate_is_still_true(name: str, good_run: GoodRun, tmp_path: Path) -> None:
    """Base quantities moved by 1e-6 in the safe direction: the corpus tests the direction, not the change."""
    run = tamper.StoredRun.read(good_run(name))
    base = {
        q: float.fromhex(text) * (1.0 + (1e-6 if DIRECTIONS[q] == "upper" else -1e-6))
        for q, text in run.certificate["quantities"].items()
        if q in DIRECTIONS
    }
    sizes = {size: value for size, value in run.certificate["problem"].items() if size != "kind"}
    choices = PLANS[run.certificate["theorem"]].parameters(
        {**base, **sizes}
    )  # roots and steps suit the weaker constants
    run.certificates["certificate.json"] = tamper.reevaluated(run.certificate, base, choices)
    run.seal()
    del run.arrays["final.safetensors"]
    run.arrays = {path: arrays for path, arrays in run.arrays.items() if not path.startswith("checkpoints/")}
    run.certificates = {"certificate.json": run.certificate}
    run.write(tmp_path / "run")
    assert check(tmp_path / "run").outcome is Outcome.ACCEPT


def test_the_corpus_names_every_case_once() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) >= 120


# -- one generator for every system ------------------------------------------------------------------------------------

StoredRuns = Callable[[str], tuple[tamper.StoredRun, tamper.StoredRun]]


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> GoodRun:
    """``small_run(name)``: the directory of a run of a system, or of another run of it, ``"<system> 1"``."""

    def make(name: str, path: Path) -> None:
        system, _, seed = name.partition(" ")
        SYSTEMS[system](path, int(seed or 0))

    return once(tmp_path_factory, make)


@pytest.fixture(scope="session")
def stored_runs(small_run: GoodRun) -> StoredRuns:
    """A run of a system and another one, in memory."""
    return lambda system: (
        thin(tamper.StoredRun.read(small_run(system))),
        thin(tamper.StoredRun.read(small_run(f"{system} 1"))),
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_small_runs_are_accepted_as_they_are(system: str, stored_runs: StoredRuns, tmp_path: Path) -> None:
    for index, run in enumerate(stored_runs(system)):
        record = copied(run).certificate
        run.write(tmp_path / f"{index}")
        assert check(tmp_path / f"{index}").outcome is Outcome.ACCEPT
        assert system not in MEASURE or untrue(tmp_path / f"{index}", record) is None
        run.seal()
        run.write(tmp_path / f"{index} sealed")
        assert check(tmp_path / f"{index} sealed").outcome is Outcome.ACCEPT


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in THIRDS])
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_refuses_every_kind_of_change(
    system: str, kind: str, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    run, other = stored_runs(system)
    assert len(refuse(run, KINDS[kind](system, run, other), tmp_path)) >= AT_LEAST[kind]


@ALL
@pytest.mark.parametrize("kind", THIRDS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_refuses_changed_fields_claims_and_arrays(
    system: str, kind: str, part: bool, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    run, other = stored_runs(system)
    cases = chosen(KINDS[kind](system, run, other), list(SYSTEMS).index(system), part)
    assert len(refuse(run, cases, tmp_path)) >= AT_LEAST[kind] // (3 if part else 1)


def moved(run: tamper.StoredRun) -> Iterator[tuple[str, tamper.Change]]:
    """Every array of floats, and each of its first entries, larger or smaller."""
    for path, arrays in run.arrays.items():
        for name in arrays.keys() & (run.problem.keys() if path == "problem.safetensors" else run.weights.keys()):
            for factor in (1.0 + 1e-12, 1.0 - 1e-12, 1.0 + 1e-6, 1.0 - 1e-6, 1.01, 0.99, -1.0, 0.0):
                yield f"{path}/{name} times {factor}", changed(path, name, lambda A, f=factor: A * f)


@pytest.mark.parametrize("system", MEASURE)
def test_changed_arrays_with_new_hashes_are_accepted_only_where_the_certificate_is_true_of_them(
    system: str, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    """Both happen: rounding leaves it true, and so does whatever makes the problem easier than it says."""
    run, _ = stored_runs(system)
    accepted = refused = 0
    for name, change in moved(run):
        tamper.Tampering(name, system, change).write(copied(run), tmp_path / "run")
        if check(tmp_path / "run").outcome is Outcome.ACCEPT:
            accepted += 1
            assert untrue(tmp_path / "run", run.certificate) is None, name
        else:
            refused += 1
        shutil.rmtree(tmp_path / "run")
    assert refused > 0
    assert accepted > 0 or system == "inverse"  # whose interval is published without slack
