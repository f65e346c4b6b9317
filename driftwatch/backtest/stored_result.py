"""What a backtest of the database leaves there for the pages of rules. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from driftwatch.backtest.report import BacktestReport
from driftwatch.notify.numbers import utc_text
from driftwatch.notify.rule_words import condition_lines
from driftwatch.rulebook.rules import Rule

SCHEMA_VERSION = 1


def result_document(report: BacktestReport, rules: Sequence[Rule], at: datetime) -> dict[str, Any]:
    """Of each rule that was judged how often it would have fired, as JSON values.

    ``at``: when it was judged. A rule of a severity that was not counted is left out.
    """
    result, history = report.result, report.result.history
    counted = Counter(page.rule for page in result.pages)
    return {
        "schema_version": SCHEMA_VERSION,
        "at": utc_text(at),
        "since": utc_text(history.since),
        "until": utc_text(history.until),
        "servers": history.servers,
        "minutes_with_data": history.minutes_with_data,
        "rules": {
            rule.id: {
                "version": version_of(rule),
                "incidents": counted[rule.id],
                "per_server_month": result.per_server_month(counted[rule.id]),
                "undetermined_ratio": result.undetermined_ratio.get(rule.id),
            }
            for rule in rules
            if rule.is_evaluated and rule.severity in report.severities
        },
    }


def version_of(rule: Rule) -> str:
    """A hash of what the rule fires on and when it ends; not of where it stands."""
    texts = "\n".join(text for text, _ in condition_lines(rule))
    timing = f"{rule.for_seconds:g} {rule.keep_firing_for_seconds:g} {rule.per}"
    return hashlib.sha256(f"{texts}\n{timing}".encode()).hexdigest()[:16]
