"""The tour: what its stops guarantee and find, its page, and how it ends where it cannot go on."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import Any

import pytest

from surefoot import cli
from surefoot._cli import demo
from surefoot._cli.errors import Exit
from surefoot._cli.screen import Screen
from surefoot._cli.tour import Stop, Visit, interrupted
from surefoot._core.registry import SYSTEMS


def parsed(command: str) -> Any:
    """The options of a command line; ``SystemExit`` where it is none."""
    return cli._parse(command.split()[1:])


def stop(name: str, end: BaseException | None = None, **found: Any) -> Stop:
    """One that does nothing but end."""

    def visit(directory: Path, screen: Screen) -> Visit:
        directory.mkdir()
        if end is not None:
            raise end
        return Visit(guaranteed="all", happened="much", command="surefoot list", **found)

    return Stop(name=name, title=f"The {name} one", why="to see it", visit=visit)


@pytest.fixture
def of_stops(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the stops of the tour, and leaves out its page."""

    def set_to(*stops: Stop) -> None:
        monkeypatch.setattr(demo, "stops", lambda: list(stops))
        monkeypatch.setattr(demo, "write_comparison", lambda directories, page, checks, introduction: page)

    return set_to


def test_every_system_is_on_the_tour() -> None:
    assert sorted(stop.name for stop in demo.stops()) == sorted(system.name for system in SYSTEMS if system.tour)
    assert all(system.tour for system in SYSTEMS if type(system).__module__.startswith("surefoot."))
    assert [stop.first for stop in demo.stops()] == [True, *[False] * (len(demo.stops()) - 1)]


def test_two_stops(run, tmp_path: Path) -> None:
    outcome = run("demo", "two-layer", "inverse", "--out", tmp_path / "demo", "--json")
    assert outcome.code == 0
    record = outcome.json
    assert record["passed"] is True
    linear, inverse = record["stops"]
    assert linear["iterations"] <= linear["guaranteed_before"] <= 75
    assert linear["moved"] == pytest.approx(0.01, rel=0.01)
    assert linear["evaluation"]["test_accuracy"] > 0.9
    assert (linear["audit"], linear["check"]) == ("holds", "accept")
    assert (inverse["audit"], inverse["check"]) == ("none", "accept")
    assert inverse["layers"][-1] < 1e-3 < inverse["layers"][0]
    assert 0.0 < inverse["error"] <= inverse["layers"][-1]  # of the same measure
    page = (tmp_path / "demo" / "index.html").read_text()
    assert 'href="two-layer/report.html"' in page
    assert (tmp_path / "demo" / "two-layer" / "report.html").is_file()
    assert parsed(linear["command"]).moved == 0.01
    assert parsed(inverse["command"]).size == "20x30"


@pytest.mark.slow
def test_the_whole_tour(run, tmp_path: Path) -> None:
    outcome = run("demo", "--out", tmp_path / "demo", "--json")
    assert outcome.code == 0
    stops = {stop["name"]: stop for stop in outcome.json["stops"]}
    assert list(stops) == [stop.name for stop in demo.stops()]
    for name, found in stops.items():
        assert found["passed"], name
        assert found["check"] == ("none" if name == "svd" else "accept")
        if "guaranteed_before" in found:
            assert found["iterations"] <= found["guaranteed_along"] <= found["guaranteed_before"] <= 1e6
        arguments = found["command"].replace("DIR", str(tmp_path / "again"))
        assert type(parsed(arguments)).__name__ in ("Train", "Deblur")
    assert stops["deconvolution"]["psnr"] > stops["deconvolution"]["psnr_blurred"] + 1.5
    assert run(*stops["deconvolution"]["command"].split()[1:], "--quiet").code == 0
    page = (tmp_path / "demo" / "index.html").read_text()
    assert all(name in page for name in stops)
    assert page.count("report.html") == sum(name not in ("svd", "inverse") for name in stops)


