"""What a sweep found, as a table, as one sentence and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from driftwatch.cli.simulate.screen import echo, rows_between_tabs, say
from driftwatch.lab.sweep import DEFINITION, Degradation, Level
from driftwatch.notify.numbers import figure, milliseconds, times

_COLUMNS = (
    *("concurrency", "requests_per_second", "generation_tokens_per_second"),
    *("generation_tokens_per_second_per_user", "ttft_seconds_p50", "ttft_seconds_p99"),
    *("itl_seconds_mean", "e2e_seconds_mean", "e2e_seconds_p50", "e2e_seconds_p99"),
    *("e2e_seconds_p999", "e2e_seconds_max"),
)
# on a terminal without the p50 end to end, which the mean stands beside: 80 columns
_TERMINAL_COLUMNS = tuple(name for name in _COLUMNS if name != "e2e_seconds_p50")
_HEADS = (
    ("", "req/s", "tokens/s", "", "TTFT s", "", "ITL ms", "e2e s", "", "", ""),
    ("users", "", "in all", "a user", "p50", "p99", "mean", "mean", "p99", "p99.9", "max"),
)
_WIDTHS = (5, 6, 8, 6, 7, 7, 6, 6, 6, 6, 6)


def print_levels(levels: Sequence[Level], where: Degradation) -> None:
    """A row a level, failures under it; piped rows between tabs below a header of JSON's names.

    The level at which latency starts to degrade is marked with ``>``, piped with ``degrades``.
    """
    if not sys.stdout.isatty():
        rows_between_tabs([(*_COLUMNS, "latency", "failed_requests")])
        rows_between_tabs([_piped(level, where) for level in levels])
        return
    for head in _HEADS:
        echo(" " + " ".join(f"{w:>{n}}" for w, n in zip(head, _WIDTHS, strict=True)).rstrip())
    for level in levels:
        mark = ">" if level.concurrency == where.degrades_at else " "
        cells = [str(level.concurrency), *_cells(level)]
        echo(mark + " ".join(f"{c:>{n}}" for c, n in zip(cells, _WIDTHS, strict=True)))
        for why, count in level.failed_requests.items():
            say(f"        {count:,} of {level.sent_requests:,} requests failed: {why}")
        if level.requests_per_second is None and level.reasons:
            say(f"        {level.reasons['requests_per_second']}")
    served = [level for level in levels if level.requests_per_second is not None]
    reasons = {name: why for level in served for name, why in (level.reasons or {}).items()}
    if any("_seconds_p" in name and why.startswith("needs") for name, why in reasons.items()):
        say("-: too few requests. p99 needs 100, p99.9 needs 1,000 (--requests-per-level).")
    if "generation_tokens_per_second" in reasons:
        say(f"-: {reasons['generation_tokens_per_second']}")


def print_verdict(levels: Sequence[Level], where: Degradation) -> None:
    """The sentence that answers; what it means is part of it."""
    if where.degrades_at is None:
        if where.holds_to is None:
            say(f"NO VERDICT: {where.reason}")
        else:
            users = where.holds_to
            say(f"No knee up to {users} users: throughput still rises with every added user.")
        return
    by_users = {level.concurrency: level for level in levels}
    before, after = by_users[where.holds_to or 0], by_users[where.degrades_at]
    rate = (after.requests_per_second or 0.0) / (before.requests_per_second or 1.0)
    early, late = before.e2e_seconds_mean or 0.0, after.e2e_seconds_mean or 0.0
    sure = "" if where.confirmed else " A higher level would confirm it."
    say(
        f"Latency starts to degrade at {where.degrades_at} users. From {where.holds_to} to "
        f"{where.degrades_at} users requests/s grow {times(rate)} and mean latency "
        f"{times(late / (early or 1.0))} ({milliseconds(early)} → {milliseconds(late)}): more than "
        f"half of the added users wait instead of being served.{sure}"
    )


def print_document(levels: Sequence[Level], where: Degradation, about: Mapping[str, Any]) -> None:
    """Everything, base units in the names; null beside a reason."""
    answer = {
        "schema_version": 1,
        **about,
        "levels": [asdict(level) for level in levels],
        "latency_degrades": {"definition": DEFINITION, **asdict(where)},
    }
    echo(json.dumps(answer, indent=2, allow_nan=False))


def _piped(level: Level, where: Degradation) -> list[str]:
    values = [getattr(level, name) for name in _COLUMNS[1:]]
    cells = ["unknown" if v is None else figure(v).replace(",", "") for v in values]
    mark = "degrades" if level.concurrency == where.degrades_at else ""
    failed = ", ".join(f"{n} {why}" for why, n in level.failed_requests.items())
    return [str(level.concurrency), *cells, mark, failed]


def _cells(level: Level) -> list[str]:
    cells = []
    for name, width in zip(_TERMINAL_COLUMNS[1:], _WIDTHS[1:], strict=True):
        value = getattr(level, name)
        if value is None:
            cells.append("-")
        else:
            cells.append(_fitting(value * 1000 if name.startswith("itl") else value, width))
    return cells


def _fitting(value: float, width: int) -> str:
    """Three digits, fewer only where a column has no room for them."""
    plain = figure(value).replace(",", "")
    forms = (figure(value), plain, figure(value, 2), figure(value, 1), f"{value:.0e}")
    return next((one for one in forms if len(one) <= width), forms[-1])
