"""Every kind of page in a real browser; minutes of making them, so that these are slow tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from every_report import PAGES


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAGES)
def test_every_page_has_the_frame_and_fits_every_screen(open_page, tmp_path: Path, kind: str) -> None:
    path = PAGES[kind](tmp_path / "page")
    for scheme in ("light", "dark"):
        shown = open_page(path, color_scheme=scheme)
        page = shown.page
        for role in ("banner", "main", "contentinfo", "navigation"):
            assert page.get_by_role(role).count() == 1, role
        assert page.locator("h1").count() == 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        for width in (1280, 768, 390):
            shown.resize(width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            shown.screenshot(f"{re.sub('[^a-z]+', '-', kind)}-{width}-{scheme}")
        for button in page.get_by_role("button", name="Zoom in").all():
            button.press("Enter")
        for toggle in page.locator(".legend button").all():
            toggle.press("Enter")
        for head in page.locator("th button").all():
            head.press("Enter")
        assert shown.complaints == []
        assert {url for url in shown.requests if not url.startswith("data:")} == {path.resolve().as_uri()}
