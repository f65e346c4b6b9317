"""From a configuration to what a tick needs: plan and sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftwatch.rulebook.book import load_rulebook
from driftwatch.service.plan import Plan


def plan_of_rules(paths: Sequence[Path]) -> Plan:
    """A plan without pools: every target is grouped by namespace and model.

    Raises:
        ConfigError: a rule or tree file has problems.
    """
    book = load_rulebook(paths)
    return Plan(book.rules, book.trees)
