"""The site as `make docs` builds it, or a few of its pages, and a browser without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
FEW = ("theorems/two-layer-sharp.md", "theorems/orthogonalize.md", "conventions.md")


def build(config: Path, site: Path, *options: str) -> Path:
    """Build a site from a configuration."""
    program = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([*program, *options], cwd=ROOT, env=environment, check=True)
    return site


@pytest.fixture(scope="session")
def few_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pages, with everything of the configuration but the reference that is made of docstrings."""
    folder = tmp_path_factory.mktemp("few")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    shutil.copytree(ROOT / "docs" / "hooks", folder / "docs" / "hooks")
    for name in (*FEW, "glossary.md"):
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "docs" / name, folder / "docs" / name)
    shutil.copy(ROOT / "docs" / FEW[-1], folder / "docs" / "index.md")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    settings["plugins"] = [plugin for plugin in settings["plugins"] if isinstance(plugin, str)]
    settings["nav"] = ["index.md", "glossary.md", *FEW]
    settings["validation"] = {"links": {"not_found": "ignore", "anchors": "ignore"}}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    return build(folder / "mkdocs.yml", folder / "site")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site; a warning is an error."""
    return build(ROOT / "mkdocs.yml", tmp_path_factory.mktemp("whole") / "site", "--strict")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()
