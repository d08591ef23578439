"""The documentation as `make docs` builds it, or a few of its pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

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


def few_pages(folder: Path) -> Path:
    """Three pages, with everything of the configuration but the reference that is made of docstrings."""
    for name in ("assets", "hooks"):
        shutil.copytree(ROOT / "docs" / name, folder / "docs" / name)
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


def whole(folder: Path) -> Path:
    """The whole site; a warning is an error."""
    return build(ROOT / "mkdocs.yml", folder / "site", "--strict")
