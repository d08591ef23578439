"""The help text of every command, at a usual and at a narrow width, and that its options are those of the command."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from surefoot._cli import help as helping
from surefoot._cli.commands import options_of
from surefoot._cli.described import options_of as described
from surefoot._deconvolution.photo.light import GAMMAS
from surefoot._deconvolution.photo.priors import AUTOMATIC, PRIORS
from surefoot.commands import COMMANDS

NAMES = [name for name, command in COMMANDS.items() if command.options]
OPTION = re.compile(r"^  (?:-h, )?(--[a-z0-9-]+)", re.MULTILINE)


@pytest.mark.parametrize("columns", [44, 80])
@pytest.mark.parametrize("name", NAMES)
def test_every_page_fits_and_names_every_option_once(
    run, name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = run(*name.split(), "-h").out
    assert [line for line in text.splitlines() if len(line) > columns and "/" not in line] == []  # a path stays whole
    assert "None" not in text and "Suppress" not in text and "{" not in text and "(default: )" not in text
    own = [option.name for option in described(options_of(COMMANDS[name])) if option.name]
    assert sorted(OPTION.findall(text.partition(":\n")[2])) == sorted([*own, "--help"])


def test_what_is_used_most_comes_first_and_what_is_rare_in_groups_of_its_own(run) -> None:
    text = run("train", "two-layer", "--help").out
    order = [text.index(f"  {option} ") for option in ("--data", "--width", "--theorem", "--steps", "--out")]
    assert order == sorted(order)
    assert order[-1] < text.index("\nreading a table:") < text.index("  --missing ")
    assert text.index("\nseldom needed:") < text.index("  --engine ") < text.index("\nwhat is printed:")
    assert text.startswith("usage: surefoot train two-layer --out DIR [OPTIONS]\n")


def test_every_option_says_what_it_is_for() -> None:
    for name in NAMES:
        for option in described(options_of(COMMANDS[name])):
            assert option.about or option.default == "(required)", (name, option)
            assert option.value != "VALUE", (name, option)


def test_names_of_the_groups_are_options_of_some_command() -> None:
    known = {field.name for name in NAMES for field in fields(options_of(COMMANDS[name]))}  # type: ignore[arg-type]
    listed = [*helping.FIRST, *helping.LAST, *(name for names in helping.GROUPS.values() for name in names)]
    assert set(listed) <= known and len(listed) == len(set(listed))


def test_choices_of_deblur_are_those_of_the_library() -> None:
    choices = {option.name: option.choices for option in described(options_of(COMMANDS["deblur"]))}
    assert choices["--gamma"] == GAMMAS and choices["--prior"] == (AUTOMATIC, *PRIORS)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["train", "two-layer", "--out", ""], "--out"),
        (["train", "two-layer", "--out=a", "--theorem="], "--theorem"),
        (["check", ""], "an argument"),
        (["report", "a", "--out", "b", ""], "an argument"),
    ],
)
def test_an_empty_value_is_refused(run, arguments: list[str], what: str) -> None:
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"surefoot: error: {what} is empty; give a value, or leave it out\n"


@pytest.mark.parametrize("start", [[], ["certify"], ["train"]])
def test_without_a_command_the_help_text_is_printed_and_the_usage_is_bad(run, start: list[str]) -> None:
    alone, asked = run(*start), run(*start, "--help")
    assert (alone.code, asked.code) == (2, 0)
    assert alone.out == asked.out and alone.err == ""


@pytest.mark.parametrize("columns", ["1", "0", "x", "-3"])
def test_widths_that_no_terminal_has(run, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for name in ([], ["train"], ["check"]):
        text = run(*name, "--help").out
        assert "surefoot" in text and not re.search(r"^\w$", text, re.MULTILINE)


def test_without_standard_error_nothing_is_said_on_standard_output(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    outcome = run("nope")
    assert (outcome.code, outcome.out) == (2, "")
