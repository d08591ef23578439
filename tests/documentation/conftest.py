"""The site as `make docs` builds it."""

from __future__ import annotations

from pathlib import Path

import built_site
import pytest


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site; a warning is an error."""
    return built_site.whole(tmp_path_factory.mktemp("whole"))
