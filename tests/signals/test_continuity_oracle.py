"""Where an epoch begins, against a plain loop: with and without unknown values in a column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.collect.schema import scrape_frame
from driftwatch.signals.continuity import with_epochs

T0 = datetime(2026, 1, 1, tzinfo=UTC)
EDGES = st.sampled_from([[1.0, math.inf], [2.0, math.inf], [1.0, 2.0, math.inf], None])
COUNTER = st.sampled_from([1.0, 2.0, 3.0, 3.0, 4.0, None])
SCRAPE = st.fixed_dictionaries(
    {
        "instance": st.sampled_from(["a:1", "b:1"]),
        "generation_tokens_total": COUNTER,
        "queue_seconds_count": COUNTER,
        "queue_seconds_edges": EDGES,
        "cache_config": st.sampled_from(["x", "x", "y", None]),
        "process_start_time_seconds": st.sampled_from([10.0, 10.5, 12.0, None]),
    }
)
# a column is either known everywhere or has holes: they are compared in different ways
WHOLE = {
    "generation_tokens_total": 5.0,
    "queue_seconds_count": 5.0,
    "queue_seconds_edges": [1.0, math.inf],
    "cache_config": "x",
    "process_start_time_seconds": 10.0,
}


def expected(rows: Sequence[dict[str, Any]]) -> list[tuple[bool, bool, bool]]:
    """restarted, configuration_changed, edges_changed of each row, in its order."""
    known: dict[str, dict[str, Any]] = {}
    found = []
    for row in rows:
        before = known.setdefault(row["instance"], {})

        def was(name: str, row: dict[str, Any] = row, before: dict[str, Any] = before) -> Any:
            return None if row[name] is None else before.get(name)

        counters = ("generation_tokens_total", "queue_seconds_count")
        fell = any(was(c) is not None and row[c] < was(c) for c in counters)
        started = was("process_start_time_seconds")
        moved = started is not None and abs(row["process_start_time_seconds"] - started) > 1
        config, edges = was("cache_config"), was("queue_seconds_edges")
        found.append(
            (
                fell or moved,
                config is not None and config != row["cache_config"],
                edges is not None and edges != row["queue_seconds_edges"],
            )
        )
        before |= {k: v for k, v in row.items() if v is not None}
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(SCRAPE, min_size=1, max_size=10), st.sets(st.sampled_from(sorted(WHOLE))))
def test_every_change_is_seen_and_no_other(rows: list[dict[str, Any]], whole: set[str]) -> None:
    for name in whole:
        for row in rows:
            row[name] = WHOLE[name] if row[name] is None else row[name]
    for second, row in enumerate(rows):
        row |= {"engine": "0", "ok": True, "time": T0 + timedelta(seconds=second)}
    ordered = sorted(rows, key=lambda row: (row["instance"], row["time"]))
    epochs = with_epochs(scrape_frame(rows))
    seen = epochs.select("restarted", "configuration_changed", "edges_changed").rows()
    assert seen == expected(ordered)
