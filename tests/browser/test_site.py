"""The pages as a reader without a network opens them, from files: formulas are typeset, nothing comes from outside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import built_site
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

UNSET = r"""() => {
  const text = (node) => {
    const copy = node.cloneNode(true);
    copy.querySelectorAll(".katex, code, pre").forEach((part) => part.remove());
    return copy.textContent;
  };
  return {
    formulas: document.querySelectorAll(".arithmatex").length,
    typeset: document.querySelectorAll(".arithmatex > :is(.katex, .katex-display)").length,
    raw: [...document.querySelectorAll("article :is(h1, h2, h3, p, li, td)")].map(text).filter((t) => /\\[(\[]|\$/.test(t)),
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
}"""


@pytest.fixture(scope="module")
def few_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pages."""
    return built_site.few_pages(tmp_path_factory.mktemp("few"))


def opened(page: Page, file: Path) -> tuple[dict[str, object], list[str]]:
    """A file in the browser: what is not typeset, and what it complained of or asked of anything but files."""
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else complaints.append(r.url))
    page.goto(file.as_uri())
    page.wait_for_load_state("load")
    return page.evaluate(UNSET), complaints


def check(browser: Browser, site: Path) -> int:
    """Open every page at the width of a telephone; how many formulas there are."""
    formulas = 0
    for file in sorted(site.rglob("*.html")):
        if file.name == "404.html":  # of a server, with addresses from its root
            continue
        page = browser.new_page(viewport={"width": 390, "height": 800})
        found, complaints = opened(page, file)
        page.close()
        assert complaints == [], file
        assert found["raw"] == [], file
        assert found["formulas"] == found["typeset"], file
        assert found["overflow"] == 0, file
        formulas += int(str(found["formulas"]))
    return formulas


def test_formulas_of_some_pages_are_typeset_without_a_network(browser: Browser, few_pages: Path) -> None:
    assert check(browser, few_pages) > 100


def test_a_formula_that_cannot_be_typeset_is_noticed(browser: Browser, few_pages: Path) -> None:
    file = few_pages / "broken.html"
    text = (few_pages / "index.html").read_text()
    file.write_text(text.replace('<span class="arithmatex">\\(', '<span class="arithmatex">\\(\\nosuchcommand ', 1))
    try:
        page = browser.new_page()
        found, complaints = opened(page, file)
        page.close()
        assert "nosuchcommand" in complaints[0]
        assert int(str(found["typeset"])) == int(str(found["formulas"])) - 1 and found["raw"]
    finally:
        file.unlink()


def test_the_search_works_from_files(browser: Browser, few_pages: Path) -> None:
    page = browser.new_page()
    _, complaints = opened(page, few_pages / "index.html")
    page.fill("input.md-search__input", "orthogonalising")
    page.wait_for_selector(".md-search-result__item a[href*=orthogonalize]", timeout=20_000, state="attached")
    page.close()
    assert complaints == []


def test_the_scheme_is_that_of_the_system_until_another_is_chosen(browser: Browser, few_pages: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    opened(page, few_pages / "index.html")

    def scheme() -> str | None:
        return page.locator("body").get_attribute("data-md-color-scheme")

    def choose() -> None:
        page.locator("form[data-md-component=palette] label:not([hidden])").click()

    assert scheme() == "slate"
    choose()
    assert scheme() == "default"
    choose()
    assert scheme() == "slate"
    choose()
    page.emulate_media(color_scheme="light")
    page.wait_for_function("document.body.getAttribute('data-md-color-scheme') == 'default'")
    page.close()


@pytest.mark.slow
def test_formulas_of_every_page_are_typeset_without_a_network(browser: Browser, tmp_path: Path) -> None:
    assert check(browser, built_site.whole(tmp_path)) > 6000
