"""The shipped tree that walks follow."""

from __future__ import annotations

import pytest

from driftwatch.diagnose.tree import Tree
from driftwatch.rulebook.book import load_rulebook


@pytest.fixture(scope="module")
def tree() -> Tree:
    return load_rulebook().trees["batch-size-drift"]
