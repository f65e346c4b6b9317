"""Order of the scrape table: the same rows as sorting always, with less work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from driftwatch.collect.schema import in_order, scrape_frame, scrapes_once

T0 = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = ["instance", "engine", "time"]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "instance": st.sampled_from(["a:1", "b:1", "a:10", None]),
            "engine": st.sampled_from(["0", "1", "10"]),
            "time": st.integers(0, 3).map(lambda s: T0 + timedelta(seconds=s)),
            "running_requests": st.integers(0, 99).map(float),
        }
    ),
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(ROWS, st.booleans())
def test_rows_come_in_order_and_once(rows: list[dict[str, object]], sorted_before: bool) -> None:
    frame = scrape_frame(rows)
    if sorted_before:
        frame = frame.sort(KEYS, maintain_order=True)
    ordered = frame.sort(KEYS, maintain_order=True)
    assert in_order(frame).equals(ordered)
    once = frame.unique(KEYS, keep="first", maintain_order=True).sort(KEYS)
    assert scrapes_once(frame).equals(once)
