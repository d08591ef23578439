"""A report in a real browser: read at every width, by keyboard, in the dark, on paper, without a script."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from reported_runs import again

from surefoot import _report
from surefoot._report.document import document
from surefoot._report.markup import Markup, section

REACHABLE = "a[href], button, input, summary, [tabindex='0']"
WIDE = """() => [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".wide, .hidden, svg"))
    .map((one) => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has every part: phases, checkpoints, bounds of several theorems."""
    directory = tmp_path_factory.mktemp("report") / "again"
    again(directory)
    return _report.write(directory)


def _names(page, role: str) -> list[str]:
    return [one.inner_text() or one.get_attribute("aria-label") for one in page.get_by_role(role).all()]


@pytest.mark.parametrize(("scheme", "widths"), [("light", (1280, 768)), ("dark", (390,))])
def test_nothing_is_wider_than_the_window_and_nothing_is_fetched(open_page, report, scheme: str, widths) -> None:
    shown = open_page(report, color_scheme=scheme)
    for width in widths:
        shown.resize(width)
        assert shown.page.evaluate(WIDE) == [], width
        assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        shown.screenshot(f"report-{width}-{scheme}")
    assert shown.complaints == []
    assert shown.requests == [report.resolve().as_uri()]
    ground = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is (scheme == "light")


def test_what_slips_into_a_page_neither_runs_nor_fetches(open_page, tmp_path: Path) -> None:
    slipped = """<script>document.title = "run"</script><img src="x" onerror="document.title = 'run'">
        <img src="https://example.org/1.png"><link rel="stylesheet" href="https://example.org/2.css">
        <a href="javascript:document.title = 'run'">here</a>"""
    path = tmp_path / "page.html"
    path.write_text(document("<b>A & B</b>", [section("One", Markup(slipped))], "foot"))
    shown = open_page(path)
    shown.page.get_by_text("here").press("Enter")
    assert shown.page.title() == "<b>A & B</b>"
    assert shown.page.url == path.resolve().as_uri()
    refused = "Content Security Policy"  # two scripts, two pictures, a style, an address that is a script
    assert len(shown.complaints) == 6 and all(refused in said for said in shown.complaints)


def test_words_of_a_plot_can_be_read_on_a_narrow_screen(open_page, report: Path) -> None:
    page = open_page(report, width=390).page
    sizes = page.evaluate(
        """() => [...document.querySelectorAll("figure svg[role=img]")]
            .filter((svg) => svg.getBoundingClientRect().width > 0)
            .flatMap((svg) => [...svg.querySelectorAll("text")].map((said) =>
                parseFloat(getComputedStyle(said).fontSize) * svg.getScreenCTM().a))"""
    )
    assert len(sizes) > 10
    assert min(sizes) >= 9.5


def test_every_control_is_reached_by_the_tab_key_and_shows_the_focus(open_page, report: Path) -> None:
    shown = open_page(report)
    page = shown.page
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    shown.resize(1280)
    expected = page.evaluate(
        f"""() => [...document.querySelectorAll("{REACHABLE}")].filter((one) => one.checkVisibility()).length"""
    )
    page.evaluate(
        """() => { window.reached = []; document.addEventListener("focusin", ({ target }) => {
            window.reached.push([target.textContent, getComputedStyle(target).outlineStyle]); }); }"""
    )
    for _ in range(expected + 1):
        page.keyboard.press("Tab")
    reached = page.evaluate("window.reached")
    assert reached[0][0] == "Skip to the content"
    assert len(reached) == expected > 30
    assert [text for text, outline in reached if outline == "none"] == []


def test_the_skip_link_leads_past_the_contents(open_page, report: Path) -> None:
    page = open_page(report).page
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_plots_zoom_by_button_key_and_wheel(open_page, report: Path) -> None:
    shown = open_page(report)
    page = shown.page
    figure = page.locator("#plot-gap")
    ticks = "() => [...document.querySelectorAll('#plot-gap .broad .tick')].map((tick) => tick.textContent)"
    assert page.evaluate(ticks) == []
    figure.get_by_role("button", name="Zoom in").press("Enter")
    first = page.evaluate(ticks)
    assert "20" in first and "100" in first and "0" not in first  # the end of the run, and what is beyond it
    assert "shown: " in figure.locator("output").inner_text()
    figure.get_by_role("button", name="Move right").press("Space")
    assert page.evaluate(ticks) != first
    figure.get_by_role("button", name="Reset zoom").press("Enter")
    assert page.evaluate(ticks) == []
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Zoom in"
    stage = figure.locator(".stage")
    stage.press("+")
    stage.press("ArrowRight")
    assert page.evaluate(ticks) != []
    stage.press("0")
    assert page.evaluate(ticks) == []
    stage.scroll_into_view_if_needed()
    box = stage.bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"])
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function(f"({ticks})().length > 0")
    assert "0" not in page.evaluate(ticks)  # what is under the pointer, at the right end, stays in sight
    shown.screenshot("report-zoomed", whole=False)
    assert shown.complaints == []


def test_curves_are_hidden_from_the_legend(open_page, report: Path) -> None:
    page = open_page(report).page
    legend = page.locator("#plot-gap .legend")
    for name in ("this run", "certified again 2 times"):
        item = legend.locator("li").filter(has_text=re.compile(f"^{name}"))
        drawn = f"#plot-gap .broad [data-curve='{item.get_attribute('data-curve')}']"
        visible = (
            f"""[...document.querySelectorAll("{drawn}")].map((one) => getComputedStyle(one).display !== "none")"""
        )
        toggle = item.get_by_role("button")
        before = page.evaluate(visible)
        assert before and all(before)
        toggle.press("Enter")
        assert toggle.get_attribute("aria-pressed") == "false"
        assert not any(page.evaluate(visible))
        toggle.press("Space")
        assert toggle.get_attribute("aria-pressed") == "true"
        assert page.evaluate(visible) == before


def test_long_tables_are_filtered_and_sorted(open_page, report: Path) -> None:
    page = open_page(report, width=390).page
    page.get_by_text("18 quantities").press("Enter")
    quantities = page.locator("#quantities + *").locator("xpath=..")
    rows = quantities.locator("tbody tr")
    before = rows.all_inner_texts()
    assert len(before) == 18
    quantities.get_by_role("searchbox").fill("alpha")
    shown = [row for row in rows.all() if row.is_visible()]
    assert 0 < len(shown) < len(before)
    assert all("alpha" in row.inner_text() for row in shown)
    assert quantities.locator("output").inner_text() == f"{len(shown)} of 18 rows"
    quantities.get_by_role("searchbox").fill("")
    head = quantities.get_by_role("button", name="value")
    head.press("Enter")
    assert quantities.locator("[aria-sort=ascending]").inner_text() == "value"
    numbers = [_number(row.locator(".n").inner_text()) for row in rows.all()]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 10
    head.press("Enter")
    assert [_number(row.locator(".n").inner_text()) for row in rows.all()] == numbers[::-1]
    head.press("Enter")
    assert rows.all_inner_texts() == before


def _number(said: str) -> float:
    """A number as reports write it."""
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    mantissa, _, power = said.replace(",", "").replace("−", "-").partition(" × 10")
    if mantissa.startswith("10") and mantissa[2:].translate(digits) != mantissa[2:]:
        mantissa, power = "1", mantissa[2:]
    return float(mantissa) * 10.0 ** int(power.translate(digits) or 0)


def test_colours_change_by_a_button_and_are_remembered(open_page, report: Path) -> None:
    page = open_page(report, color_scheme="light").page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark").press("Enter")
    assert page.evaluate(ground) != light
    page.reload()
    assert page.evaluate(ground) != light
    page.get_by_role("button", name="Light").press("Enter")
    assert page.evaluate(ground) == light


def test_on_paper_nothing_is_folded_and_colours_are_light(open_page, report: Path) -> None:
    shown = open_page(report, color_scheme="dark")
    shown.page.emulate_media(media="print")
    assert shown.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')") == "#ffffff"
    assert not shown.page.locator(".tools:visible, .contents:visible, .skip:visible").all()
    row = shown.page.locator("#arrays + * + details tbody tr").first
    assert row.bounding_box()["height"] > 0.0
    shown.screenshot("report-print")


def test_without_a_script_the_page_can_be_read(open_page, report: Path) -> None:
    shown = open_page(report, width=390, java_script_enabled=False)
    assert shown.page.get_by_role("button").count() == 0
    assert shown.page.locator("#plot-gap svg.narrow").is_visible()
    assert shown.page.locator(".legend li").first.is_visible()
    shown.page.get_by_text("18 quantities").click()
    assert shown.page.locator("#quantities ~ details tbody tr").first.is_visible()
    assert shown.complaints == []


def test_the_page_is_heard_as_it_is_seen(open_page, report: Path) -> None:
    page = open_page(report, width=390).page  # tables are stacked there, and tables still
    assert page.evaluate("document.documentElement.lang") == "en"
    for role in ("banner", "main", "contentinfo", "navigation"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    levels = [int(one.evaluate("(one) => one.tagName[1]")) for one in page.get_by_role("heading").all()]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    table = page.get_by_role("table", name="Audit of the recorded run")
    assert table.get_by_role("columnheader").all_inner_texts()[:2] == ["verdict", "inequality"]
    assert table.get_by_role("rowheader").count() == table.locator("tbody tr").count() > 3
    assert table.get_by_role("cell").count() > 10
    assert page.get_by_role("img", name="Gap at every iterate").is_visible()
    assert page.get_by_role("region", name="GUARANTEED").is_visible()
    for role in ("button", "link", "searchbox"):
        assert all(_names(page, role)), role