@pytest.mark.parametrize("width", [44, 80, 200])
def test_the_screen_at_several_widths(
    run, of_stops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    of_stops(stop("first", audit="holds", check="accept"), stop("second"))
    outcome = run("demo", "--out", tmp_path / "demo")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert all(line == line.rstrip() for line in lines)
    assert lines.count("  surefoot list") == 3
    assert f"Next  open {tmp_path}/demo/index.html" in lines
    assert "The first one  first, 1/2" in lines
    words = outcome.out.split()
    assert words.count("guaranteed") == (4 if width == 44 else 3)
    assert words.count("holds,") == words.count("none,") == 1


def test_what_fails_is_said(run, of_stops, tmp_path: Path) -> None:
    of_stops(stop("fine", audit="holds", check="accept"), stop("broken", audit="VIOLATED", check="accept"))
    outcome = run("demo", "--out", tmp_path / "demo", "--json")
    assert outcome.code == 1
    assert [found["passed"] for found in outcome.json["stops"]] == [True, False]
    of_stops(stop("rejected", audit="holds", check="reject"))
    assert run("demo", "--out", tmp_path / "again").code == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(run, of_stops, tmp_path: Path, number: int, code: int) -> None:
    with pytest.raises(BaseException) as raised:
        interrupted(Exit.of_signal(number))
    of_stops(stop("fine"), stop("long", raised.value), stop("never"))
    outcome = run("demo", "--out", tmp_path / "demo")
    assert outcome.code == code
    assert outcome.err == "surefoot: interrupted at stop 2 of 3, long\n"
    assert "Summary" in outcome.out and "The never one" not in outcome.out
    assert not (tmp_path / "demo" / "never").exists()


def test_interrupted_at_once(run, of_stops, tmp_path: Path) -> None:
    of_stops(stop("long", KeyboardInterrupt()))
    outcome = run("demo", "--out", tmp_path / "demo", "--json")
    assert (outcome.code, outcome.json["stops"], outcome.json["passed"]) == (130, [], False)


def test_unknown_stop(run, of_stops, tmp_path: Path) -> None:
    of_stops(stop("first"))
    outcome = run("demo", "frist", "--out", tmp_path / "demo")
    assert outcome.code == 2
    assert "unknown stop 'frist'; did you mean 'first'?" in outcome.err
    assert not (tmp_path / "demo").exists()


def test_demo_never_overwrites(run, of_stops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").write_text("keep")
    outcome = run("demo", "--out", tmp_path / "used")
    assert outcome.code == 2
    assert "choose another (--out), or delete it first" in outcome.err
    monkeypatch.chdir(tmp_path)
    assert demo.directory_for(None) == Path("surefoot-demo")
    assert demo.directory_for(None) == Path("surefoot-demo")  # it is empty
    for name in ("surefoot-demo", "surefoot-demo-2"):
        (Path(name) / "mine").mkdir(parents=True)
        (Path(name) / "mine" / "file").touch()
    Path("surefoot-demo-3").touch()
    of_stops(stop("first"))
    outcome = run("demo")
    assert "surefoot-demo is there already, so this goes to surefoot-demo-4." in outcome.out
    assert Path("surefoot-demo-3").is_file()


def test_a_place_that_cannot_be_written(run, of_stops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *arguments: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    of_stops(stop("first"))
    monkeypatch.setattr(Path, "mkdir", refuse)
    outcome = run("demo", "--out", tmp_path / "demo")
    assert outcome.code == 2
    assert outcome.err.endswith("demo cannot be written (Permission denied); choose another directory with --out\n")


def test_the_command_of_options_leads_back_to_them() -> None:
    from surefoot._cli.tour import command

    options = parsed("surefoot train two-layer --out runs/x --l2 0.5 --intercept --inputs whiten --certify-every 5")
    assert (
        command(options) == "surefoot train two-layer --inputs whiten --l2 0.5 --intercept --out DIR --certify-every 5"
    )
    assert parsed(command(options)) == dataclasses.replace(options, out="DIR")
