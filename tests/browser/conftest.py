"""A headless Chromium for the pages that surefoot makes; where there is none, its tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"


@dataclass
class Opened:
    """A page in the browser, with what it said and asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def screenshot(self, name: str, whole: bool = True) -> None:
        """Keep a picture under build/screenshots."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)

    def resize(self, width: int, height: int = 800) -> None:
        """Change the window, and wait for the page to be laid out."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


Open = Callable[..., Opened]
"""``open_page(path, width=1280, **context)``: the keywords go to ``Browser.new_context``."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser: neither chromium nor google-chrome is on the path")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a file or an address in a window of its own; closed after the test."""
    contexts = []

    def opened(path: Path | str, width: int = 1280, **context: Any) -> Opened:
        window = browser.new_context(viewport={"width": width, "height": 800}, **context)
        contexts.append(window)
        shown = Opened(window.new_page())
        shown.page.on("console", lambda said: shown.complaints.append(f"{said.type}: {said.text}"))
        shown.page.on("pageerror", lambda error: shown.complaints.append(f"error: {error}"))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        shown.page.goto(path.resolve().as_uri() if isinstance(path, Path) else path)
        return shown

    yield opened
    for window in contexts:
        window.close()
