"""Tables as few bytes: what is packed comes back."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from recorded_minute_cases import real_minutes

from driftwatch.errors import StoreError
from driftwatch.signals.minutes import BUCKETED
from driftwatch.store.frames import decode, pack
from driftwatch.store.minute_columns import LAST, SIGNIFICANT_BITS, STORED_SCHEMA

NUMBERS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-(2**53), 2**53).map(float),
    st.integers(0, 300).map(float),
    st.sampled_from([0.0, 1e-320, math.inf, -math.inf, 2.0**62]),
)


def lists(values: list[object]) -> pl.Series:
    return pl.Series(values, dtype=pl.List(pl.Float64))


def test_real_minutes_come_back_to_the_bit_and_are_small(shared_data: Path) -> None:
    rows = real_minutes(shared_data / "vllm-0.32" / "run_slow")
    blob = pack(rows)
    assert pack(rows) == blob
    assert_frame_equal(decode(blob, STORED_SCHEMA), rows)
    assert_frame_equal(decode(blob).select(*STORED_SCHEMA), rows)


def test_rounding_leaves_counts_as_they_are(shared_data: Path) -> None:
    rows = real_minutes(shared_data / "vllm-0.32" / "run_slow")
    blob = pack(rows, SIGNIFICANT_BITS)
    # one server, 41 minutes: 8 kB; a day of them is under 200 kB
    assert len(blob) / rows.height < 260
    found = decode(blob, STORED_SCHEMA)
    whole = [
        name
        for name in rows.columns
        if rows[name].dtype == pl.Float64 and (rows[name].drop_nulls() % 1 == 0).all()
    ]
    histograms = [f"{h}_{part}" for h in BUCKETED for part in ("buckets", "edges")]
    assert {"itl_seconds_count", "prompt_tokens_sum", "max_num_seqs"} <= set(whole)
    for exact in (whole, histograms, ["instance", "end", "restarted", "binding_limit"]):
        assert_frame_equal(found.select(exact), rows.select(exact))
    for name, bits in SIGNIFICANT_BITS.items():
        # a rounded number is off by half a unit of its last bit
        off = (found[name] / rows[name] - 1).abs().fill_nan(0.0).max() or 0.0
        assert off <= 2.0**-bits, (name, off)
    assert SIGNIFICANT_BITS.keys() >= {c for c, t in LAST.items() if t == pl.Float64}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), NUMBERS), max_size=40))
def test_any_numbers_come_back(values: list[float | None]) -> None:
    frame = pl.DataFrame({"n": pl.Series(values, dtype=pl.Float64)})
    assert decode(pack(frame), frame.schema)["n"].to_list() == values


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.tuples(
                st.sampled_from([(1.0, math.inf), (0.5, 2.0, math.inf), ()]),
                st.one_of(
                    st.none(),
                    st.lists(st.one_of(st.none(), st.integers(0, 9**6), NUMBERS), max_size=4),
                ),
            ),
        ),
        max_size=12,
    )
)
def test_any_histograms_come_back(rows: list[tuple[tuple[float, ...], list[float]] | None]) -> None:
    """Changing edges, counts that are no whole numbers, lists that fit no edges, NULLs."""
    frame = pl.DataFrame(
        {
            "h_edges": lists([None if row is None else list(row[0]) for row in rows]),
            "h_buckets": lists([None if row is None else row[1] for row in rows]),
        }
    )
    assert_frame_equal(decode(pack(frame), frame.schema), frame, check_exact=True)


def test_other_columns_come_back() -> None:
    frame = pl.DataFrame(
        {
            "text": ["b", None, "a", "b"],
            "flag": [True, None, False, True],
            "ports": pl.Series([[8000, 8001], None, [], [7]], dtype=pl.List(pl.Int64)),
            "nothing": pl.Series([None] * 4, dtype=pl.Float64),
        }
    )
    assert_frame_equal(decode(pack(frame), frame.schema), frame)
    assert_frame_equal(decode(pack(frame.clear()), frame.schema), frame.clear())
    later = decode(pack(frame), {"flag": pl.Boolean, "a_column_of_tomorrow": pl.String})
    assert later["a_column_of_tomorrow"].null_count() == 4


@pytest.mark.parametrize(
    "blob", [b"", b"PAR1", b"DWP1" + b"\x07" * 40, b"\xfd7zXZ\x00" + b"\x07" * 40]
)
def test_other_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(StoreError, match="a stored table") as caught:
        decode(blob)
    assert caught.value.code == "corrupt"
