from __future__ import annotations

import pytest

from driftwatch.rulebook.book import Rulebook, load_rulebook


@pytest.fixture(scope="session")
def book() -> Rulebook:
    return load_rulebook()
