"""Tables as few bytes: what is packed comes back."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from recorded_minute_cases import real_minutes

from driftwatch.errors import StoreError
from driftwatch.store.minute_columns import SIGNIFICANT_BITS, STORED_SCHEMA, decode, encode, pack

NUMBERS = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-(2**53), 2**53).map(float),
    st.integers(0, 300).map(float),
    st.sampled_from([0.0, 1e-320, math.inf, -math.inf, 2.0**62]),
)


def test_rounding_leaves_counts_as_they_are(shared_data: Path) -> None:
    rows = real_minutes(shared_data / "vllm-0.32" / "run_slow")
    blob = pack(rows)
    assert pack(rows) == blob
    # one server, 41 minutes: 11 kB; a day of them is under 200 kB
    assert len(blob) / rows.height < 280
    found = decode(blob, STORED_SCHEMA)
    numbers = [name for name, dtype in rows.schema.items() if dtype == pl.Float64]
    whole = [name for name in numbers if (rows[name].drop_nulls() % 1 == 0).all()]
    assert {"itl_seconds_count", "prompt_tokens_sum", "max_num_seqs"} <= set(whole)
    exact = [name for name in rows.columns if name not in numbers or name in whole]
    assert_frame_equal(found.select(exact), rows.select(exact))
    for name in numbers:
        # a rounded number is off by half a unit of its last bit
        off = (found[name] / rows[name] - 1).abs().fill_nan(0.0).max() or 0.0
        assert off <= 2.0**-SIGNIFICANT_BITS, (name, off)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), NUMBERS), max_size=40))
def test_any_numbers_come_back(values: list[float | None]) -> None:
    frame = pl.DataFrame({"n": pl.Series(values, dtype=pl.Float64)})
    found = decode(pack(frame), frame.schema)["n"].to_list()
    for one, other in zip(values, found, strict=True):
        if one is None or one % 1 == 0 or math.isinf(one):
            assert other == one
        else:
            assert other == pytest.approx(one, rel=2.0**-SIGNIFICANT_BITS, abs=1e-300)


@pytest.mark.parametrize("encoded", [encode, pack])
def test_other_columns_come_back(encoded: Callable[[pl.DataFrame], bytes]) -> None:
    frame = pl.DataFrame(
        {
            "text": ["b", None, "a", "b"],
            "flag": [True, None, False, True],
            "ports": pl.Series([[8000, 8001], None, [], [7]], dtype=pl.List(pl.Int64)),
            "nothing": pl.Series([None] * 4, dtype=pl.Float64),
        }
    )
    assert encoded(frame) == encoded(frame)
    for one in (frame, frame.clear()):
        assert_frame_equal(decode(encoded(one), frame.schema), one)
    # columns that went are left out, those that came are unknown
    later = decode(encoded(frame), {"flag": pl.Boolean, "a_column_of_tomorrow": pl.String})
    assert later["a_column_of_tomorrow"].null_count() == 4


@pytest.mark.parametrize(
    "blob", [b"", b"PAR1", b"DWP1" + b"\x07" * 40, b"\xfd7zXZ\x00" + b"\x07" * 40]
)
def test_other_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(StoreError, match="a stored table") as caught:
        decode(blob, STORED_SCHEMA)
    assert caught.value.code == "corrupt"
